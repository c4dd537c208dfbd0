"""Why a tensor differs: the edit of its definition, or of one that it comes from, that gives yours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from torch import Tensor

from shapetrace.divergence.alignment import MATCHED, Aligned
from shapetrace.divergence.arrangements import arrangements
from shapetrace.divergence.definitions import Definition
from shapetrace.divergence.edits import Edit, Site, edits_at
from shapetrace.divergence.edits.precision import narrow_dtype
from shapetrace.divergence.fitting import Fit, distance, fit
from shapetrace.divergence.flow import ancestors, readers_of
from shapetrace.divergence.observation import Observed
from shapetrace.divergence.stages import completions
from shapetrace.divergence.tolerance import find_worst
from shapetrace.divergence.values import Values
from shapetrace.gpt2.config import Config
from shapetrace.report import Cause

STRONGLY, WEAKLY = 2, 1  # up to what a module returns; up to some tensor before that
_ARRANGEMENTS = 4  # of a tensor, where axes of one size leave several
_FURTHEST = 6  # activations between an edit and the tensor that shows it


@dataclass(frozen=True, slots=True)
class Explanation:
    """An activation, the tensor of yours that stands for it, and the edit that gives it."""

    aligned: Aligned
    seen: Observed
    fit: Fit
    confirmed: int  # what is computed from it is as the edit says, too: STRONGLY, WEAKLY or not at all, 0


class Explainer:
    """Tries edits on one run."""

    def __init__(
        self,
        aligned: Mapping[str, Aligned],
        values: Values,
        config: Config,
        limit: float,
        zero: frozenset[str] = frozenset(),
        unloaded: Mapping[str, str] | None = None,
    ):
        self._aligned = aligned
        self._values = values
        self._config = config
        self._readers = readers_of(values.definitions)
        self._zero = zero
        self._unloaded = unloaded or {}
        # What is left over has to be rounding, and how much that is here the tensors that match tell.
        worst = max(
            (e.difference.relative for e in aligned.values() if e.state == MATCHED and e.difference), default=0.0
        )
        self.limit = min(limit, max(20 * worst, limit / 25))

    def explain(self, name: str, open_names: Sequence[str], after: Sequence[Explanation] = ()) -> Explanation | None:
        """The cheapest edit that gives a tensor of yours that may stand for the activation.

        One that what is computed from it confirms comes before a cheaper one that it does not. An edit of what the
        activation comes from, not seen itself, costs one more. `after` are explanations that hold already: of two
        mistakes in a row, the second shows only where the first is made too.
        """
        base = {key: value for each in after for key, value in each.fit.definitions.items()}
        target = self._aligned[name]
        places = [name, *ancestors(name, self._values.definitions, set(open_names))][: _FURTHEST + 1]
        trials = [
            (edit.cost + (1 if far else 0), order, far, edit, seen)
            for order, seen in enumerate((target.later,) if target.later else target.candidates)
            for far, place in enumerate(places)
            for edit in self._edits(place, target, seen)
        ]
        found: list[tuple[int, int, float, Explanation]] = []
        for cost, group in groupby(sorted(trials, key=lambda each: each[:3]), key=lambda each: each[0]):
            for _, _, _, edit, seen in group:
                each = self._try(edit, target, seen.value, base)
                if each is not None:
                    confirmed = self._confirm({**base, **each.definitions}, name, seen)
                    found.append((-confirmed, cost, each.left_over, Explanation(target, seen, each, confirmed)))
            if any(each[3].confirmed == STRONGLY for each in found):
                break
        best = min(found, key=lambda each: each[:3], default=None)
        return best[3] if best else None

    def agree_on(self, explanations: Sequence[Explanation], name: str) -> bool:
        """Whether these edits together give a tensor of yours that may stand for the activation."""
        edited = {key: value for each in explanations for key, value in each.fit.definitions.items()}
        target = self._aligned[name]
        values = [each.value for each in target.candidates]
        return self._gap(edited, target, values) <= 20 * self.limit

    def _edits(self, place: str, target: Aligned, seen: Observed) -> Iterator[Edit]:
        arranged = next(arrangements(seen.value, tuple(target.reference.shape)), None)
        yours = None if arranged is None else arranged.double()
        definition = self._values.definitions[place]
        return edits_at(Site(definition, self._values, self._config, self._zero, self._unloaded, yours, target.name))

    def _try(self, edit: Edit, target: Aligned, yours: Tensor, base: Mapping[str, Definition]) -> Fit | None:
        try:
            each = fit(edit, target.definition, yours, self._values, self.limit, base)
        except (RuntimeError, IndexError):  # an edit that these shapes do not allow
            return None
        is_idle = each is not None and self._gap({**base, **each.definitions}, target, [target.reference]) <= self.limit
        return None if is_idle else each

    def _gap(self, edited: Mapping[str, Definition], target: Aligned, values: Sequence[Tensor]) -> float:
        """How far the nearest of the values is from what the target is with these definitions."""
        try:
            computed = self._values.replay(edited, target.name)
        except (RuntimeError, IndexError):
            return math.inf
        return min((distance(computed, each, target.definition) for each in values), default=math.inf)

    def carrier(self, name: str) -> Observed | None:
        """The tensor of yours that stands for the activation for certain: what comes next is computed from it."""
        target = self._aligned[name]
        if target.stage:
            return None  # right so far
        for seen in (target.later,) if target.later else target.candidates:
            shape = tuple(target.reference.shape)
            # Where two axes are of one size, what is transposed later would be like this.
            same = [seen.value] if tuple(seen.value.shape) == shape else arrangements(seen.value, shape)
            for arranged in islice(same, _ARRANGEMENTS):
                for whole in completions(target.definition, arranged.double()):
                    held = Definition(name, target.definition.axes, whole.clone, {})
                    if self._readers.get(name) and self._confirm({name: held}, name, seen, alone=0):
                        return seen
        return None

    def _confirm(self, edited: Mapping[str, Definition], name: str, but: Observed, alone: int = STRONGLY) -> int:
        """Whether the next tensors that are seen, but the one that the edit was found in, are what it makes them.

        It is asked of all up to what a module returns.

        One with a fitting name only may be something on the way, and then those after it tell. `alone` is the answer
        where nothing is seen after it.
        """
        frontier, done = list(self._readers.get(name, ())), set()
        strength, seen_any = 0, False
        for reader in frontier:
            if reader in done:
                continue
            done.add(reader)
            aligned = self._aligned[reader]
            is_matched = aligned.state == MATCHED and aligned.yours is not None
            shown = [aligned.yours] if is_matched else [every.value for every in aligned.candidates]
            shown = [value for value in shown if value is not but.value]
            if shown:
                seen_any = True
                near = self._gap(edited, aligned, [each for each in shown if each is not None]) <= 20 * self.limit
                if is_matched or aligned.is_placed:
                    return STRONGLY if near else strength
                strength = WEAKLY if near else strength
            frontier += self._readers.get(reader, ())
        return strength if seen_any else alone

    def cause_of(self, found: Explanation) -> Cause:
        """In words, with the number that was found."""
        edit, at = found.fit.edit, found.fit.definition.name
        words = edit.words(found.fit.number)
        return Cause(
            edit.kind,
            words[:1].upper() + words[1:],
            found.fit.number if edit.starts else None,
            edit.tensor or None,
            at if at != found.aligned.name else None,
        )

    def same_as(self, aligned: Aligned) -> str:
        """The activation, another one, that has the values of what stands beside this one; "" where none has."""
        if aligned.yours is None:
            return ""
        for name, each in self._aligned.items():
            alike = name != aligned.name and each.definition.axes == aligned.definition.axes
            if alike and self._gap({}, each, [aligned.yours]) <= 20 * self.limit:
                return name
        return ""

    def unexplained(self, aligned: Aligned, yours: Tensor) -> Cause:
        """What can be said without an edit: a parameter that was never loaded, rounding, or the plain figures."""
        for name in aligned.definition.reads():
            if name in self._unloaded:
                return Cause("weights", self._unloaded[name])
        reference = aligned.reference
        if yours.shape != reference.shape:
            told = f"Its shape is {tuple(yours.shape)}, the reference's is {tuple(reference.shape)}."
            longer = aligned.name == "hook_embed" and yours.ndim == reference.ndim
            return Cause("unknown", told + (" Are the token ids those that were given?" if longer else ""))
        dtype = narrow_dtype(yours, reference)
        if dtype:
            return Cause("precision", f"Yours has the precision of {dtype}: it differs by its rounding only.")
        at = find_worst(yours, reference, 1)[0]
        return Cause(
            "unknown",
            f"Furthest apart at {list(at)}: yours {yours[at].item():.6g}, reference {reference[at].item():.6g}.",
        )
