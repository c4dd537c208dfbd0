"""What a forward raised: the statement, its operands, the error, and the hint."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from shapetrace.render.theme import printable
from shapetrace.trace import Failure, Operand, write_shape


def render_failure(failure: Failure) -> RenderableType:
    """The block below the tree."""
    parts: list[RenderableType] = []
    head = Text("✗ ", "bad").append(printable(failure.module or "the root"), "path")
    if failure.source:
        head.append(f"  {printable(failure.source)}", "note")
    if failure.module or failure.source:
        parts.append(head)
    if failure.statement:
        lines = Text("\n".join(map(printable, failure.statement.expandtabs(4).splitlines())))
        parts.append(Padding(lines, (1, 0, 0, 4), expand=False))
    if failure.operands:
        parts.append(Padding(render_operands(failure.operands), (1, 0, 0, 6), expand=False))
    error = "\n".join(map(printable, str(failure).strip().splitlines()))
    parts.append(Padding(Text(error, "bad"), (1 if parts else 0, 0, 0, 0), expand=False))
    if failure.hint:
        parts.append(
            Padding(Text("hint: ", "good").append(printable(failure.hint), "default"), (1, 0, 0, 0), expand=False)
        )
    return Group(*parts)


def render_operands(operands: Sequence[Operand]) -> Text:
    """A line an operand: its text, shape, dtype and device where they are not the usual, axes."""
    tensors = [each for each in operands if each.shape is not None]
    several_devices = len({each.device for each in tensors}) > 1
    several_dtypes = len({each.dtype for each in tensors}) > 1
    rows = []
    for each in operands:
        facts = [each.dtype] if several_dtypes or each.dtype not in ("", "float32") else []
        facts += [each.device] if several_devices or each.device != "cpu" else []
        rows.append(
            (printable(each.text), each.note or write_shape(each.shape), " ".join(facts), " ".join(_bind(each)))
        )
    widths = [max(cell_len(row[column]) for row in rows) for column in range(3)]
    lines = []
    for row in rows:
        line = Text()
        for text, width, style in zip(row, (*widths, 0), ("name", "shape", "flag", "axes"), strict=True):
            line.append(set_cell_size(text, width) if width else text, style).append("  " if width else "")
        line.rstrip()
        lines.append(line)
    return Text("\n").join(lines)


def _bind(operand: Operand) -> list[str]:
    """`b=1 n=7`."""
    return [f"{axis}={size}" for axis, size in zip(operand.axes, operand.shape or (), strict=False)]
