"""Hugging Face's GPT-2 weights as TransformerLens', and the other way round."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import einops
from torch import Tensor

from shapetrace.errors import WeightsError
from shapetrace.weights.layouts.layout import Slot, slots_of
from shapetrace.weights.layouts.tables import HUGGING_FACE

_PREFIX = "transformer."
_MASK = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")


def is_hugging_face(state: Mapping[str, Tensor]) -> bool:
    """Whether the keys are those of transformers' GPT2Model or GPT2LMHeadModel."""
    return any(key.removeprefix(_PREFIX) == "wte.weight" for key in state)


def from_hugging_face(state: Mapping[str, Tensor], n_heads: int) -> dict[str, Tensor]:
    """Hugging Face's GPT-2 under TransformerLens names; keys that belong to no layer keep their names.

    A Conv1D weight is (in, out), as ours are, so nothing is transposed but the head: lm_head.weight (d_vocab, d_model),
    or wte.weight where the head is tied. GPT-2 has no b_U: it is 0. Mask buffers are left out.
    Raises WeightsError where a width is no multiple of the number of heads.
    """
    bare = {key.removeprefix(_PREFIX): tensor for key, tensor in state.items()}
    slots = {slot.key: slot for slot in slots_of(HUGGING_FACE, _layers(bare, r"h\.(\d+)\."))}
    ours: dict[str, Tensor] = {}
    for key, tensor in bare.items():
        if key in slots:
            ours |= _unpack(slots[key], tensor, n_heads)
        elif not _MASK.fullmatch(key):
            ours[key] = tensor
    if "embed.W_E" in ours:
        ours.setdefault("unembed.W_U", ours["embed.W_E"].T)
    if "unembed.W_U" in ours:
        ours.setdefault("unembed.b_U", ours["unembed.W_U"].new_zeros(ours["unembed.W_U"].shape[1]))
    return ours


def to_hugging_face(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """TransformerLens weights under the names of GPT2LMHeadModel, the head not tied; takes them out of the state.

    The inverse of `from_hugging_face`, bit for bit, but for b_U, which may be left out.
    Raises WeightsError for what has no place there.
    """
    layers = _layers(state, r"blocks\.(\d+)\.")
    theirs: dict[str, Tensor] = {}
    for slot in slots_of(HUGGING_FACE, layers, lambda row: "" if row.key in HUGGING_FACE.outside else _PREFIX):
        if all(name in state for name in slot.names):
            theirs[slot.key] = slot.pack(state)
            for name in slot.names:
                del state[name]
    if state:
        raise WeightsError(f"Hugging Face's GPT-2 has no place for {', '.join(f'`{key}`' for key in state)}")
    return theirs


def _layers(keys: Iterable[str], pattern: str) -> list[int]:
    return sorted({int(match[1]) for match in (re.match(pattern, key) for key in keys) if match})


def _unpack(slot: Slot, tensor: Tensor, n_heads: int) -> dict[str, Tensor]:
    try:
        return slot.unpack(tensor, n_heads)
    except (einops.EinopsError, RuntimeError):
        raise WeightsError(
            f"`{slot.key}` has shape {tuple(tensor.shape)}, which is none of {n_heads} heads' q, k and v",
            "give the sizes of the weights with `--model` or `--set`, such as `--set n_heads=2`",
        ) from None
