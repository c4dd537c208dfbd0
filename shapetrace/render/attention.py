"""An attention pattern: which position looks where, and how much, as a table of figures or as a map of shades."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from shapetrace.patterns import Pattern, Rows
from shapetrace.render.heat import colour_behind, colour_of, shade, write_scale
from shapetrace.render.theme import count_of, printable, quoted, separated

_CORNER = "query / key"
_BOS = "<|endoftext|>"
_GAP = 3  # between two maps
_LONGEST_LABEL = 16


def render_pattern(name: str, weights: str, pattern: Pattern, labels: Sequence[str]) -> RenderableType:
    """The whole screen of `attention`: one head as a table, or as a map where that is too wide; several as small maps.

    labels: a token for each position, or its number.
    """
    place = Text(printable(pattern.module), "path").append("  " if pattern.module else "")
    place.append(pattern.tensor, "name").append(f"  {pattern.source}" if pattern.source else "", "note")
    place.append(f"  layer {pattern.layer}, {count_of(pattern.count, 'head')}", "default")
    headline = Text(printable(name), "path").append(f"  weights: {printable(weights)}", "default")
    if len(pattern.heads) == 1:
        ((head, rows),) = pattern.heads.items()
        body: RenderableType = _HeadMap(rows, labels, f"head {head} attention pattern")
    else:
        body = SmallMultiples(pattern.heads, labels)
    parts: list[RenderableType] = [headline, place, body]
    if weights.startswith("random"):
        parts.append(Text("The weights are random: what a head looks at means nothing."))
    return separated(parts)


@dataclass(frozen=True, slots=True)
class PatternTable:
    """One head's pattern: a row for each query, a column for each key; a row sums to 1.

    Where the keys do not fit into a line, they go on below.
    """

    pattern: Sequence[Sequence[float]]
    tokens: Sequence[str]
    title: str = ""

    @property
    def width(self) -> int:
        """With all keys in one line."""
        return self._head + sum(self._widths)

    @property
    def _head(self) -> int:
        return max(len(_CORNER), *(cell_len(write_label(token)) for token in self.tokens)) + 2

    @property
    def _widths(self) -> list[int]:
        return [max(4, cell_len(write_label(token))) + 2 for token in self.tokens]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        labels = [write_label(token) for token in self.tokens]
        yield Text(self.title)
        start = 0
        while start < len(labels):
            end = start + 1
            while end < len(labels) and self._head + sum(self._widths[start : end + 1]) <= options.max_width:
                end += 1
            yield self._columns(labels, start, end)
            start = end

    def _columns(self, labels: list[str], start: int, end: int) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 1), header_style="note")
        table.add_column(_CORNER, justify="right", no_wrap=True)
        for label in labels[start:end]:
            table.add_column(label, justify="right", no_wrap=True)
        for label, row in zip(labels, self.pattern, strict=True):
            cells = (Text(f"{weight:.2f}", colour_behind(weight)) for weight in row[start:end])
            table.add_row(Text(label, "name"), *cells)
        return table


@dataclass(frozen=True, slots=True)
class _HeadMap:
    """One head's pattern: figures where they fit into a line, else shades, which go on below where even they do not."""

    pattern: Rows
    labels: Sequence[str]
    title: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_square = all(len(row) == len(self.pattern) for row in self.pattern)
        table = PatternTable(self.pattern, self.labels, self.title)
        if is_square and table.width <= options.max_width:
            yield table
            return
        labels = [write_label(token) for token in self.labels]
        yield Text(f"{self.title}: each row asks, and reads the columns")
        yield Text(write_scale(options.ascii_only), "note")
        longest = min(max(map(cell_len, labels)), _LONGEST_LABEL)
        digits = len(str(max(len(self.pattern), len(self.pattern[0])) - 1))
        room = options.max_width - digits - longest - 2
        keys = len(self.pattern[0])
        cell = 2 if 2 * keys <= room else 1
        for start in range(0, keys, room // cell):
            end = min(start + room // cell, keys)
            yield Text(" " * (digits + longest + 2) + _ruler(start, end, cell), "note")
            for position, row in enumerate(self.pattern):
                label = set_cell_size(labels[position], longest) if position < len(labels) else " " * longest
                line = Text(f"{position:>{digits}} ", "note").append(f"{label} ", "name")
                yield line.append_text(_shades(row[start:end], cell, options.ascii_only))


@dataclass(frozen=True, slots=True)
class SmallMultiples:
    """All heads beside each other, a map each; of a long text neighbours share a cell, which shows the most."""

    heads: Mapping[int, Rows]
    labels: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        first = next(iter(self.heads.values()))
        together = -(-max(len(first), len(first[0])) // options.max_width)
        maps = {head: _pooled(rows, together) for head, rows in self.heads.items()}
        size = -(-len(first[0]) // together)
        cell = 2 if 4 * (2 * size + _GAP) - _GAP <= options.max_width else 1
        width = max(cell * size, len(f"head {max(maps)}"))
        beside = max((options.max_width + _GAP) // (width + _GAP), 1)
        yield Text("each row asks, and reads the columns; both in the order of the text", "note")
        yield Text(write_scale(options.ascii_only), "note")
        if together > 1:
            yield Text(f"each cell is the most that is read among {together} x {together} positions", "flag")
        heads = list(maps)
        for start in range(0, len(heads), beside):
            yield ""
            yield from self._row({head: maps[head] for head in heads[start : start + beside]}, cell, width, options)
        yield ""
        yield Text("  ".join(f"{at}:{write_label(label)}" for at, label in enumerate(self.labels)), "note")

    def _row(self, maps: Mapping[int, Rows], cell: int, width: int, options: ConsoleOptions) -> Iterator[Text]:
        gap = " " * _GAP
        yield Text(gap.join(f"{f'head {head}':<{width}}" for head in maps), "name")
        for rows in zip(*maps.values(), strict=True):
            lines = [_shades(row, cell, options.ascii_only) for row in rows]
            for line in lines:
                line.pad_right(width - line.cell_len)
            yield Text(gap).join(lines)


def _shades(row: Sequence[float], cell: int, ascii_only: bool) -> Text:
    line = Text()
    for weight in row:
        line.append(shade(weight, ascii_only) * cell, colour_of(weight))
    return line


def _ruler(start: int, end: int, cell: int) -> str:
    """The number of each fifth position above it."""
    line = ""
    for position in range(start + -start % 5, end, 5):
        line = line.ljust((position - start) * cell) + str(position)
    return line


def _pooled(rows: Rows, together: int) -> Rows:
    """The largest entry of each square of so many rows and columns."""
    return tuple(
        tuple(
            max(weight for row in rows[top : top + together] for weight in row[left : left + together])
            for left in range(0, len(rows[0]), together)
        )
        for top in range(0, len(rows), together)
    )


def write_label(token: str) -> str:
    """A token as the head of a column: without its space, `<BOS>` for the beginning of the sequence."""
    return "<BOS>" if token == _BOS else printable(token.strip()) or quoted(token)
