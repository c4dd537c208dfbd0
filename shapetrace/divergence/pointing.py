"""Which tensor and line of yours a verdict points at: the first that shows what is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from shapetrace.divergence.alignment import Aligned, matches_of
from shapetrace.divergence.causes import Explanation
from shapetrace.divergence.definitions import Definition
from shapetrace.divergence.fitting import Fit, distance
from shapetrace.divergence.lines import locate_use
from shapetrace.divergence.observation import Observation, Observed, is_within
from shapetrace.divergence.places import Places
from shapetrace.divergence.stages import stages_of
from shapetrace.divergence.tolerance import is_hidden, measure
from shapetrace.divergence.values import Values
from shapetrace.divergence.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Pointed:
    """A tensor of yours, the activation beside it, and the reference's values there."""

    aligned: Aligned
    seen: Observed
    reference: Tensor
    axes: str
    stage: str = ""  # the step towards the activation that both are at


class Pointer:
    """Finds it in one run."""

    def __init__(
        self, aligned: Mapping[str, Aligned], values: Values, run: Observation, places: Places, right: frozenset[str]
    ):
        """right: the modules of yours that are right when they are fed the reference's input."""
        self._aligned = aligned
        self._values = values
        self._run = run
        self._places = places
        self._right = right
        self._matches = matches_of(aligned.values())

    def point(self, verdict: Verdict, limit: float) -> Pointed | None:
        """None where nothing of yours shows it.

        A module that is right by itself is not to blame: then it is what it was given, or that it was given that.
        """
        if verdict.seen is None:
            return None
        each = verdict.aligned
        pointed = Pointed(each, verdict.seen, each.reference, each.definition.axes)
        if verdict.explanation is not None:
            pointed = self._earliest(verdict.explanation, limit) or pointed
        scope = self._places.scopes[pointed.aligned.name]
        seen = locate_use(self._run, pointed.seen, pointed.aligned.definition, scope, self._matches)
        edited = self._aligned[verdict.explanation.fit.definition.name] if verdict.explanation else each
        if edited.later is not None and edited is not each:  # right when a module returned it, and not where it is used
            return replace(pointed, seen=seen.at_call(self._run.in_source(edited.later, scope).record.source))
        innocent = [path for path in self._right if is_within(seen.module, path) and path in self._run.inputs]
        if not innocent:
            return replace(pointed, seen=seen)
        outermost = min(innocent, key=len)
        given = self._run.given_before(seen, outermost)
        name = self._places.given_to(outermost)
        if verdict.explanation is None and name and id(given.value) not in self._matches:
            each = self._aligned[name]
            scope = self._places.scopes[name]
            return Pointed(each, self._run.in_source(given, scope), each.reference, each.definition.axes)
        return replace(pointed, seen=seen.at_call(given.site))

    def _earliest(self, explanation: Explanation, limit: float) -> Pointed | None:
        """The first tensor that is as the edit says, be it a step before the activation that was explained."""
        order = [*self._aligned]
        for name in order[: order.index(explanation.aligned.name) + 1]:
            if name not in explanation.fit.definitions:
                continue
            each = self._aligned[name]
            scope = self._run.around(self._places.scopes[name])
            tensors = [seen for seen in self._run.within(scope) if id(seen.value) not in self._matches]
            if explanation.seen in tensors:
                tensors = tensors[: tensors.index(explanation.seen)]
            steps = self._steps(each.definition, explanation.fit, limit)
            for seen in tensors:
                for words, step, wrong, right in steps:
                    if seen.value.is_floating_point() and _gap(seen.value, wrong, step) <= limit:
                        return Pointed(each, seen, right, step.axes, words)
        return None

    def _steps(self, right: Definition, edit: Fit, limit: float) -> list[tuple[str, Definition, Tensor, Tensor]]:
        """The steps that the edit makes wrong: words, definition, what the edit makes of it, and what is right."""
        edited = edit.definitions[right.name]
        steps, wrong = stages_of(right) | {"": right}, stages_of(edited, right) | {"": edited}
        values = {words: step.evaluate(self._values) for words, step in steps.items()}
        found = []
        for words in (each for each in steps if each in wrong):
            value = wrong[words].evaluate(self._values)
            # Scores that are not masked yet are no sign of a wrong mask; that the division is missing shows at once.
            alike = values.values() if edit.edit.kind == "mask" else (values[words],)
            if not any(measure(value, each, limit).ok for each in alike):
                found.append((words, steps[words], value, values[words]))
        return found


def _gap(yours: Tensor, wrong: Tensor, step: Definition) -> float:
    """As it lies where the shapes are equal: else what is transposed would be like what is not."""
    if yours.shape != wrong.shape:
        return distance(wrong, yours, step)
    visible = wrong > -math.inf
    is_alike = bool(visible.all()) or is_hidden(yours, ~visible)
    return measure(yours, wrong, 0.0, visible).relative if is_alike else math.inf
