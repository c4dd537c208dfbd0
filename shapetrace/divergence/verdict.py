"""Which tensor is wrong first: the one from which the logits never recover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shapetrace.divergence.alignment import DIFFERS, Aligned
from shapetrace.divergence.causes import Explainer, Explanation
from shapetrace.divergence.confirmation import STRONGLY, WHOLLY
from shapetrace.divergence.observation import Observed
from shapetrace.report import Cause

_FURTHER = 4  # tensors looked at after the one that is wrong


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first wrong activation, and the tensor of yours that shows it."""

    aligned: Aligned
    seen: Observed | None
    explanation: Explanation | None = None
    cause: Cause | None = None  # where it is no edit


def find_first(
    aligned: Mapping[str, Aligned],
    open_names: Sequence[str],
    readers: Mapping[str, Sequence[str]],
    explainer: Explainer,
) -> Verdict | None:
    """The first open activation that is seen to be wrong, with the edit that explains it where one does.

    A tensor that merely has a fitting name may be something on the way, such as scores that are not divided yet: an
    explanation that later tensors confirm comes before one that they do not, and before none. What a module was given
    or returned is certain, and ends the search. An activation that matches, and whose name was then bound to something
    else, is looked at where what is computed from it is wrong.
    """
    evidence = _Evidence()
    further = _FURTHER
    stream: Aligned | None = None
    for name, each in aligned.items():
        rebound = each.later is not None and any(reader in open_names for reader in readers.get(name, ()))
        if not rebound and (name not in open_names or not each.candidates):
            continue
        if rebound and "ln_final.hook_scale" in readers[name]:
            stream = each  # right when the last block returned it: what the last norm was given is told there
            continue
        explanation = explainer.explain(name, open_names)
        if explanation is not None and _is_beyond_doubt(explanation) and evidence.allows(explanation, explainer):
            return _verdict_of(explanation)
        if evidence.certain is None:
            evidence.weigh(each, rebound, explanation, explainer, open_names)
        else:
            # What is wrong is known; that a later tensor is, and this one on the way to it, would be told wholly.
            further -= 1
        if not further or (each.is_placed and evidence.is_settled(each)):
            break
    verdict = evidence.verdict()
    if stream is not None and (verdict is None or verdict.explanation is None):
        return Verdict(stream, stream.later)
    return verdict or _no_logits(aligned, open_names)


@dataclass(slots=True)
class _Evidence:
    """What was found out as long as no explanation is beyond doubt."""

    certain: Verdict | None = None
    misshapen: Aligned | None = None  # it has the name, and a shape that it cannot have
    explained: list[Explanation] = field(default_factory=list)
    seen_wrong: list[Aligned] = field(default_factory=list)

    def weigh(
        self,
        each: Aligned,
        rebound: bool,
        explanation: Explanation | None,
        explainer: Explainer,
        open_names: Sequence[str],
    ) -> None:
        """Take in one more activation that may be the first wrong one."""
        if explanation is not None and explanation.confirmed == STRONGLY:
            self.certain = _verdict_of(explanation)
            return
        if self.explained:
            # Each explanation is right by itself: what comes next may take several of them together, or one after them.
            second = explainer.explain(each.name, open_names, self.explained)
            follows = second is not None and second.confirmed >= STRONGLY
            if follows or explainer.agree_on(self.explained, each.name):
                self.certain = _verdict_of(self.explained[0])
                return
        carrier = explainer.carrier(each.name)
        if carrier is not None:
            is_explained = explanation is not None and explanation.seen is carrier and explanation.confirmed
            self.certain = Verdict(each, carrier, explanation if is_explained else None)
            return
        if each.state == DIFFERS and not each.fits and self.misshapen is None:
            self.misshapen = each
        if explanation is not None:
            self.explained.append(explanation)
        if each.is_placed or (each.state == DIFFERS and not rebound and not each.stage):
            self.seen_wrong.append(each)

    def allows(self, later: Explanation, explainer: Explainer) -> bool:
        """Whether a later explanation leaves nothing open of what speaks against the best one so far."""
        best = self.certain.explanation if self.certain else None
        return best is None or explainer.accounts_for(later, best)

    def is_settled(self, placed: Aligned) -> bool:
        """Whether what a module was given or returned ends the search.

        It does not where the best explanation leaves out what is wrong on another way: one mistake further on may tell
        all. Nor where a module was given something else than its neighbours, and no more is known.
        """
        if self.certain is None:
            return placed.candidates[:1] == () or placed.candidates[0].record.role != "input"
        best = self.certain.explanation
        return best is None or best.confirmed != STRONGLY

    def verdict(self) -> Verdict | None:
        """What is certain; else what some later tensor confirms; else what is in its place or has the name."""
        if self.misshapen is not None and (self.certain is None or self.certain.explanation is None):
            return Verdict(self.misshapen, self.misshapen.seen)
        if self.certain is not None:
            return self.certain
        for best in sorted(self.explained, key=lambda each: -min(each.confirmed, 1)):
            if best.confirmed or best.aligned in self.seen_wrong:
                return _verdict_of(best)
        return next((Verdict(first, first.later or first.seen) for first in self.seen_wrong), None)


def _is_beyond_doubt(explanation: Explanation) -> bool:
    """A right tensor in a wrong place may be there by another mistake, unless nothing speaks against this one."""
    return explanation.confirmed == WHOLLY or (explanation.confirmed == STRONGLY and not explanation.is_known)


def _verdict_of(explanation: Explanation) -> Verdict:
    return Verdict(explanation.aligned, explanation.seen, explanation)


def _no_logits(aligned: Mapping[str, Aligned], open_names: Sequence[str]) -> Verdict | None:
    """The logits, where they are wrong and nothing of yours stands for them."""
    logits = [*aligned.values()][-1]
    return Verdict(logits, None) if logits.name in open_names else None
