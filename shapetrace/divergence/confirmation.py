"""Whether what is computed from an edited activation is, in yours, what the edit makes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from torch import Tensor

from shapetrace.divergence.alignment import MATCHED, Aligned
from shapetrace.divergence.definitions import Definition
from shapetrace.divergence.fitting import distance
from shapetrace.divergence.flow import readers_of
from shapetrace.divergence.observation import Observed
from shapetrace.divergence.values import Values

# On every way that leads on; on one way, up to what a module returns; up to some tensor before that.
WHOLLY, STRONGLY, WEAKLY = 3, 2, 1


class Confirmation:
    """Asks the tensors of one run. limit: how far apart two of them may be, relative to the largest entry."""

    def __init__(self, aligned: Mapping[str, Aligned], values: Values, limit: float):
        self._aligned = aligned
        self._values = values
        self._readers = readers_of(values.definitions)
        self._limit = limit

    def gap(self, edited: Mapping[str, Definition], target: Aligned, values: Sequence[Tensor]) -> float:
        """How far the nearest of the values is from what the target is with these definitions."""
        try:
            computed = self._values.replay(edited, target.name)
        except (RuntimeError, IndexError):
            return math.inf
        return min((distance(computed, each, target.definition) for each in values), default=math.inf)

    def strength(
        self, edited: Mapping[str, Definition], name: str, but: Observed | None = None, alone: int = STRONGLY
    ) -> int:
        """How far the edits are confirmed after the activation, other than by the tensor that they were found in.

        A tensor with a fitting name only may be something on the way, and then those after it tell. Of several ways one
        is enough, for another may have a mistake of its own. `alone` is the answer where nothing is seen after it.
        """
        found, seen_any = 0, False
        for aligned, values, is_certain in self._next(self._readers.get(name, ()), but, ()):
            seen_any = True
            if not self.is_near(edited, aligned, values):
                continue
            if is_certain:
                return STRONGLY if self.is_contradicted(edited, name, but) else WHOLLY
            found = WEAKLY
        return found if seen_any else alone

    def is_contradicted(self, edited: Mapping[str, Definition], name: str, but: Observed | None = None) -> bool:
        """Whether on some way on from what was edited the next tensor that is certain is not what the edits make it.

        The stream is read by a sub-layer and by the sum after it: an edit that only one of them shows is none of it.
        """
        changed = [*edited, name]
        start = [*changed, *(reader for each in changed for reader in self._readers.get(each, ()))]
        return any(
            is_certain and not self.is_near(edited, aligned, values)
            for aligned, values, is_certain in self._next(start, but, (name,))
        )

    def is_near(self, edited: Mapping[str, Definition], aligned: Aligned, values: Sequence[Tensor]) -> bool:
        return self.gap(edited, aligned, values) <= 20 * self._limit

    def _next(
        self, names: Iterable[str], but: Observed | None, without: Iterable[str]
    ) -> Iterator[tuple[Aligned, list[Tensor], bool]]:
        """From these names on: what is seen, in yours, and whether it is certain; after that nothing is asked."""
        frontier, done = list(names), set(without)
        for name in frontier:
            if name in done:
                continue
            done.add(name)
            aligned = self._aligned[name]
            is_matched = aligned.state == MATCHED and aligned.yours is not None
            shown = [aligned.yours] if is_matched else [each.value for each in aligned.candidates]
            if is_matched and aligned.later is not None:
                shown.append(aligned.later.value)
            values = [each for each in shown if each is not None and (but is None or each is not but.value)]
            is_certain = bool(values) and (is_matched or aligned.is_placed)
            if values:
                yield aligned, values, is_certain
            if not is_certain:
                frontier += self._readers.get(name, ())
