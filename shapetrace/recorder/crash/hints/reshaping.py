"""view, reshape, expand, transpose, softmax and their like: sizes and axes that are given as numbers."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from shapetrace.recorder.crash.hints.evidence import Evidence, shape, told
from shapetrace.recorder.crash.operation import Term


def explain(evidence: Evidence) -> Iterator[str]:
    """Products that differ, views that are none, axes that are not there."""
    operation = evidence.operation
    tensors = operation.tensors
    if not tensors:
        return
    first = tensors[0]
    if operation.name in ("view", "reshape"):
        yield from _view(evidence, first, _numbers(operation.terms[1:], operation.keywords))
    if operation.name == "expand":
        yield from _expand(first, _numbers(operation.terms[1:], operation.keywords))
    if operation.name in ("split", "split_with_sizes"):
        yield from _split(first, operation.terms[1:], operation.keywords)
    if operation.name == "permute":
        order = _numbers(operation.terms[1:], operation.keywords)
        if len(order) != len(shape(first)):
            yield f"{told(first)} has {len(shape(first))} axes, and the order names {len(order)}"
    if operation.name in ("cat", "concat", "concatenate", "stack"):
        yield from _cat(
            tensors, operation.keywords.get("dim", _last_number(operation.terms)), operation.name == "stack"
        )
    out_of_range = evidence.says(r"Dimension out of range.*got (-?\d+)")
    if out_of_range:
        axes = len(shape(first))
        sentence = f"{told(first)} has {axes} axes, 0 to {axes - 1} or {-axes} to -1, and no axis {out_of_range[1]}"
        yield sentence + ("" if axes > 2 else "; the batch axis may be missing")


def _view(evidence: Evidence, term: Term, sizes: list[int]) -> Iterator[str]:
    entries, asked = prod(shape(term)), prod(size for size in sizes if size != -1)
    if evidence.says(r"stride|contiguous"):
        assert term.tensor is not None
        yield (
            f"{told(term)} has stride {tuple(term.tensor.stride())}: not contiguous, as after transpose or permute; "
            "reshape copies it, and is right where its axes stand in the order that is meant"
        )
    elif sizes.count(-1) == 1 and (not asked or entries % asked):
        known = [size for size in sizes if size != -1]
        yield f"{told(term)} has {_product(shape(term))} entries, no multiple of {_product(known)}"
    elif sizes and -1 not in sizes and entries != asked:
        yield f"{told(term)} has {_product(shape(term))} entries, and the new shape has {_product(sizes)}"


def _expand(term: Term, sizes: list[int]) -> Iterator[str]:
    for back, (have, want) in enumerate(zip(reversed(shape(term)), reversed(sizes), strict=False), start=1):
        if have not in (1, want) and want != -1:
            yield f"axis {len(shape(term)) - back} of {told(term)} is {have}, and only an axis of 1 grows to {want}"


def _split(term: Term, terms: tuple[Term, ...], keywords: dict[str, object]) -> Iterator[str]:
    parts = next((each.value for each in terms if isinstance(each.value, tuple | list)), None)
    sizes = list(parts) if parts is not None else [each.value for each in terms if isinstance(each.value, int)][:-1]
    axis = keywords.get("dim", 0)
    if isinstance(axis, int) and parts is not None and shape(term)[axis] != sum(sizes):
        yield f"axis {axis % len(shape(term))} of {told(term)} is {shape(term)[axis]}, and the parts make {sum(sizes)}"


def _cat(tensors: list[Term], dim: object, new_axis: bool) -> Iterator[str]:
    first = tensors[0]
    axis = dim if isinstance(dim, int) else 0
    for other in tensors[1:]:
        a, b = shape(first), shape(other)
        if len(a) != len(b):
            yield f"{told(first)} and {told(other)} have {len(a)} and {len(b)} axes"
            return
        for index, (one, two) in enumerate(zip(a, b, strict=True)):
            if one != two and (new_axis or index != axis % len(a)):
                yield f"axis {index} is {one} in {told(first)} and {two} in {told(other)}"
                return


def _numbers(terms: tuple[Term, ...], keywords: dict[str, object]) -> list[int]:
    values = [each.value for each in terms] or [keywords.get("size", keywords.get("shape", ()))]
    flat = [each for value in values for each in (value if isinstance(value, tuple | list) else (value,))]
    return [each for each in flat if isinstance(each, int) and not isinstance(each, bool)]


def _last_number(terms: tuple[Term, ...]) -> int:
    numbers = [each.value for each in terms if isinstance(each.value, int)]
    return numbers[-1] if numbers else 0


def _product(sizes: list[int] | tuple[int, ...]) -> str:
    """`1 * 7 * 64 = 448`."""
    return f"{' * '.join(map(str, sizes))} = {prod(sizes)}" if len(sizes) > 1 else str(prod(sizes))
