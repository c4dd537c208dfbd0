"""What a forward raised: the statement, its operands, the error, and the hint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.text import Text

from shapetrace.render.theme import printable
from shapetrace.trace import Failure, Operand, write_shape

_STYLES = ("name", "shape", "flag", "axes")
_IN = 2  # columns
_FIRST, _LAST = 12, 6  # lines of a message
_LINE = 1000  # characters of one


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
    error = "\n".join(map(printable, shorten(str(failure).strip()).splitlines()))
    parts.append(Padding(Text(error, "bad"), (1 if parts else 0, 0, 0, 0), expand=False))
    if failure.hint:
        parts.append(
            Padding(Text("hint: ", "good").append(printable(failure.hint), "default"), (1, 0, 0, 0), expand=False)
        )
    return Group(*parts)


def shorten(message: str) -> str:
    """The first lines of a long message, and the last, where the reason often stands; the trace keeps the whole."""
    lines = [
        each if len(each) <= _LINE else f"{each[:_LINE]} ... {len(each) - _LINE:,} more characters"
        for each in message.splitlines()
    ]
    left = len(lines) - _FIRST - _LAST
    return "\n".join([*lines[:_FIRST], f"... {left:,} more lines", *lines[-_LAST:]] if left > 1 else lines)


def render_operands(operands: Sequence[Operand]) -> RenderableType:
    """Each operand's text, shape, dtype and device where they are not the usual, axes."""
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
    return _Operands(tuple(rows))


@dataclass(frozen=True, slots=True)
class _Operands:
    """Rows of name, shape, facts and axes: in columns where those fit the screen, else below each other."""

    rows: tuple[tuple[str, str, str, str], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = self._columns()
        if all(line.cell_len <= options.max_width for line in lines):
            yield from lines
        else:
            for row in self.rows:
                yield from _stack(row, options.max_width)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, min(max(line.cell_len for line in self._columns()), options.max_width))

    def _columns(self) -> list[Text]:
        widths = [max(cell_len(row[column]) for row in self.rows) for column in range(3)]
        return [_line(row, widths) for row in self.rows]


def _line(row: Sequence[str], widths: Sequence[int]) -> Text:
    line = Text()
    for text, width, style in zip(row, (*widths, 0), _STYLES, strict=True):
        line.append(set_cell_size(text, width) if width else text, style).append("  " if width else "")
    line.rstrip()
    return line


def _stack(row: Sequence[str], width: int) -> Iterator[RenderableType]:
    """As many parts on each line as fit, the lines after the first further in; a wider part is folded at its spaces."""
    line, indent = Text(), 0
    for text, style in zip(row, _STYLES, strict=True):
        if text and line and indent + line.cell_len + 2 + cell_len(text) > width:
            yield Padding(line, (0, 0, 0, indent), expand=False)
            line, indent = Text(), _IN
        if text:
            line.append("  " if line else "").append(text, style)
    yield Padding(line, (0, 0, 0, indent), expand=False)


def _bind(operand: Operand) -> list[str]:
    """`b=1 n=7`."""
    return [f"{axis}={size}" for axis, size in zip(operand.axes, operand.shape or (), strict=False)]
