"""What an activation is on the way to its value: scores before they are masked, a variance before its root."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from shapetrace.divergence.alignment import DIFFERS, Aligned, matches_of, nearest
from shapetrace.divergence.definitions import Definition, normalise, score, spread
from shapetrace.divergence.fitting import distance
from shapetrace.divergence.names import is_called
from shapetrace.divergence.tolerance import Tolerance
from shapetrace.divergence.values import Values


def stages_of(definition: Definition, original: Definition | None = None) -> dict[str, Definition]:
    """The steps that code may give a name to, the earliest first: each in words, and how it is computed.

    original: of an edited definition what it was before: its factor, which is what the scores are divided by at last.
    """
    function = definition.function
    if function is score:
        factor = (original or definition).settings["factor"]
        whole = definition.with_settings(visible=torch.ones_like(definition.settings["visible"]))
        divided = f"the division by sqrt(d_head) = {1 / factor:.4g}"
        return {
            f"before the mask and {divided}": whole.with_settings(factor=definition.settings["factor"] / factor),
            f"before {divided}": definition.with_settings(factor=definition.settings["factor"] / factor),
            "before the mask": whole,
        }
    if original is not None and original.function is spread and function is not spread:
        square, eps = definition.followed_by(torch.square), original.settings["eps"]
        return {
            "the variance, before eps and the root": square.followed_by(lambda each: each - eps),
            "the variance and eps, before the root": square,
        }
    if function is spread:
        square = definition.with_settings(place="without a root")
        return {
            "the variance, before eps and the root": square.with_settings(eps=0.0),
            "the variance and eps, before the root": square,
        }
    if function is normalise:
        return {
            "the mean that is taken off": replace(definition, function=_take_mean, axes="b p 1"),
            "before the division by the spread": definition.with_operand("scale", change=torch.ones_like),
        }
    if "bias" in definition.operands:
        return {"before the bias is added": definition.with_operand("bias", change=torch.zeros_like)}
    return {}


def _take_mean(x: Tensor, scale: Tensor, *, axis: int = -1, centred: bool = True) -> Tensor:
    return x.mean(axis, keepdim=True) if centred else x.new_zeros(()).expand(scale.shape)


def completions(definition: Definition, yours: Tensor) -> Iterator[Tensor]:
    """The activation that a tensor of yours, in its shape, is or becomes, if what it lacks is done right."""
    yield yours
    if definition.function is score:
        visible = definition.settings["visible"]
        for scores in (yours, yours * definition.settings["factor"]):
            yield scores
            yield scores.masked_fill(~visible, -math.inf)
    elif definition.function is spread and (yours >= 0).all():
        yield (yours + definition.settings["eps"]).sqrt()


def note_stages(aligned: Mapping[str, Aligned], values: Values, tolerance: Tolerance) -> dict[str, Aligned]:
    """Where what has an activation's name is a step towards it, and right as that: measured as that."""
    used = {*matches_of(aligned.values())}
    return {name: _at_stage(each, used, values, tolerance.of(name)) or each for name, each in aligned.items()}


def _at_stage(each: Aligned, used: set[int], values: Values, limit: float) -> Aligned | None:
    if each.state != DIFFERS or each.seen is None:
        return None
    free = [seen for seen in each.candidates if id(seen.value) not in used]
    named = [seen for seen in free if is_called(seen.record.name, each.definition.tensor)]
    steps = [find_stage(each.definition, seen.value, values, limit) for seen in (each.seen, *named)]
    found = steps[0]
    if found is None or not all(steps) or "bias" in each.definition.operands:  # which may never come
        return None
    words, reference = found
    difference, arranged = nearest(each.seen.value, reference, limit, each.definition)
    return replace(each, yours=arranged, difference=difference, stage=words)


def find_stage(definition: Definition, yours: Tensor, values: Values, limit: float) -> tuple[str, Tensor] | None:
    """The step towards an activation that a tensor of yours is, in words, and the reference's values there."""
    for words, step in stages_of(definition).items():
        reference = step.evaluate(values)
        if distance(reference, yours, step) <= limit:
            return words, reference
    return None


def factor_between(yours: Tensor, reference: Tensor, limit: float) -> float | None:
    """The number that the reference is to be multiplied by to give yours, where there is one."""
    known = yours.isfinite() & reference.isfinite()
    mine, theirs = yours[known].double(), reference[known].double()
    squares = float(theirs.square().sum())
    if not squares:
        return None
    factor = float((mine * theirs).sum()) / squares
    left_over = float((mine - factor * theirs).abs().max())
    scale = abs(factor) * float(theirs.abs().max())
    return factor if scale and left_over <= limit * scale and math.isfinite(factor) else None
