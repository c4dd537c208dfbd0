"""An attention pattern as a table: which position looks where, and how much."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from shapetrace.render.theme import printable, quoted

_BOS = "<|endoftext|>"


def render_pattern(pattern: Sequence[Sequence[float]], tokens: Sequence[str], title: str = "") -> RenderableType:
    """One head's pattern: a row for each query, a column for each key; a row sums to 1."""
    labels = [write_label(token) for token in tokens]
    table = Table(
        box=None, pad_edge=False, padding=(0, 1, 0, 1), header_style="note", title=title, title_justify="left"
    )
    table.add_column("query / key", justify="right", no_wrap=True)
    for label in labels:
        table.add_column(label, justify="right", no_wrap=True)
    for label, row in zip(labels, pattern, strict=True):
        table.add_row(
            Text(label, "name"), *(Text(f"{weight:.2f}", "note" if weight < 0.005 else "count") for weight in row)
        )
    return table


def write_label(token: str) -> str:
    """A token as the head of a column: without its space, `<BOS>` for the beginning of the sequence."""
    return "<BOS>" if token == _BOS else printable(token.strip()) or quoted(token)
