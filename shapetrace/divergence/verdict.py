"""Which tensor is wrong first: the one from which the logits never recover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shapetrace.divergence.alignment import DIFFERS, Aligned
from shapetrace.divergence.causes import STRONGLY, Explainer, Explanation
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
    seen_wrong: list[Aligned] = []
    explained: list[Explanation] = []
    pending: list[Explanation] = []  # each right by itself; what comes next may take several of them together
    certain: Verdict | None = None
    misshapen: Aligned | None = None  # it has the name, and a shape that it cannot have
    further = _FURTHER
    for name, each in aligned.items():
        rebound = each.later is not None and any(reader in open_names for reader in readers.get(name, ()))
        if not rebound and (name not in open_names or not each.candidates):
            continue
        if certain is None and pending and explainer.agree_on(pending, name):
            certain = Verdict(pending[0].aligned, pending[0].seen, pending[0])
        explanation = explainer.explain(name, open_names)
        if explanation is not None and explanation.confirmed == STRONGLY:
            return Verdict(each, explanation.seen, explanation)
        carrier = explainer.carrier(name) if certain is None else None
        if carrier is not None:
            is_explained = explanation is not None and explanation.seen is carrier
            certain = Verdict(each, carrier, explanation if is_explained else None)
        if certain is not None:
            # What is wrong is known; that a later tensor is, and this one on the way to it, would be told strongly.
            further -= 1
            if each.is_placed or not further:
                break
            continue
        if each.state == DIFFERS and not each.fits and misshapen is None:
            misshapen = each
        if explanation is not None:
            pending.append(explanation)
        if rebound and not each.is_placed:
            continue
        if explanation is not None:
            explained.append(explanation)
        if rebound or each.state == DIFFERS:
            seen_wrong.append(each)
        if each.is_placed:
            break
    if misshapen is not None and (certain is None or certain.explanation is None):
        return Verdict(misshapen, misshapen.seen)
    return certain or _likeliest(pending, explained, seen_wrong) or _no_logits(aligned, open_names)


def _likeliest(
    pending: Sequence[Explanation], explained: Sequence[Explanation], seen_wrong: Sequence[Aligned]
) -> Verdict | None:
    """Where nothing is certain: what some later tensor confirms, then what is in its place or has the name."""
    for best in (*(each for each in pending if each.confirmed), *explained):
        if best.confirmed or best.aligned in seen_wrong:
            return Verdict(best.aligned, best.seen, best)
    return next((Verdict(first, first.later or first.seen) for first in seen_wrong), None)


def _no_logits(aligned: Mapping[str, Aligned], open_names: Sequence[str]) -> Verdict | None:
    logits = [*aligned.values()][-1]
    return Verdict(logits, None) if logits.name in open_names else None
