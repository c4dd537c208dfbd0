"""The patterns of einsum and einops calls, read for their operands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from shapetrace.recorder.crash.operation import Operation, Term

EINOPS = ("rearrange", "reduce", "repeat")


@dataclass(frozen=True, slots=True)
class Pattern:
    """`b p d, n d h -> b p n h`: for each operand its axes; a group `(h d)` is one axis of several names."""

    text: str
    operands: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]


def pattern_of(operation: Operation) -> Pattern | None:
    """The pattern of an einsum or einops call; None for anything else, and where `...` leaves axes open."""
    if operation.name not in ("einsum", *EINOPS):
        return None
    texts = [each.value for each in operation.terms if isinstance(each.value, str)]
    text = next((each for each in texts if "->" in each), operation.keywords.get("pattern"))
    if not isinstance(text, str) or "->" not in text or "..." in text:
        return None
    left, right = text.split("->", 1)
    # torch.einsum has its pattern first, a letter an axis; einops has it last, a word an axis.
    letters = operation.name == "einsum" and bool(operation.terms) and isinstance(operation.terms[0].value, str)
    split = _letters if letters else split_axes
    return Pattern(text, tuple(split(each) for each in left.split(",")), split(right))


def letters_of(operation: Operation, term: Term) -> tuple[str, ...]:
    """What the pattern calls the axes of this operand; () where it does not name just its axes."""
    pattern = pattern_of(operation)
    if pattern is None or term.tensor is None:
        return ()
    axes = dict(zip(map(id, operation.tensors), pattern.operands, strict=False)).get(id(term), ())
    return axes if len(axes) == term.tensor.ndim else ()


def split_axes(side: str) -> tuple[str, ...]:
    """`b (h d)  1` -> ("b", "(h d)", "1")."""
    return tuple(re.findall(r"\([^()]*\)|[^\s()]+", side))


def names_in(axis: str) -> list[str]:
    """`(h d)` -> ["h", "d"]."""
    return axis.strip("()").split()


def sizes_given(operation: Operation) -> dict[str, int]:
    """`h=4` in the call."""
    return {key: value for key, value in operation.keywords.items() if _is_size(value)}


def _letters(side: str) -> tuple[str, ...]:
    return tuple(side.replace(" ", ""))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
