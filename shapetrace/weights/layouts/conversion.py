"""GPT-2's weights from one layout to another; TransformerLens' is what all go through."""

from __future__ import annotations

import re
from collections.abc import Mapping

import einops
import torch
from torch import Tensor

from shapetrace.errors import WeightsError, suggest
from shapetrace.weights.layouts.layout import Layout, Slot, find_layout, slots_of
from shapetrace.weights.layouts.tables import TABLES, TRANSFORMER_LENS, Table

_EMBEDDING, _HEAD, _HEAD_BIAS = "embed.W_E", "unembed.W_U", "unembed.b_U"


def convert(state: Mapping[str, Tensor], to: str, n_heads: int | None = None) -> dict[str, Tensor]:
    """The same weights under another layout's names and in its shapes, bit for bit.

    state: a state_dict, or what `read_weights` reads, in any known layout: `TransformerLens` (the modular GPT-2's),
    `forge`, `Hugging Face`, `nanoGPT` or `textbook`, which is told by names and shapes.
    to: the name of the layout to bring it to, in any spelling.
    n_heads: needed to split fused heads for TransformerLens.

    A tied head is written out, as each state_dict has it. A head's bias of 0, which only TransformerLens has, is left
    out elsewhere; constants, such as masks, are left out. No two tensors share memory; one may be the given one itself.
    Raises WeightsError where the layout cannot be told or is not known, n_heads is missing or wrong, or a tensor has no
    place in the other layout.
    """
    table = _find_table(to)
    layout = find_layout({key: tuple(tensor.shape) for key, tensor in state.items()})
    if layout is None:
        known = ", ".join(f"`{key}`" for key in list(state)[:3])
        raise WeightsError(
            f"weights such as {known} are in no known layout of GPT-2" if state else "there are no weights to convert",
            f"known are {', '.join(each.name for each in TABLES)}",
        )
    if n_heads is not None and (not isinstance(n_heads, int) or n_heads < 1):
        raise WeightsError(f"n_heads is {n_heads!r}, which is no number of heads", "give a whole number from 1 up")
    if n_heads is None and table is TRANSFORMER_LENS and layout.name != table.name:
        raise WeightsError(
            f"{layout.name}'s weights do not tell how many heads they have, and TransformerLens' are one a head",
            "say it: convert(state, to, n_heads=12)",
        )
    # Where heads lie side by side on both sides, they are never told apart.
    ours = to_transformer_lens(state, layout, n_heads or 1)
    if table is not TRANSFORMER_LENS and _HEAD_BIAS in ours and not ours[_HEAD_BIAS].any():
        del ours[_HEAD_BIAS]
    return _separate(from_transformer_lens(ours, table))


def to_transformer_lens(state: Mapping[str, Tensor], layout: Layout, n_heads: int) -> dict[str, Tensor]:
    """Under TransformerLens names, without a copy where it can be; keys that are not the layout's keep their names.

    A head that is not there is the embedding, its bias 0. Raises WeightsError for a shape of other than n_heads heads.
    """
    slots = {slot.key: slot for slot in layout.slots}
    ours: dict[str, Tensor] = {}
    for key, tensor in state.items():
        if key in slots:
            ours |= _unpack(slots[key], tensor, n_heads)
        elif key not in layout.constants:
            ours[key] = tensor
    if layout.name != TRANSFORMER_LENS.name:
        ours.setdefault(_HEAD, ours[_EMBEDDING].T)
        ours.setdefault(_HEAD_BIAS, ours[_HEAD].new_zeros(ours[_HEAD].shape[1]))
    return ours


def from_transformer_lens(state: dict[str, Tensor], table: Table) -> dict[str, Tensor]:
    """Under a table's names, without a copy where it can be; takes them out of the state.

    Raises WeightsError for what has no place there, and for a fused tensor of which a part is missing.
    """
    layers = sorted({int(match[1]) for match in (re.match(r"blocks\.(\d+)\.", key) for key in state) if match})
    theirs: dict[str, Tensor] = {}
    for slot in slots_of(table, layers, lambda row: "" if row.key in table.outside else table.optional_prefix):
        missing = [name for name in slot.names if name not in state]
        if 0 < len(missing) < len(slot.names):
            parts = ", ".join(f"`{name}`" for name in slot.names)
            raise WeightsError(f"`{slot.key}` is made of {parts}, and there is no `{missing[0]}`")
        if not missing:
            theirs[slot.key] = slot.pack(state)
            for name in slot.names:
                del state[name]
    if state:
        raise WeightsError(f"{table.name}'s layout has no place for {', '.join(f'`{key}`' for key in list(state)[:6])}")
    return theirs


def _unpack(slot: Slot, tensor: Tensor, n_heads: int) -> dict[str, Tensor]:
    try:
        return slot.unpack(tensor, n_heads)
    except (einops.EinopsError, RuntimeError):
        whose = f"{n_heads} heads' " if n_heads > 1 else ""
        raise WeightsError(
            f"`{slot.key}` has shape {tuple(tensor.shape)}, which does not hold {whose}q, k and v",
            "give the number of heads that the weights were made with: `--set n_heads=2`, in Python n_heads=2",
        ) from None


def _find_table(name: str) -> Table:
    spelt = {_bare(table.name): table for table in TABLES}
    if _bare(name) not in spelt:
        raise WeightsError(f"there is no layout `{name}`", suggest(name, [table.name for table in TABLES]))
    return spelt[_bare(name)]


def _bare(name: str) -> str:
    """`Hugging Face`, `hugging_face` -> huggingface."""
    return re.sub(r"[\W_]", "", name.lower())


def _separate(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Each in memory of its own, in the order of its axes: what a file can be written of."""
    taken: set[int] = set()
    separate: dict[str, Tensor] = {}
    for key, tensor in state.items():
        own = tensor.contiguous()
        if own.untyped_storage().data_ptr() in taken:
            own = own.clone(memory_format=torch.contiguous_format)
        taken.add(own.untyped_storage().data_ptr())
        separate[key] = own
    return separate
