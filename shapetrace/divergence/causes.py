"""Why a tensor differs, as far as it can be told for certain."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shapetrace.divergence.alignment import Aligned
from shapetrace.report import Cause, KeyReport

# The parameters that go into a tensor, by its name and theirs in TransformerLens.
_MADE_WITH = {
    **{each: (f"W_{each.upper()}", f"b_{each.upper()}") for each in "qkv"},
    "attn_out": ("W_O", "b_O"),
    "pre": ("W_in", "b_in"),
    "mlp_out": ("W_out", "b_out"),
    "embed": ("W_E",),
    "pos_embed": ("W_pos",),
    "out": ("w", "b", "W_U", "b_U"),
}


def explain(found: Aligned, keys: KeyReport) -> Cause:
    """The cause of a divergence; `unknown`, with the plain figures, where none is certain."""
    owner = found.row.yours.rpartition(".")[0]
    needed = [f"{owner}.{name}" for name in _MADE_WITH.get(found.row.tensor, ())]
    if [name for name in needed if name in keys.unexpected]:
        names = [name for name in keys.missing if name.rpartition(".")[0] == owner]
        if names:
            return Cause("weights", f"{_list(names)} never loaded: the reference has no tensor of that name.")
    names = [name for name in needed if any(each.startswith(f"{name}:") for each in keys.mismatched)]
    if names:
        return Cause("weights", f"{_list(names)} never loaded: the shape is not the reference's.")
    names = [name for name in needed if name in keys.different]
    if names:
        return Cause("weights", f"{' and '.join(f'`{name}`' for name in names)}: other values than the reference's.")
    if found.yours is None:
        return Cause("unknown", "Yours returned no tensor.")
    if found.yours.shape != found.reference.shape:
        shapes = tuple(found.yours.shape), tuple(found.reference.shape)
        return Cause("unknown", f"Its shape is {shapes[0]}, the reference's is {shapes[1]}.")
    return Cause("unknown", _figures(found.yours, found.reference, found.visible))


def _list(names: list[str]) -> str:
    return " and ".join(f"`{name}`" for name in names) + (" were" if names[1:] else " was")


def _figures(yours: Tensor, reference: Tensor, visible: Tensor | None) -> str:
    apart = (yours.double() - reference.double()).abs().nan_to_num(math.inf, math.inf)
    apart[(yours == reference) | (yours.isnan() & reference.isnan())] = 0.0
    if visible is not None:
        apart[~visible.expand_as(apart)] = 0.0
    worst = tuple(int(index) for index in torch.unravel_index(apart.argmax(), apart.shape))
    return f"Furthest apart at {list(worst)}: yours {yours[worst].item():.6g}, reference {reference[worst].item():.6g}."
