"""Why a tensor differs, as far as it can be told for certain."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shapetrace.divergence.alignment import Aligned
from shapetrace.report import Cause, KeyReport


def explain(found: Aligned, keys: KeyReport) -> Cause:
    """The cause of a divergence; `unknown`, with the plain figures, where none is certain."""
    owner = found.row.yours.rpartition(".")[0]
    for names, one, several in (
        (keys.missing, "was never loaded: the reference has no tensor of that name", "were never loaded"),
        (
            tuple(each.partition(":")[0] for each in keys.mismatched),
            "was never loaded: its shape is not the reference's",
            "were never loaded: their shapes are not the reference's",
        ),
        (keys.different, "holds other values than the reference's", "hold other values than the reference's"),
    ):
        below = [name for name in names if name.rpartition(".")[0] == owner]
        if below:
            return Cause("weights", f"{' and '.join(f'`{name}`' for name in below)} {several if below[1:] else one}.")
    if found.yours is None:
        return Cause("unknown", "Yours returned no tensor.")
    if found.yours.shape != found.reference.shape:
        shapes = tuple(found.yours.shape), tuple(found.reference.shape)
        return Cause("unknown", f"Its shape is {shapes[0]}, the reference's is {shapes[1]}.")
    return Cause("unknown", _figures(found.yours, found.reference, found.visible))


def _figures(yours: Tensor, reference: Tensor, visible: Tensor | None) -> str:
    apart = (yours.double() - reference.double()).abs().nan_to_num(math.inf, math.inf)
    apart[(yours == reference) | (yours.isnan() & reference.isnan())] = 0.0
    if visible is not None:
        apart[~visible.expand_as(apart)] = 0.0
    worst = tuple(int(index) for index in torch.unravel_index(apart.argmax(), apart.shape))
    return f"Furthest apart at {list(worst)}: yours {yours[worst].item():.6g}, reference {reference[worst].item():.6g}."
