"""An attention pattern as a table: which position looks where, and how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from shapetrace.render.theme import printable, quoted

_CORNER = "query / key"
_BOS = "<|endoftext|>"


@dataclass(frozen=True, slots=True)
class PatternTable:
    """One head's pattern: a row for each query, a column for each key; a row sums to 1.

    Where the keys do not fit into a line, they go on below.
    """

    pattern: Sequence[Sequence[float]]
    tokens: Sequence[str]
    title: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        labels = [write_label(token) for token in self.tokens]
        head = max(len(_CORNER), *map(cell_len, labels)) + 2
        widths = [max(4, cell_len(label)) + 2 for label in labels]
        yield Text(self.title)
        start = 0
        while start < len(labels):
            end = start + 1
            while end < len(labels) and head + sum(widths[start : end + 1]) <= options.max_width:
                end += 1
            yield self._columns(labels, start, end)
            start = end

    def _columns(self, labels: list[str], start: int, end: int) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 1), header_style="note")
        table.add_column(_CORNER, justify="right", no_wrap=True)
        for label in labels[start:end]:
            table.add_column(label, justify="right", no_wrap=True)
        for label, row in zip(labels, self.pattern, strict=True):
            cells = (Text(f"{weight:.2f}", "note" if weight < 0.005 else "count") for weight in row[start:end])
            table.add_row(Text(label, "name"), *cells)
        return table


def write_label(token: str) -> str:
    """A token as the head of a column: without its space, `<BOS>` for the beginning of the sequence."""
    return "<BOS>" if token == _BOS else printable(token.strip()) or quoted(token)
