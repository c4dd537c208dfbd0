"""What came of checking the shape comments of a model: plain data."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shapetrace.trace import Shape, write_shape

TRUE, FALSE, NOT_REACHED, UNDECIDED = "true", "false", "not reached", "undecided"


@dataclass(frozen=True, slots=True)
class Fix:
    """What to write instead of the list at a place of a row."""

    column: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One shape comment, and whether it is true."""

    file: str
    line: int
    kind: str  # comment, docstring, annotation, pattern
    said: str
    status: str
    name: str = ""  # of the tensor
    shape: Shape = ()
    reason: str = ""  # why it is false
    fix: Fix | None = None  # where it is certain what it should say

    @property
    def path(self) -> str:
        """From the current folder for a file below it, else the full path."""
        below = os.path.relpath(self.file) if os.path.isabs(self.file) else self.file
        return self.file if below.startswith("..") else below

    @property
    def sentence(self) -> str:
        """`q: comment says (B, T, nh, hs), is (2, 4, 7, 16): axes 1 and 2 are swapped`."""
        return f"{self.name}: {self.kind} says {self.said}, is {write_shape(self.shape)}: {self.reason}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class ShapeComments:
    """Every shape comment in the source that ran."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()  # what could not be told apart

    @property
    def false(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.status == FALSE)

    @property
    def all_true(self) -> bool:
        """Whether none is false."""
        return not self.false

    def __str__(self) -> str:
        return "\n".join([*map(str, self.false), self.summary])

    @property
    def summary(self) -> str:
        """`31 shape comments: 29 true, 2 false, 0 not reached`."""
        counts = Counter(each.status for each in self.findings)
        told = [f"{counts[status]} {status}" for status in (TRUE, FALSE, NOT_REACHED)]
        told += [f"{counts[UNDECIDED]} undecided"] if counts[UNDECIDED] else []
        plural = "" if len(self.findings) == 1 else "s"
        return f"{len(self.findings)} shape comment{plural}: {', '.join(told)}"


def to_github(result: ShapeComments) -> str:
    """Each false comment as an annotation of a pull request, in the workflow commands of GitHub's runners."""
    return "\n".join(
        f"::error file={_escape(each.path, True)},line={each.line},title=false shape comment::{_escape(each.sentence)}"
        for each in result.false
    )


def _escape(text: str, is_property: bool = False) -> str:
    for character in "%\r\n" + ":," * is_property:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def merge(results: Sequence[ShapeComments]) -> ShapeComments:
    """What several models say of the same comments: one is false if it is so for any of them."""
    best: dict[tuple[str, int, str, str, int], Finding] = {}
    order = (FALSE, TRUE, UNDECIDED, NOT_REACHED)
    for result in results:
        seen: Counter[tuple[str, int, str, str]] = Counter()
        for finding in result.findings:
            place = (finding.file, finding.line, finding.kind, finding.said)
            key = (*place, seen[place])
            seen[place] += 1
            known = best.get(key)
            if known is None or order.index(finding.status) < order.index(known.status):
                best[key] = finding
    return ShapeComments(tuple(best.values()), tuple(dict.fromkeys(note for each in results for note in each.notes)))


def to_plain(result: ShapeComments) -> dict[str, Any]:
    """For JSON."""
    counts = Counter(each.status for each in result.findings)
    return {
        "total": len(result.findings),
        **{status.replace(" ", "_"): counts[status] for status in (TRUE, FALSE, NOT_REACHED, UNDECIDED)},
        "comments": [
            {
                "file": each.path,
                "line": each.line,
                "kind": each.kind,
                "says": each.said,
                "status": each.status,
                "name": each.name,
                "shape": list(each.shape),
                "reason": each.reason,
                "fix": each.fix.new if each.fix else None,
            }
            for each in result.findings
        ],
        "notes": list(result.notes),
    }
