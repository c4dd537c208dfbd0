"""What changed between two traces: sizes that changed everywhere first, then each change, equal layers as one."""

from __future__ import annotations

from collections import Counter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shapetrace.comparison import Change, Comparison, Dimension, fold_changes
from shapetrace.render.theme import count_of, printable
from shapetrace.trace import Shape, write_shape

_MOST = 40  # more changes than this are counted


def render_comparison(comparison: Comparison) -> RenderableType:
    """The whole screen of `compare`, and the message of a golden trace that differs."""
    if comparison.same:
        return Text("the same", "good")
    lines: list[RenderableType] = [_headline(comparison)]
    lines += [_dimension(each) for each in comparison.dimensions]
    folded = fold_changes(comparison.changes)
    table = Table.grid(padding=(0, 2, 0, 0))
    for first, last, times in folded[:_MOST]:
        table.add_row(Text(first.kind, _style(first)), _where(first, last, times), _what(first))
    lines += [table] if folded else []
    left = len(folded) - _MOST
    return Group(*lines, *([f"... and {count_of(left, 'more change')}"] if left > 0 else []))


def _headline(comparison: Comparison) -> Text:
    kinds = Counter(change.kind for change in comparison.changes)
    counts = [f"{count} {kind}" for kind, count in kinds.items()]
    counts += [count_of(len(comparison.dimensions), "size") + " changed everywhere"] if comparison.dimensions else []
    return Text("different: " + ", ".join(counts), "bad")


def _dimension(dimension: Dimension) -> Text:
    names = printable(", ".join(dimension.axes)) or "a size"
    where = f"in {count_of(dimension.tensors, 'tensor')}"
    return Text(f"{names}: {dimension.old} -> {dimension.new} {where}", "flag")


def _where(first: Change, last: Change, times: int) -> Text:
    """`blocks.0 ... blocks.11: attn_scores`."""
    text = Text(printable(first.module) or "the model", "path")
    if last.module != first.module:
        text.append(f" ... {printable(last.module)}", "path")
    if times > 1:
        text.append(f"  x{times}", "times")
    if first.name:
        text.append(f": {'' if first.what == 'tensor' else first.what + ' '}{printable(first.name)}", "default")
    return text


def _what(change: Change) -> Text:
    if change.old_shape is not None and change.new_shape is not None and change.kind == "reshaped":
        old, new = _marked(change.old_shape, change.new_shape), _marked(change.new_shape, change.old_shape)
    else:
        old, new = printable(change.old), printable(change.new)
    if change.kind in ("added", "removed"):
        return Text(old or new, "shape")
    return Text(old or '""', "default").append(" -> ", "note").append(new or '""', "default")


def _marked(shape: Shape, other: Shape) -> str:
    """The shape with the sizes that differ in brackets: `(1, 12, [7], [7])`."""
    if len(shape) != len(other):
        return write_shape(shape)
    sizes = [f"[{size}]" if size != before else str(size) for size, before in zip(shape, other, strict=True)]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _style(change: Change) -> str:
    return {"added": "good", "removed": "bad"}.get(change.kind, "flag")
