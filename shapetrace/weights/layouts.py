"""The layouts in which GPT-2's weights are kept, and their conversion to TransformerLens names and shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping

import einops
import torch
from torch import Tensor

from shapetrace.errors import WeightsError

# Hugging Face's causal-mask buffers: constants that the modular GPT-2 makes for itself.
_MASKS = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")

_BLOCK = {
    "ln_1.weight": "ln1.w",
    "ln_1.bias": "ln1.b",
    "ln_2.weight": "ln2.w",
    "ln_2.bias": "ln2.b",
    "attn.c_proj.bias": "attn.b_O",
    "mlp.c_fc.weight": "mlp.W_in",
    "mlp.c_fc.bias": "mlp.b_in",
    "mlp.c_proj.weight": "mlp.W_out",
    "mlp.c_proj.bias": "mlp.b_out",
}
_OUTSIDE = {
    "wte.weight": "embed.W_E",
    "wpe.weight": "pos_embed.W_pos",
    "ln_f.weight": "ln_final.w",
    "ln_f.bias": "ln_final.b",
}


def is_hugging_face(state: Mapping[str, Tensor]) -> bool:
    """Whether the keys are those of transformers' GPT2Model or GPT2LMHeadModel."""
    return any(key.removeprefix("transformer.") == "wte.weight" for key in state)


def from_hugging_face(state: Mapping[str, Tensor], n_heads: int) -> dict[str, Tensor]:
    """Hugging Face's GPT-2 under TransformerLens names; keys that belong to no layer keep their names.

    A Conv1D weight is (in, out), as ours are, so nothing is transposed but the head:
    c_attn.weight (d_model, 3 * d_model) is cut into W_Q, W_K, W_V (n_heads, d_model, d_head),
    c_proj.weight (d_model, d_model) becomes W_O (n_heads, d_head, d_model),
    lm_head.weight (d_vocab, d_model), or wte.weight where the head is tied, becomes W_U (d_model, d_vocab).
    GPT-2 has no b_U: it is 0. Raises WeightsError where a width is no multiple of the number of heads.
    """
    bare = {key.removeprefix("transformer."): tensor for key, tensor in state.items()}
    ours: dict[str, Tensor] = {}
    for key, tensor in bare.items():
        layer = re.fullmatch(r"h\.(\d+)\.(.+)", key)
        if _MASKS.fullmatch(key) or key == "lm_head.weight":
            continue
        if layer and layer[2].startswith(("attn.c_attn.", "attn.c_proj.weight")):
            for name, part in _attention(key, layer[2], tensor, n_heads).items():
                ours[f"blocks.{layer[1]}.attn.{name}"] = part
        elif layer and layer[2] in _BLOCK:
            ours[f"blocks.{layer[1]}.{_BLOCK[layer[2]]}"] = tensor
        else:
            ours[_OUTSIDE.get(key, key)] = tensor
    head = bare.get("lm_head.weight", bare.get("wte.weight"))
    if head is not None:
        ours["unembed.W_U"] = head.T
        ours["unembed.b_U"] = torch.zeros(head.shape[0], dtype=head.dtype, device=head.device)
    return ours


def to_hugging_face(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """TransformerLens weights under the names of GPT2LMHeadModel, the head not tied; takes them out of the state.

    The inverse of `from_hugging_face`, bit for bit. Raises WeightsError for what has no place there, such as b_U.
    """
    names = {ours: theirs for theirs, ours in _OUTSIDE.items()}
    block_names = {ours: theirs for theirs, ours in _BLOCK.items()}
    theirs: dict[str, Tensor] = {}
    for key in list(state):
        layer = re.fullmatch(r"blocks\.(\d+)\.(.+)", key)
        prefix = f"transformer.h.{layer[1]}." if layer else "transformer."
        if key == "unembed.W_U":
            theirs["lm_head.weight"] = state.pop(key).T
        elif key in names:
            theirs[prefix + names[key]] = state.pop(key)
        elif layer and layer[2] in block_names:
            theirs[prefix + block_names[layer[2]]] = state.pop(key)
        elif layer and layer[2] == "attn.W_O":
            theirs[f"{prefix}attn.c_proj.weight"] = einops.rearrange(state.pop(key), "h d m -> (h d) m")
        elif layer and layer[2] == "attn.W_Q":
            parts = [state.pop(f"blocks.{layer[1]}.attn.W_{each}") for each in "QKV"]
            theirs[f"{prefix}attn.c_attn.weight"] = einops.rearrange(parts, "three h m d -> m (three h d)")
        elif layer and layer[2] == "attn.b_Q":
            parts = [state.pop(f"blocks.{layer[1]}.attn.b_{each}") for each in "QKV"]
            theirs[f"{prefix}attn.c_attn.bias"] = einops.rearrange(parts, "three h d -> (three h d)")
    if state:
        raise WeightsError(f"Hugging Face's GPT-2 has no place for {', '.join(f'`{key}`' for key in state)}")
    return theirs


def _attention(key: str, part: str, tensor: Tensor, heads: int) -> dict[str, Tensor]:
    try:
        if part == "attn.c_attn.weight":
            q, k, v = einops.rearrange(tensor, "m (three h d) -> three h m d", three=3, h=heads)
            return {"W_Q": q, "W_K": k, "W_V": v}
        if part == "attn.c_attn.bias":
            q, k, v = einops.rearrange(tensor, "(three h d) -> three h d", three=3, h=heads)
            return {"b_Q": q, "b_K": k, "b_V": v}
        return {"W_O": einops.rearrange(tensor, "(h d) m -> h d m", h=heads)}
    except einops.EinopsError:
        raise WeightsError(
            f"`{key}` has shape {tuple(tensor.shape)}, which is none of {heads} heads' q, k and v",
            "give the sizes of the weights with `--model` or `--set`, such as `--set n_heads=2`",
        ) from None
