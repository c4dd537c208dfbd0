"""The first wrong tensor on the screen: what was right before it, its line, its values, and why."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from shapetrace.render.numbers import write_entries, write_number
from shapetrace.render.theme import count_of, printable
from shapetrace.report import Divergence, Entry, Pair, Report, TensorRow
from shapetrace.trace import write_shape

_BEFORE = 5  # lines of what was right before it
_STATEMENT = 6  # lines of the source shown


def render_divergence(report: Report, divergence: Divergence) -> list[RenderableType]:
    """The parts of the screen, from what was right to the cause."""
    parts: list[RenderableType] = [
        _way_there(report, divergence),
        Text(write_divergence(divergence), "bad"),
    ]
    if divergence.source:
        lines = printable_lines(divergence.source)
        more = ["..."] if lines[_STATEMENT:] else []
        parts.append(Padding(Text("\n".join([*lines[:_STATEMENT], *more]), "path"), (0, 0, 0, 4)))
    if divergence.shape:
        parts.append(Padding(_values(divergence), (0, 0, 0, 4)))
    if divergence.stage:
        parts.append(Text(f"both are {divergence.stage}", "note"))
    parts.append(_why(divergence))
    return parts


def write_divergence(divergence: Divergence) -> str:
    """One sentence: `First divergence: blocks.0.attn.attn_scores, your `scores`, student.py line 78.`"""
    row = divergence.row
    file, _, line = row.line.rpartition(":")
    yours = row.yours.rpartition(".")[2]
    place = f"{row.module}.{row.tensor}" if row.module else row.tensor
    where = f", {file} line {line}" if file else ""
    return f"First divergence: {place}{f', your `{yours}`' if yours else ''}{where}."


def render_pair(pair: Pair) -> list[RenderableType]:
    """A tensor that was asked for: its two names, its line, its values, and how far they are apart."""
    row = pair.row
    place = f"{row.module}.{row.tensor}".lstrip(".") if row.reference else ""
    yours = f"your {row.yours}" + (f", {row.line.replace(':', ' line ')}" if row.line else "") if row.yours else ""
    head = Text(place or "no activation of the reference has these values", "path" if place else "flag")
    parts: list[RenderableType] = [head.append(f"  {yours or 'not seen in yours'}", "default")]
    if pair.source:
        parts.append(Padding(Text("\n".join(printable_lines(pair.source)[:_STATEMENT]), "path"), (0, 0, 0, 4)))
    if pair.first:
        parts.append(Padding(_values(pair), (0, 0, 0, 4)))
    elif row.yours or pair.reference_shape:
        parts.append(Text(f"shape {write_shape(pair.shape or pair.reference_shape)}"))
    if row.difference is not None:
        same = f"the same, both are {pair.stage}" if pair.stage else "the same"
        word, style = (same, "good") if row.difference.ok else ("not the same", "bad")
        figures = f"max abs diff {write_number(row.difference.max_abs_diff)}, relative "
        parts.append(Text(f"{word}: {figures}{write_number(row.difference.relative)}", style))
    if pair.factor is not None:
        parts.append(Text(f"yours is {pair.factor:.4g} times the reference, and nothing else is different"))
    return parts


def printable_lines(source: str) -> list[str]:
    return [printable(line) for line in source.splitlines()]


def _way_there(report: Report, divergence: Divergence) -> RenderableType:
    """A line for each module before it, with its tensors and the largest relative difference among them."""
    rows = [row for row in report.tensors if row.reference != divergence.row.reference]
    at = next(
        (index for index, row in enumerate(report.tensors) if row.reference == divergence.row.reference), len(rows)
    )
    before = [row for row in rows[:at] if row.difference is not None and row.difference.ok]
    table = Table.grid(padding=(0, 2, 0, 0))
    groups = _by_module(before)
    earlier = len(groups) - _BEFORE
    lines = [Text(f"... {count_of(earlier, 'module')} before that, all ok", "note")] if earlier > 0 else []
    for module, tensors in groups[-_BEFORE:]:
        worst = max(row.difference.relative for row in tensors if row.difference is not None)
        names = "  ".join(row.tensor for row in tensors)
        table.add_row(Text("ok", "good"), module or "model", Text(names, overflow="fold"), write_number(worst), "")
    row = divergence.row
    figure = write_number(row.difference.relative) if row.difference else ""
    table.add_row(
        Text("wrong", "bad"),
        row.module or "model",
        Text(row.tensor, "bad"),
        Text(figure, "bad"),
        Text(row.line, "note"),
    )
    after = sum(each.difference is not None and not each.difference.ok for each in report.tensors[at + 1 :])
    rest = [Text(f"... {count_of(after, 'tensor')} after it differ{'s' if after == 1 else ''} too", "note")]
    return Group(*lines, table, *(rest if after else []))


def _by_module(rows: Sequence[TensorRow]) -> list[tuple[str, list[TensorRow]]]:
    groups: list[tuple[str, list[TensorRow]]] = []
    for row in rows:
        if not groups or groups[-1][0] != row.module:
            groups.append((row.module, []))
        groups[-1][1].append(row)
    return groups


def _values(divergence: Divergence | Pair) -> RenderableType:
    """Entries side by side: the first few, and where the two are furthest apart."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="note")
    axes = ", ".join(divergence.axes.split())
    shapes = write_shape(divergence.shape), write_shape(divergence.reference_shape)
    table.add_column(f"({axes})", no_wrap=True)
    sides = ("yours", "reference") if divergence.row.reference else ("yours",)
    for title, shape in zip(sides, shapes, strict=False):
        table.add_column(f"{title} {shape}", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    shown = {entry.index: (entry, "") for entry in divergence.first[:3]}
    shown |= {entry.index: (entry, "furthest apart") for entry in divergence.worst[:2]}  # which may be of the first
    for entry, title in shown.values():
        table.add_row(*_entry(entry)[: len(sides) + 1], Text(title, "note"))
    return table


def _entry(entry: Entry) -> tuple[str, str, str]:
    return write_shape(entry.index), *write_entries(entry.yours, entry.reference)


def _why(divergence: Divergence) -> RenderableType:
    cause = divergence.cause
    if cause.kind == "unknown" and divergence.worst and cause.detail.startswith("Furthest apart"):
        return Text("No simple cause gives it.", "flag")  # the values stand above
    if cause.kind == "unknown":
        return Text.assemble(("No simple cause gives it. ", "flag"), cause.detail)
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row(Text("Why:", "flag"), Text(cause.detail))
    return grid
