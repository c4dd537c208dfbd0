"""Lay a list of axes beside a shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shapetrace.axes.arithmetic import Name, evaluate, has_no_solution, solve
from shapetrace.axes.axis import Axis
from shapetrace.trace import Shape


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An axis whose size is not what it says."""

    axis: Axis
    index: int
    size: int
    expected: int | None  # None: it cannot be that, whatever its name stands for


def align(axes: Sequence[Axis], shape: Shape) -> list[tuple[Axis, int]] | None:
    """Each axis with its place in the shape; `...` takes as many as there are. None where the rank is another."""
    if not shape and [axis.size for axis in axes] == [1]:
        return []  # a scalar, which many write as (1)
    rests = [index for index, axis in enumerate(axes) if axis.kind == "rest"]
    if not rests:
        return list(zip(axes, range(len(shape)), strict=True)) if len(axes) == len(shape) else None
    before, after = rests[0], len(axes) - rests[0] - 1
    if len(rests) > 1 or before + after > len(shape):
        return None
    return [
        *zip(axes[:before], range(before), strict=True),
        *zip(axes[len(axes) - after :], range(len(shape) - after, len(shape)), strict=True),
    ]


def mismatches(axes: Sequence[Axis], shape: Shape, sizes: Mapping[str, int]) -> list[Mismatch] | None:
    """The axes that are not as they say; names that have no size yet take it at their first axis. None: wrong rank."""
    pairs = align(axes, shape)
    if pairs is None:
        return None
    known, found = dict(sizes), []
    for axis, index in pairs:
        size = shape[index]
        if axis.size is None or size < 0 or (axis.may_be_one and size == 1):
            continue
        if isinstance(axis.size, Name) and axis.size.name not in known:
            known[axis.size.name] = size
    for axis, index in pairs:
        size = shape[index]
        if axis.size is None or size < 0 or (axis.may_be_one and size == 1):
            continue
        solved = solve(axis.size, size, known)
        if solved:
            known[solved[0]] = solved[1]
        possible = evaluate(axis.size, known)
        if possible and size not in possible:
            found.append(Mismatch(axis, index, size, min(possible)))
        elif not possible and has_no_solution(axis.size, size, known):
            found.append(Mismatch(axis, index, size, None))
    return found


def fits(axes: Sequence[Axis], shape: Shape, sizes: Mapping[str, int]) -> bool:
    return mismatches(axes, shape, sizes) == []


def known_count(axes: Sequence[Axis], sizes: Mapping[str, int]) -> int:
    """How many of the axes have a size that is known beforehand."""
    return sum(bool(axis.size is not None and evaluate(axis.size, sizes)) for axis in axes)


def bind(axes: Sequence[Axis], shape: Shape) -> dict[str, int] | None:
    """The size that the shape gives to each plain name; None where the rank is another, or a name has two sizes."""
    pairs = align(axes, shape)
    if pairs is None or not fits(axes, shape, {}):
        return None
    return {axis.size.name: shape[index] for axis, index in pairs if isinstance(axis.size, Name)}


def names_of(axes: Sequence[Axis]) -> list[str]:
    """The axes that are a plain name."""
    return [axis.size.name for axis in axes if isinstance(axis.size, Name)]
