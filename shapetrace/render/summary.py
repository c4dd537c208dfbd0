"""What stands around the tree: the headline, the tokens with their predictions, and the totals."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shapetrace.parameters import count_bytes, unique_parameters
from shapetrace.render.failure import render_failure
from shapetrace.render.theme import count_of, printable, quoted, separated, write_bytes
from shapetrace.render.tree import EVERYTHING, View, render_trees
from shapetrace.trace import InputRecord, Trace, tensors_of, walk_calls, walk_modules

_MOST_TOKENS = 20  # a longer text is told by its first tokens, unless everything is to be shown


def render_trace(trace: Trace, view: View = EVERYTHING) -> RenderableType:
    """The whole screen of `run` and `show`."""
    parts: list[RenderableType] = [_headline(trace)]
    parts += render_trees(trace, view)
    if trace.input:
        parts.append(_tokens(trace.input, trace.predictions, view))
    if trace.input and not trace.predictions and trace.model.weights.startswith("random"):
        parts.append(Text("The weights are random: shapes are exact, predictions mean nothing and are not shown."))
    if trace.error:
        parts.append(render_failure(trace.error))
    parts.append(_totals(trace))
    return separated(parts)


def _headline(trace: Trace) -> Text:
    headline = Text(printable(trace.model.name), "path")
    if trace.model.weights:
        headline.append(f"  weights: {printable(trace.model.weights)}", "default")
    if trace.model.mesh:
        headline.append(f"  mesh: {printable(trace.model.mesh)}", "default")
    return headline


def _tokens(given: InputRecord, predictions: tuple[str, ...], view: View) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="note")
    for title in ("posn", "id"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("token", no_wrap=True)
    if predictions:
        table.add_column("most likely next", no_wrap=True)
    shown = len(given.ids) if view.expand else _MOST_TOKENS
    for position, (index, token) in enumerate(zip(given.ids[:shown], given.tokens, strict=False)):
        likeliest = [Text(quoted(each) if each else "", "count") for each in predictions[position : position + 1]]
        table.add_row(str(position), str(index), Text(quoted(token), "name"), *likeliest)
    left = len(given.ids) - shown
    return Group(table, f"... and {count_of(left, 'more token')}, shown with --expand") if left > 0 else table


def _totals(trace: Trace) -> Text:
    calls = [each for call in trace.calls for each in walk_calls(call)]
    tensors = sum(each.has_shape for call in calls for each in tensors_of(call))
    records = unique_parameters(walk_modules(trace)).values()
    parameters = count_of(sum(record.size for record in records), "parameter")
    frozen = sum(record.size for record in records if not record.trainable)
    size = f"{write_bytes(count_bytes(records))}" + (f", {frozen:,} of them frozen" if frozen else "")
    return Text(f"{count_of(len(calls), 'module call')}, {count_of(tensors, 'tensor')}, {parameters} ({size})")
