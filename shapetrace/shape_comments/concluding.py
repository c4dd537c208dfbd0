"""What all that was seen of a claim comes to: a finding, and what its text should say instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from shapetrace.axes.vocabulary import strength_of
from shapetrace.shape_comments.claims import Claim
from shapetrace.shape_comments.findings import FALSE, NOT_REACHED, TRUE, UNDECIDED, Finding, Fix
from shapetrace.shape_comments.watching import Value

NO_SHAPE = "no shape"  # prose, as its words tell beside the tensor


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one sighting says of its claim."""

    status: str
    value: Value = ("", ())
    reason: str = ""
    written: tuple[str, ...] | None = None


def conclude(claim: Claim, judged: dict[Claim, list[Judgement]], uses: Counter[str]) -> Finding | None:
    """False where no run of the line makes it true; None for what turned out to be no shape comment."""
    judgements = judged.get(claim, [])
    told = [each for each in judgements if each.status != NO_SHAPE]
    finding = Finding(claim.file, claim.line, claim.kind, _written(claim), NOT_REACHED)
    if judgements and not told:
        return None
    if not told:
        return finding if may_be_shape(claim, uses) else None
    for status in (TRUE, FALSE, UNDECIDED):
        found = next((each for each in told if each.status == status), None)
        if found is None:
            continue
        if status == FALSE and any(each.status == TRUE for other in claim.others for each in _all(other, judged)):
            return replace(finding, status=TRUE, name=found.value[0], shape=found.value[1])
        return replace(
            finding,
            status=status,
            name=found.value[0],
            shape=found.value[1],
            reason=found.reason,
            fix=_fix(claim, found),
        )
    return None


def _all(claim: Claim, judged: dict[Claim, list[Judgement]]) -> Iterable[Judgement]:
    """Of the claim as it was before it knew the others."""
    return (
        each
        for known, every in judged.items()
        if known.file == claim.file
        and known.line == claim.line
        and known.column == claim.column
        and known.said == claim.said
        for each in every
    )


def _written(claim: Claim) -> str:
    text = " ".join(claim.said.text.split())
    return f'"{text}"' if claim.kind in ("annotation", "pattern") else text


def may_be_shape(claim: Claim, uses: Counter[str]) -> bool:
    """Of a line that did not run."""
    said = claim.said
    if said.is_shape or claim.kind in ("annotation", "pattern"):
        return True
    if not said.has_names or not (said.is_placed or said.role == "operand"):
        return False
    if len(said.axes) == 1:
        return uses[claim.names[0]] > 1 and said.confidence == 2
    return all(strength_of(name) == 2 or uses[name] > 1 for name in claim.names)


def _fix(claim: Claim, judgement: Judgement) -> Fix | None:
    if judgement.written is None or claim.column < 0 or claim.kind == "pattern":
        return None
    text = claim.said.text
    if claim.kind == "annotation":
        return Fix(claim.column, text, " ".join(judgement.written))
    opening, closing = (text[0], text[-1]) if text[0] in "([" else ("", "")
    between = ", " if ", " in text or "," not in text else ","
    if "," not in text:
        crossed = [each for each in (" x ", " × ", "×") if each in text]
        between = crossed[0] if crossed else " " if " " in text.strip("()[]") else ", "
    return Fix(claim.column, text, opening + between.join(judgement.written) + closing)
