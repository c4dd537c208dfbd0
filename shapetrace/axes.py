"""The axis language: shape comments, einops patterns and jaxtyping strings to axis names.

A source line can offer several readings; `fit_axes` takes the first that fits the shape that was seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

Axes = tuple[str, ...]

# One axis: a name, a size, or arithmetic of both, such as `3 * n_embd`, `C // n_head`, `T+1`; or a group `(h d)`.
_AXIS = re.compile(r"[A-Za-z_][\w.]*(?:\s*(?:\*|//?|\+|-)\s*[\w.]+)*|\d+(?:\s*(?:\*|//?|\+|-)\s*[\w.]+)*")
_OPENING = re.compile(r"(?:of )?(?:shape)?:?\s*", re.I)
_LISTED = re.compile(r"\(([^()]*)\)|\[([^\[\]]*)\]")


def axes_in_comment(comment: str) -> list[Axes]:
    """The axis lists of a comment, nearest the end of an arrow first.

    `(batch, posn, d_model), one row each` -> [("batch", "posn", "d_model")]
    `(B, nh, T, hs) x (B, nh, hs, T) -> (B, nh, T, T)` -> the last group, then the others
    `[B, T]` -> [("B", "T")]; `scores (not yet scaled)` -> []
    """
    lists = [
        axes
        for found in _LISTED.finditer(comment)
        if (axes := _split_list(found[1] or found[2] or ""))
        # One word in parentheses is most often prose, as in `TODO(me)`, but at the start of a comment.
        and (len(axes) > 1 or _OPENING.fullmatch(comment[: found.start()]))
    ]
    return lists[-1:] + lists[:-1] if "->" in comment else lists


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


def _split_list(group: str) -> Axes:
    """`B, T, 3 * C` -> ("B", "T", "3 * C"); prose -> ()."""
    axes = tuple(axis.strip() for axis in group.rstrip(", ").split(","))
    return axes if all(_AXIS.fullmatch(axis) for axis in axes) else ()
