"""Why a tensor differs, as far as it can be told for certain."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shapetrace.report import Cause, KeyReport, TensorRow


def explain(row: TensorRow, keys: KeyReport, yours: Tensor, reference: Tensor) -> Cause:
    """The cause of a divergence; `unknown`, with the plain figures, where none is certain."""
    owner = row.yours.rpartition(".")[0]
    for names, what in (
        (keys.missing, "was never loaded: the reference has no tensor of that name"),
        (
            tuple(each.partition(":")[0] for each in keys.mismatched),
            "was never loaded: its shape is not the reference's",
        ),
        (keys.different, "holds other values than the reference's"),
    ):
        below = [name for name in names if name.rpartition(".")[0] == owner]
        if below:
            return Cause("weights", f"{' and '.join(f'`{name}`' for name in below)} {what}.")
    if yours.shape != reference.shape:
        return Cause("unknown", f"Its shape is {tuple(yours.shape)}, the reference's is {tuple(reference.shape)}.")
    return Cause("unknown", _figures(yours, reference))


def _figures(yours: Tensor, reference: Tensor) -> str:
    apart = (yours.double() - reference.double()).abs().nan_to_num(math.inf, math.inf)
    apart[(yours == reference) | (yours.isnan() & reference.isnan())] = 0.0
    worst = tuple(int(index) for index in torch.unravel_index(apart.argmax(), apart.shape))
    return f"Furthest apart at {list(worst)}: yours {yours[worst].item():.6g}, reference {reference[worst].item():.6g}."
