"""What is different and does no harm, and what was not to be seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shapetrace.divergence.alignment import DIFFERS, MATCHED, UNSEEN, Aligned
from shapetrace.divergence.causes import Explainer
from shapetrace.divergence.tolerance import visible_scores
from shapetrace.divergence.verdict import Verdict
from shapetrace.folding import fold_names
from shapetrace.reference import ReferenceRun


def remark_on_tensors(
    aligned: Mapping[str, Aligned],
    open_names: Sequence[str],
    explainer: Explainer,
    verdict: Verdict | None,
    theirs: ReferenceRun,
    ran: Mapping[str, Aligned],
) -> Iterator[str]:
    """Differences that heal, with their cause where it is one; activations of the reference that yours never makes.

    ran: in the precision that was asked for, where `aligned` is of a higher one.
    """
    if not theirs.logits.isfinite().all():
        yield "the reference's own logits are not all finite"
    first = list(aligned).index(verdict.aligned.name) if verdict else len(aligned)
    before = list(aligned.values())[:first]
    causes: dict[str, list[str]] = {}
    for each in before:
        comes_from = [aligned[name] for name in each.definition.reads() if name in aligned]
        if each.state != DIFFERS or each.name in open_names or any(other.state == DIFFERS for other in comes_from):
            continue
        found = explainer.explain(each.name, [each.name])
        if found is not None and found.confirmed:
            causes.setdefault(explainer.cause_of(found).detail, []).append(each.name)
    for detail, names in causes.items():
        yield f"{_fold(names)} differ{'' if names[1:] else 's'} and it heals: {detail}"
    unseen = [each for each in before if each.state == UNSEEN]
    right = _proven(before)
    doubtful = {each.definition.tensor for each in unseen if each.name not in right}
    absent = [tensor for tensor in dict.fromkeys(each.definition.tensor for each in unseen) if tensor not in doubtful]
    if absent:
        yield f"not made by name in yours, and what comes of it is right: {', '.join(absent)}"
    yield from _finite_masks(ran)
    yield from _other_shape([*aligned.values()][-1])


def _other_shape(logits: Aligned) -> Iterator[str]:
    """The logits, but not as the reference returns them: a caller may take another axis for the vocabulary."""
    expected = tuple(logits.reference.shape)
    for each in logits.alike[:1]:
        shape = tuple(each.value.shape)
        if shape != expected and each.value.numel() == logits.reference.numel():
            yield f"your logits are {shape} and the reference's {expected}: the same numbers in another shape"


def _proven(found: Sequence[Aligned]) -> set[str]:
    """What something that matches is computed from, be it through others that were not seen either."""
    proven: set[str] = set()
    for each in reversed(found):
        if each.state == MATCHED or (each.state == UNSEEN and each.name in proven):
            proven.update(each.definition.reads())
    return proven


def _finite_masks(aligned: Mapping[str, Aligned]) -> Iterator[str]:
    fills: dict[str, list[str]] = {}
    for each in aligned.values():
        fill = _mask_value(each) if each.definition.tensor == "attn_scores" and each.state == MATCHED else None
        if fill is not None:
            fills.setdefault(f"{fill:g}", []).append(each.name)
    for value, hooks in fills.items():
        yield f"masked scores are {value} and not -inf ({_fold(hooks)}); the pattern is the same"


def _mask_value(found: Aligned) -> float | None:
    """The one finite value that your scores have wherever the reference's are masked, if they are masked by one."""
    visible = visible_scores(found.reference)
    if found.yours is None or visible.all():
        return None
    values = found.yours[~visible]
    return float(values[0].item()) if values.isfinite().all() and (values == values[0]).all() else None


def _fold(names: Sequence[str]) -> str:
    return ", ".join(fold_names(names))
