"""What a comment says of shapes: text to axis lists, and which of them is the result.

Pure text: whether a list is meant as a shape shows in part only when its sizes are known (`confidence`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from shapetrace.axes.lists import ARROW, LABEL, AxisList, bare_lists, bracketed_lists, lists_beside_arrows

_NEAR = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*(?:\[\w+\])?)\s*\Z")
# Before a list: it was the shape, or is no shape at all but some of the axes, `mean over (H, W)`.
_PAST = re.compile(
    r"\b(?:was|were|not|instead of|rather than|from|before|than|no longer|originally|previously|unlike|over|per|across"
    r"|along|by|for each|for every|at|in|via|using|between|dims?|axes|axis|dimensions)\s*:?\s*\Z",
    re.I,
)
_INTERVAL = re.compile(
    r"\b(?:positions|rows|columns|frames|steps|tokens|slice|span|window|ranges?|interval)\s*\Z", re.I
)
# After one: `(query, key) pairs`.
_OF_AXES = re.compile(
    r"\s+(?:pairs?|entr(?:y|ies)|elements?|ind(?:ex|ices)|coord\w*|combinations?|tuples?|planes?|dims?|dimensions|axes"
    r"|axis|order|format|layout|plots?)\b",
    re.I,
)
_BETWEEN_OPERANDS = re.compile(r"\s*(?:[x×@*+·⊗]|matmul|\bmm\b|\bbmm\b|-)\s*")
# Behind a list or before it: it is that of every name. `(B, T, C), averaged over all heads` is not.
_EACH_AFTER = re.compile(r"\s*,?\s*\(?(?:each|both|all|for (?:q|each|all|both)|respectively)\b", re.I)
_EACH_BEFORE = re.compile(
    r"\b(?:each|both|all)(?: (?:is|are|have|has|of|with|the|in))*(?: shapes?| sizes?)?[\s:]*\Z", re.I
)


def axis_lists_in(text: str) -> list[AxisList]:
    """Every list of axes in a comment or in the description of an argument.

    `(B, nh, T, hs) x (B, nh, hs, T) -> (B, nh, T, T)`: two operands and the result. `q, k: (B, T)`: a labelled result.
    `(see above)`, `(optional)`, `f(x, y)`, `(e.g. 0.1)`: nothing.
    """
    found = list(bracketed_lists(text)) or list(bare_lists(text))
    if len(found) == 1 and ARROW.search(text):
        found = lists_beside_arrows(text) or found
    each = any(
        _EACH_AFTER.match(text, one.start + len(one.text)) or _EACH_BEFORE.search(text[: one.start]) for one in found
    )
    lists = [replace(one, each=each) for one in _with_roles(text, found)]
    return [one for one in lists if one.role != "past"]


def _with_roles(text: str, found: list[AxisList]) -> Iterator[AxisList]:
    turns = list(_turns(text, found))
    first = min((start for start, _ in turns), default=-1)
    last = max((end for _, end in turns), default=-1)
    labels: tuple[str, ...] = ()
    for index, one in enumerate(found):
        before = text[: one.start]
        label, near = LABEL.search(before), _NEAR.search(before)
        told, labels = labels, tuple(re.split(r"\s*(?:,|/|&|\band\b)\s*", label[1])) if label else ()
        placed = not re.sub(r"(?i)^(?:of )?(?:shape|size)?:?\s*[`'\"]?", "", before.strip()) or bool(labels)
        placed = placed or bool(re.search(rf"(?:{ARROW.pattern})\s*\Z", before))
        role = "result"
        if last >= 0 and one.start < last:
            role = "operand" if one.end <= first else "past"
            labels = ()
        elif _PAST.search(before) or _OF_AXES.match(text[one.end :]) or _is_interval(one, before):
            role = "past"
        elif last < 0 and len(found) > 1:
            role = _plain_role(text, found, index)
        if role == "choice" and not labels and re.search(r"\bor\s*\Z", before):
            labels = told  # `mask is (B, T) or (B, 1, T)`
        joint = text[one.end : found[index + 1].start].strip() if role == "operand" and index + 1 < len(found) else ""
        yield replace(one, role=role, labels=labels, near=near[1] if near else "", is_placed=placed, joint=joint)


def _is_interval(one: AxisList, before: str) -> bool:
    """`the positions [start, start + n]`: from the first to the last, and no axes."""
    shared = len(one.axes) == 2 and set(one.axes[0].names) & set(one.axes[1].names)
    return bool(_INTERVAL.search(before)) and bool(shared or one.text.startswith("[0,"))


def _turns(text: str, found: list[AxisList]) -> Iterator[tuple[int, int]]:
    """Where operands end and what comes of them begins: at an arrow, between `(a) to (b)`, at `(a) * (b) = (c)`."""
    for arrow in ARROW.finditer(text):
        if not any(one.start < arrow.start() < one.end for one in found):
            yield arrow.span()
    for index, (one, other) in enumerate(pairwise(found)):
        between = text[one.end : other.start].strip()
        if between == "to" or (between == "=" and index):
            yield one.end, other.start


def _plain_role(text: str, found: list[AxisList], index: int) -> str:
    """Of several lists without an arrow: `(a) @ (b)` are operands; of others any may be meant."""
    one = found[index]
    if len(found) > 2 and text[found[0].end : found[1].start].strip() == "=":  # `(c) = (a) * (b)`
        return "operand" if index else "result"
    following = text[one.end : found[index + 1].start] if index + 1 < len(found) else ""
    before = text[found[index - 1].end : one.start] if index else ""
    for between in (following, before):
        if between and _BETWEEN_OPERANDS.fullmatch(between):
            return "operand"
    return "choice"
