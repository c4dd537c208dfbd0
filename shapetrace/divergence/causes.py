"""Why a tensor differs: the edit of its definition, or of one that it comes from, that gives yours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from torch import Tensor

from shapetrace.divergence.alignment import MATCHED, Aligned
from shapetrace.divergence.arrangements import arrangements
from shapetrace.divergence.confirmation import WHOLLY, Confirmation
from shapetrace.divergence.definitions import Definition
from shapetrace.divergence.edits import Edit, Site, edits_at
from shapetrace.divergence.edits.precision import narrow_dtype
from shapetrace.divergence.fitting import Fit, fit
from shapetrace.divergence.flow import ancestors, readers_of
from shapetrace.divergence.observation import Observed
from shapetrace.divergence.stages import completions
from shapetrace.divergence.tolerance import find_worst
from shapetrace.divergence.values import Values
from shapetrace.gpt2.config import Config
from shapetrace.report import Cause

_ARRANGEMENTS = 4  # of a tensor, where axes of one size leave several
_FURTHEST = 6  # activations between an edit and the tensor that shows it


@dataclass(frozen=True, slots=True)
class Explanation:
    """An activation, the tensor of yours that stands for it, and the edit that gives it."""

    aligned: Aligned
    seen: Observed
    fit: Fit
    confirmed: int  # what is computed from it is as the edit says, too: WHOLLY, STRONGLY, WEAKLY or not at all, 0
    is_known: bool = False  # your tensor is another activation, a right one


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
        ran: tuple[int, ...] = (),
    ):
        self._aligned = aligned
        self._values = values
        self._config = config
        self._readers = readers_of(values.definitions)
        self._zero = zero
        self._unloaded = unloaded or {}
        self._ran = ran
        # A stream that was right when its block returned it, and something else when the last norm was given it.
        self._rebound = [
            name for name, each in aligned.items() if each.later is not None and name.endswith("hook_resid_post")
        ]
        self._names = frozenset(name for name, each in aligned.items() if each.state == MATCHED)
        self._matched = {id(every.value) for each in aligned.values() for every in each.alike}
        # What is left over has to be rounding, and how much that is here the tensors that match tell.
        worst = max(
            (e.difference.relative for e in aligned.values() if e.state == MATCHED and e.difference), default=0.0
        )
        self.limit = min(limit, max(20 * worst, limit / 25))
        self._confirmation = Confirmation(aligned, values, self.limit)

    def explain(self, name: str, open_names: Sequence[str], after: Sequence[Explanation] = ()) -> Explanation | None:
        """The cheapest edit that gives a tensor of yours that may stand for the activation.

        One that what is computed from it confirms comes before a cheaper one that it does not. An edit of what the
        activation comes from, not seen itself, costs one more. `after` are explanations that hold already: of two
        mistakes in a row, the second shows only where the first is made too.
        """
        base = {key: value for each in after for key, value in each.fit.definitions.items()}
        target = self._aligned[name]
        within = {*open_names, *(each for each in self._rebound if name.startswith("ln_final"))}
        places = [name, *ancestors(name, self._values.definitions, within)][: _FURTHEST + 1]
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
                confirmed = self._confirmation.strength({**base, **each.definitions}, name, seen) if each else 0
                if each is not None and (confirmed or self._may_stand(each, target, seen)):
                    explanation = Explanation(target, seen, each, confirmed, id(seen.value) in self._matched)
                    found.append((-confirmed, cost, each.left_over, explanation))
            if any(each[3].confirmed == WHOLLY for each in found):
                break
        best = min(found, key=lambda each: each[:3], default=None)
        return best[3] if best else None

    def agree_on(self, explanations: Sequence[Explanation], name: str) -> bool:
        """Whether these edits together give a tensor of yours that may stand for the activation."""
        edited = {key: value for each in explanations for key, value in each.fit.definitions.items()}
        target = self._aligned[name]
        return self._confirmation.is_near(edited, target, [each.value for each in target.candidates])

    def accounts_for(self, later: Explanation, earlier: Explanation) -> bool:
        """Whether the one makes right what comes of the activation that the other was found in."""
        return not self._confirmation.is_contradicted(later.fit.definitions, earlier.aligned.name, earlier.seen)

    def _edits(self, place: str, target: Aligned, seen: Observed) -> Iterator[Edit]:
        arranged = next(arrangements(seen.value, tuple(target.reference.shape)), None)
        yours = None if arranged is None else arranged.double()
        known = (self._values.definitions[place], self._values, self._config, self._zero, self._unloaded)
        return edits_at(Site(*known, yours, target.name, self._ran, self._names))

    def _try(self, edit: Edit, target: Aligned, yours: Tensor, base: Mapping[str, Definition]) -> Fit | None:
        try:
            each = fit(edit, target.definition, yours, self._values, self.limit, base)
        except (RuntimeError, IndexError):  # an edit that these shapes do not allow
            return None
        if each is None:
            return None
        left = self._confirmation.gap({**base, **each.definitions}, target, [target.reference])
        return each if left > self.limit else None  # an idle edit explains nothing

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
                    if self._readers.get(name) and self._confirmation.strength({name: held}, name, seen, alone=0):
                        return seen
        return None

    def _may_stand(self, each: Fit, target: Aligned, seen: Observed) -> bool:
        """Whether an edit that nothing confirms may be told.

        `att` may be the scores and then the pattern: that a right tensor, which has only the name of this one, is what
        it is says nothing. And what is said of several tensors must not be wrong of one.
        """
        is_certain = target.is_placed and seen is (target.later or target.candidates[0])
        if id(seen.value) in self._matched and not is_certain:
            return False
        return len(each.definitions) == 1 or not self._confirmation.is_contradicted(each.definitions, target.name, seen)

    def cause_of(self, found: Explanation) -> Cause:
        """In words, with the number that was found."""
        edit, at = found.fit.edit, found.fit.definition.name
        if (
            edit.kind == "missing-term" and edit.tensor in self._unloaded
        ):  # it is there, and holds what it was built with
            return Cause("weights", self._unloaded[edit.tensor], None, edit.tensor)
        words = edit.words(found.fit.number)
        return Cause(
            edit.kind,
            words[:1].upper() + words[1:],
            found.fit.number if edit.starts else None,
            edit.tensor or None,
            at if at != found.aligned.name else None,
        )

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
