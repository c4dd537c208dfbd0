"""Whether an edited definition gives a tensor of yours, and the number in it that does so best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from shapetrace.divergence.arrangements import arrangements, at_last_position
from shapetrace.divergence.definitions import Definition
from shapetrace.divergence.edits import Edit
from shapetrace.divergence.tolerance import is_hidden, measure
from shapetrace.divergence.values import Values

_STEPS = 15


@dataclass(frozen=True, slots=True)
class Fit:
    """An edit at its best, and what is left over: the largest difference, relative to the tensor's largest value."""

    edit: Edit
    number: float
    left_over: float

    @property
    def definition(self) -> Definition:
        return self.edit.make(self.number)

    @property
    def definitions(self) -> dict[str, Definition]:
        return self.edit.definitions(self.number)


def fit(
    edit: Edit, target: Definition, yours: Tensor, values: Values, limit: float, base: Mapping[str, Definition]
) -> Fit | None:
    """The edit with the number that gives yours; None where none leaves rounding only.

    base: definitions that are taken to be edited already.
    """

    def replay(number: float) -> Tensor:
        return values.replay({**base, **edit.definitions(number)}, target.name)

    for start in edit.starts or (0.0,):
        for number in _numbers(edit, start, replay, target, yours):
            left_over = distance(replay(number), yours, target)
            is_nothing = edit.kind == "scale" and abs(number) < 1e-9  # 0 times is another edit: without it
            if left_over <= limit and not (edit.starts and is_nothing):
                return Fit(edit, number, left_over)
    return None


def distance(computed: Tensor, yours: Tensor, target: Definition) -> float:
    """How far yours is from what was computed, in the arrangement that fits best, relative to the scale."""
    shape = tuple(computed.shape)
    if target.tensor == "attn_scores":
        return min((_score_distance(each, computed) for each in arrangements(yours, shape)), default=math.inf)
    tried = []
    for wanted in _targets(computed, yours, target):
        tried += [_difference(each, wanted) for each in arrangements(yours, tuple(wanted.shape))]
    return min(tried, default=math.inf)


def _difference(yours: Tensor, computed: Tensor) -> float:
    largest = float((yours - computed).abs().max())
    if math.isfinite(largest):
        return largest / (float(computed.abs().max()) or 1.0)
    return measure(yours, computed, 0.0).relative


def _targets(computed: Tensor, yours: Tensor, target: Definition) -> list[Tensor]:
    if yours.numel() < computed.numel() and target.name.startswith(("ln_final", "unembed")) and computed.ndim == 3:
        return [computed, at_last_position(computed, target.axes)]
    return [computed]


def _score_distance(yours: Tensor, computed: Tensor) -> float:
    """Scores: what is visible has to agree; what is not has to be hidden in yours too."""
    visible = computed > -math.inf
    left_over = measure(yours, computed, 0.0, visible).relative
    if visible.all() or is_hidden(yours, ~visible):
        return left_over
    return math.inf


def _numbers(
    edit: Edit, start: float, replay: Callable[[float], Tensor], target: Definition, yours: Tensor
) -> Iterator[float]:
    """The number of the edit, for each arrangement of yours; 0 where there is none to find."""
    if not edit.starts:
        yield 0.0
        return
    for wanted in _targets(replay(start), yours, target):
        for arranged in arrangements(yours, tuple(wanted.shape)):
            number = _descend(replay, start, arranged.double())
            if number is not None:
                yield number


def _descend(replay: Callable[[float], Tensor], number: float, yours: Tensor) -> float | None:
    """The number that comes nearest, by Gauss-Newton steps with a numerical slope; None where they lead nowhere."""

    def compute(at: float) -> Tensor:
        computed = replay(at)
        return computed if computed.shape == yours.shape else computed[:, -1:]  # the last position

    before = math.inf
    for _ in range(_STEPS):
        computed = compute(number)
        # Float64 throughout: a step of 1e-6 of the number loses half of its digits, and leaves eight.
        width = 1e-6 * max(abs(number), 1e-6)
        slope = (compute(number + width) - computed) / width
        known = computed.isfinite() & yours.isfinite() & slope.isfinite()
        slopes, gap = slope[known], (yours - computed)[known]
        steepness, left_over = float(slopes.square().sum()), float(gap.square().sum())
        if not steepness or left_over > 0.9 * before:
            return number if left_over < 1e-8 * float(yours[known].square().sum()) else None
        before = left_over
        step = float((slopes * gap).sum()) / steepness
        number += step
        if not math.isfinite(number) or abs(number) > 1e6:
            return None
        if abs(step) <= 1e-9 * abs(number):
            break
    return number
