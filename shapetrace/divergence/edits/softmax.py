"""How scores become the pattern: the softmax over another axis, of something else, or something else in its place."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from shapetrace.divergence.definitions import Change, Definition, score, take_softmax
from shapetrace.divergence.edits.edit import Edit, Site, fixed
from shapetrace.divergence.edits.numbers import write

_IN_PLACE: dict[str, Change] = {
    "sigmoid": torch.sigmoid,
    "ReLU": torch.relu,
    "exp, without dividing by the sum of the row": torch.exp,
    "log_softmax": lambda x: x.log_softmax(-1),
    "an exp that overflows (take the largest score of each row off before it)": lambda x: _overflowing(x),
    "the softmax, twice": lambda x: x.softmax(-1).softmax(-1),
    "softmax(-scores)": lambda x: (-x).masked_fill(x.isinf(), -math.inf).softmax(-1),
    "the scores divided by the sum of their row": lambda x: _zeroed(x) / _zeroed(x).sum(-1, keepdim=True),
    "the largest score alone, as argmax has it,": lambda x: (x == x.amax(-1, keepdim=True)).double(),
}
_AXES = ((-2, "queries"), (-3, "heads"), (-4, "the batch"))


def edit_softmax(site: Site) -> Iterator[Edit]:
    """The softmax over another axis, with a temperature, or something else in its place."""
    definition = site.definition
    if definition.function is not take_softmax:
        return
    for axis, word in _AXES:
        words = f"the pattern sums to 1 along axis {axis} ({word}); the softmax goes over keys, axis -1."
        yield fixed("axis", definition.with_settings(axis=axis), words)
        changed = definition.followed_by(_over_its_sum(axis))
        words = f"the pattern is divided by its sum along axis {axis} ({word}) after the softmax, which needs none."
        yield fixed("axis", changed, words, 2)
    yield Edit(
        "scale",
        lambda c: _of_scores(definition, lambda scores: (c * scores).softmax(-1)),
        lambda c: f"the softmax is taken of {write(c)} times the scores.",
        2,
        (1.5, 0.5),
    )
    for name, function in _IN_PLACE.items():
        words = f"the pattern is made with {name} in place of the softmax."
        yield fixed("nonlinearity", _of_scores(definition, function), words, 2)
        yield fixed("nonlinearity", _of_scores(definition, function).followed_by(_zeroed), words, 2)
    words = "the scores stand in for the pattern: the softmax is missing."
    yield fixed("nonlinearity", _of_scores(definition, lambda scores: scores), words)
    yield fixed("nonlinearity", _of_scores(definition, _zeroed), words)
    yield _late_scale(site)


def edit_late_mask(site: Site) -> Iterator[Edit]:
    """The mask applied to the pattern."""
    definition = site.definition
    if definition.function is not take_softmax:
        return
    scores = site.values.definitions[definition.operands["scores"].name]
    factor: float = scores.settings["factor"]
    visible: Tensor = scores.settings["visible"]
    everything = torch.ones_like(visible)

    def mask_after(q: Tensor, k: Tensor) -> Tensor:
        return score(q, k, factor=factor, visible=everything).softmax(-1) * visible

    def no_mask(q: Tensor, k: Tensor) -> Tensor:
        return score(q, k, factor=factor, visible=everything).softmax(-1)

    words = "the mask is applied after the softmax: set the scores of future keys to -inf before it."
    yield fixed("mask", Definition(definition.name, definition.axes, mask_after, scores.operands), words, 1)
    words = "the softmax takes the scores without the mask, so future keys receive attention."
    yield fixed("mask", Definition(definition.name, definition.axes, no_mask, scores.operands), words, 1)


def _late_scale(site: Site) -> Edit:
    """The division applied to the pattern."""
    definition = site.definition
    scores = site.values.definitions[definition.operands["scores"].name]
    factor: float = scores.settings["factor"]

    def scale_after(q: Tensor, k: Tensor) -> Tensor:
        return score(q, k, factor=1.0, visible=scores.settings["visible"]).softmax(-1) * factor

    words = "the pattern is divided by sqrt(d_head) after the softmax: divide the scores by it, before the softmax."
    return fixed("scale", Definition(definition.name, definition.axes, scale_after, scores.operands), words, 2)


def _of_scores(definition: Definition, function: Change) -> Definition:
    return Definition(definition.name, definition.axes, lambda scores: function(scores), definition.operands)


def _over_its_sum(axis: int) -> Change:
    return lambda pattern: pattern / pattern.sum(axis, keepdim=True)


def _zeroed(scores: Tensor) -> Tensor:
    """With 0 where nothing is seen."""
    return scores.masked_fill(scores.isinf(), 0)


def _overflowing(scores: Tensor) -> Tensor:
    powers = scores.float().exp()
    return (powers / powers.sum(-1, keepdim=True)).double()
