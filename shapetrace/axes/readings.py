"""What a source line offers as the axes of its result: several readings, of which the first that fits is taken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from shapetrace.axes.docstrings import entries_in
from shapetrace.axes.grammar import axis_lists_in
from shapetrace.axes.lists import AxisList
from shapetrace.axes.vocabulary import strength_of

Axes = tuple[str, ...]


def axes_in_comment(comment: str) -> list[Axes]:
    """The axis lists of a comment, the result of an arrow before its operands.

    `(batch, posn, d_model), one row each` -> [("batch", "posn", "d_model")]
    `(B, nh, T, hs) x (B, nh, hs, T) -> (B, nh, T, T)` -> the last group, then the others
    `[B, T]`, `B x T` -> [("B", "T")]; `scores (not yet scaled)` -> []
    """
    lists = [one for one in axis_lists_in(comment) if _may_be_axes(one)]
    lists.sort(key=lambda one: one.role == "operand")
    return [tuple(axis.text for axis in one.axes) for one in lists]


def axes_in_docstring(docstring: str, parameters: Sequence[str]) -> dict[str, list[Axes]]:
    """What a function's docstring says of each parameter: `x: (batch, seq)` -> {"x": [("batch", "seq")]}."""
    found: dict[str, list[Axes]] = {}
    for entry in entries_in(docstring, 1, parameters):
        for name in entry.names:
            found.setdefault(name, []).extend(axes_in_comment(entry.text))
    return found


def _may_be_axes(one: AxisList) -> bool:
    """A list of one axis for each axis of a tensor; a lone word in parentheses is most often prose."""
    if not one.axes or any(axis.kind == "rest" for axis in one.axes):
        return False
    return len(one.axes) > 1 or one.is_shape or all(strength_of(name) for name in one.axes[0].names)


def axes_in_pattern(pattern: str, letters: bool = False) -> Axes:
    """The axes to the right of an einops or torch.einsum arrow; none where `...` or a bare 1 leaves them open.

    `b p d, n d h -> b p n h` -> ("b", "p", "n", "h"); `b (h d) -> b h d` -> ("b", "h", "d");
    `bqd,bkd->bqk`, where axes are letters -> ("b", "q", "k")
    """
    if "->" not in pattern:
        return ()
    right = pattern.split("->", 1)[1]
    axes = tuple(right.replace(" ", "")) if letters else tuple(re.findall(r"\([^()]*\)|\S+", right))
    return () if any("." in axis or axis in ("", "1") for axis in axes) else axes


def axes_in_annotation(annotation: str) -> Axes:
    """The axes of a jaxtyping annotation: `Float[Tensor, "batch seq d_model"]` -> ("batch", "seq", "d_model").

    Markers that only steer jaxtyping's check (`#` broadcastable, `_` unchecked, `name=`) are dropped.
    """
    found = re.search(r"""\[.*,\s*["']([^"']*)["']\s*\]""", annotation)
    if not found:
        return ()
    axes = tuple(axis.lstrip("#").partition("=")[0] if "=" in axis else axis.lstrip("#") for axis in found[1].split())
    return () if any(axis.startswith(("*", "...")) for axis in axes) else axes


def fit_axes(readings: Iterable[Axes], shape: Sequence[int]) -> Axes:
    """The first reading that names each axis of the shape: right rank, sizes that agree, one size for one name."""
    return next((axes for axes in readings if _fits(axes, shape)), ())


def _fits(axes: Axes, shape: Sequence[int]) -> bool:
    if len(axes) != len(shape) or not any(axis[0].isalpha() for axis in axes if axis):
        return False
    sizes: dict[str, int] = {}
    for axis, size in zip(axes, shape, strict=True):
        expected = int(axis) if axis.isdigit() else sizes.setdefault(axis, size)
        if expected != size:
            return False
    return True
