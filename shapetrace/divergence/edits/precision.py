"""Numbers of fewer digits."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from shapetrace.divergence.definitions import Change
from shapetrace.divergence.edits.edit import Edit, Site, fixed, short

_NARROW = {torch.bfloat16: "bfloat16", torch.float16: "float16"}


def edit_precision(site: Site) -> Iterator[Edit]:
    """One operand, all of them, or the result rounded to a narrower dtype."""
    definition = site.definition
    own = short(definition.name)
    for dtype, name in _NARROW.items():
        rounded = rounding_to(dtype)
        yield fixed("precision", definition.followed_by(rounded), f"{own} is rounded to {name}.", 3)
        everything = definition
        for role, operand in definition.operands.items():
            if site.values(operand.name).is_floating_point():
                words = f"{short(operand.name)} is rounded to {name} before {own} is computed."
                yield fixed("precision", definition.with_operand(role, change=rounded), words, 3)
                everything = everything.with_operand(role, change=rounded)
        yield fixed("precision", everything, f"{own} is computed from what was rounded to {name}.", 3)


def rounding_to(dtype: torch.dtype) -> Change:
    return lambda each: each.to(dtype).double()


def narrow_dtype(yours: Tensor, reference: Tensor) -> str:
    """The narrower dtype whose rounding alone tells yours from the reference; "" where it is more than that."""
    finite = reference.isfinite()
    if not torch.equal(finite, yours.isfinite()) or not finite.any():
        return ""
    mine, theirs = yours[finite].double(), reference[finite].double()
    for dtype, name in _NARROW.items():
        rounding = 8 * torch.finfo(dtype).eps * float(theirs.abs().max())
        exact = yours.dtype == dtype or torch.equal(rounding_to(dtype)(mine), mine)
        if exact and float((mine - theirs).abs().max()) <= rounding:
            return name
    return ""
