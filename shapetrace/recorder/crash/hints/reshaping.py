"""view, reshape, expand, transpose, softmax and their like: sizes and axes that are given as numbers."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from shapetrace.recorder.crash.hints.evidence import Evidence, shape, told
from shapetrace.recorder.crash.operation import Operation, Term


def explain(evidence: Evidence) -> Iterator[str]:
    """Products that differ, views that are none, axes that are not there."""
    operation = evidence.operation
    if not operation.tensors or operation.terms[0].tensor is None:
        return
    first = operation.terms[0]
    if operation.name in ("view", "reshape", "expand", "permute"):
        yield from _sizes(evidence, first)
    if operation.name in ("split", "split_with_sizes"):
        yield from _split(first, operation)
    if operation.name in ("cat", "concat", "concatenate", "stack"):
        yield from _cat(operation.tensors, _axis_of(operation, 0), new_axis=operation.name == "stack")
    past = evidence.says(r"Dimension out of range \(expected to be in range of \[(-?\d+), (-?\d+)\], but got (-?\d+)\)")
    if past:
        yield f"{told(first)} has {len(shape(first))} axes: dim goes from {past[1]} to {past[2]}, and {past[3]} is none"


def _sizes(evidence: Evidence, term: Term) -> Iterator[str]:
    operation = evidence.operation
    terms = operation.terms[1:]
    fractions = [each for each in terms if isinstance(each.value, float)]
    if fractions:
        yield f"{fractions[0].text} is {fractions[0].value}, and sizes are whole numbers: divide with //"
    sizes = _numbers(
        [each.value for each in terms] or [operation.keywords.get("size", operation.keywords.get("shape"))]
    )
    if sizes is None:
        return
    if operation.name == "expand":
        yield from _expand(term, sizes)
    elif operation.name == "permute":
        if len(sizes) != len(shape(term)):
            yield f"{told(term)} has {len(shape(term))} axes, and the order names {len(sizes)}"
    else:
        yield from _view(evidence, term, sizes)


def _view(evidence: Evidence, term: Term, sizes: list[int]) -> Iterator[str]:
    entries, known = prod(shape(term)), [size for size in sizes if size != -1]
    if evidence.says(r"stride|contiguous") and term.tensor is not None and not term.tensor.is_contiguous():
        yield (
            f"{told(term)} has stride {tuple(term.tensor.stride())}: not contiguous, as after transpose or permute; "
            "reshape copies it, and is right where its axes stand in the order that is meant"
        )
    elif sizes.count(-1) == 1 and (not prod(known) or entries % prod(known)):
        yield f"{told(term)} has {_product(shape(term))} entries, no multiple of {_product(known)}"
    elif sizes and -1 not in sizes and entries != prod(sizes):
        yield f"{told(term)} has {_product(shape(term))} entries, and the new shape has {_product(sizes)}"


def _expand(term: Term, sizes: list[int]) -> Iterator[str]:
    for back, (have, want) in enumerate(zip(reversed(shape(term)), reversed(sizes), strict=False), start=1):
        if have not in (1, want) and want != -1:
            yield f"axis {len(shape(term)) - back} of {told(term)} is {have}, and only an axis of 1 grows to {want}"


def _split(term: Term, operation: Operation) -> Iterator[str]:
    parts = operation.terms[1].value if len(operation.terms) > 1 else operation.keywords.get("split_size")
    axis = _axis_of(operation, 0)
    sizes = _numbers([parts]) if isinstance(parts, tuple | list) else None
    if sizes is not None and shape(term)[axis] != sum(sizes):
        place = axis % len(shape(term))
        yield f"axis {place} of {told(term)} is {shape(term)[axis]}, and the parts make {sum(sizes)}"


def _cat(tensors: list[Term], axis: int, new_axis: bool) -> Iterator[str]:
    first = tensors[0]
    for other in tensors[1:]:
        a, b = shape(first), shape(other)
        if len(a) != len(b):
            yield f"{told(first)} and {told(other)} have {len(a)} and {len(b)} axes"
            return
        for index, (one, two) in enumerate(zip(a, b, strict=True)):
            if one != two and (new_axis or index != axis % len(a)):
                yield f"axis {index} is {one} in {told(first)} and {two} in {told(other)}"
                return


def _axis_of(operation: Operation, default: int) -> int:
    """`dim=`, `axis=`, or the last number that is given by position."""
    for key in ("dim", "axis"):
        if isinstance(operation.keywords.get(key), int):
            return int(operation.keywords[key])
    numbers = [each.value for each in operation.terms[1:] if isinstance(each.value, int)]
    return numbers[-1] if numbers else default


def _numbers(values: list[Any]) -> list[int] | None:
    """Sizes, given one by one or in a tuple; None where one of them is not known to be a whole number."""
    flat = [each for value in values for each in (value if isinstance(value, tuple | list) else (value,))]
    whole = all(isinstance(each, int) and not isinstance(each, bool) for each in flat)
    return flat if flat and whole else None


def _product(sizes: list[int] | tuple[int, ...]) -> str:
    """`1 * 7 * 64 = 448`."""
    return f"{' * '.join(map(str, sizes))} = {prod(sizes)}" if len(sizes) > 1 else str(prod(sizes))
