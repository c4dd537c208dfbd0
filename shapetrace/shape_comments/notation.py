"""Axes in code: jaxtyping annotations, and the patterns of einops and einsum."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from shapetrace.axes.axis import Axis, axes_in_pattern
from shapetrace.axes.lists import AxisList

_EINOPS = ("rearrange", "reduce", "repeat", "einsum", "pack", "unpack", "EinMix", "parse_shape")


def items_of(annotation: ast.expr | None) -> Iterator[tuple[int | None, ast.expr | None]]:
    """`tuple[A, B]` -> A and B with their places; anything else as a whole."""
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        name = (
            annotation.value.attr
            if isinstance(annotation.value, ast.Attribute)
            else getattr(annotation.value, "id", "")
        )
        if name.lower() == "tuple":
            yield from enumerate(annotation.slice.elts)
            return
    yield None, annotation


def axes_of_annotation(annotation: ast.expr | None) -> Iterator[tuple[AxisList, int, int]]:
    """`Float[Tensor, "batch seq d_model"]`, also in quotes, Optional or with `| None`; where the axes stand."""
    if annotation is None:
        return
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            inside = ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return
        for said, _, _ in axes_of_annotation(inside):
            yield said, annotation.lineno, -1
        return
    if isinstance(annotation, ast.BinOp):
        yield from axes_of_annotation(annotation.left)
        yield from axes_of_annotation(annotation.right)
    if not isinstance(annotation, ast.Subscript):
        return
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    texts = [each for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    words = [str(each.value) for each in texts]
    name = annotation.value.attr if isinstance(annotation.value, ast.Attribute) else getattr(annotation.value, "id", "")
    if name in ("Literal", "Annotated"):
        return
    if name in ("Optional", "Union"):
        for each in parts:
            yield from axes_of_annotation(each)
    elif len(parts) == 2 and len(texts) == 1 and parts[1] is texts[0]:
        axes = axes_in_pattern(words[0])
        if axes is not None:
            yield AxisList(axes, words[0], 0, 0, is_shape=True), texts[0].lineno, texts[0].col_offset
    elif name == "TensorType" and texts:
        joined = [axis for each in words for axis in axes_in_pattern(each) or ()]
        yield AxisList(tuple(joined), ", ".join(words), 0, 0, is_shape=True), texts[0].lineno, -1


def pattern_in(call: ast.Call) -> tuple[ast.Constant, tuple[Axis, ...]] | None:
    """The pattern of an einops or einsum call, and the axes of its result."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in _EINOPS:
        return None
    given = [*call.args, *(each.value for each in call.keywords if each.arg == "pattern")]
    for index, each in enumerate(given):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and "->" in each.value:
            letters = name == "einsum" and index == 0
            axes = axes_in_pattern(each.value.split("->", 1)[1], letters)
            return None if axes is None else (each, axes)
    return None


def is_result(call: ast.Call, value: ast.expr) -> bool:
    """Whether the call's result is what the statement binds, perhaps after arithmetic."""
    if isinstance(value, ast.BinOp):
        return is_result(call, value.left) or is_result(call, value.right)
    return call is value
