"""How a Trace and a Report show themselves: in rich's print, and in a notebook."""

from __future__ import annotations

import io
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

from shapetrace.render.report import render_report
from shapetrace.render.summary import render_trace
from shapetrace.render.theme import THEME
from shapetrace.report import Report
from shapetrace.trace import Trace

_PRE = "<pre style='line-height:1.35;font-family:ui-monospace,monospace'>{code}</pre>"


@dataclass(frozen=True, slots=True)
class Themed:
    """Something of ours for a console that does not know our colours."""

    inner: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with console.use_theme(THEME):
            yield from console.render(self.inner, options)


def as_rich(shown: Trace | Report) -> RenderableType:
    """The screen of `run` or of `diff`."""
    return Themed(render_trace(shown) if isinstance(shown, Trace) else render_report(shown))


def as_html(shown: Trace | Report) -> str:
    """The same as a piece of HTML, its colours in it."""
    console = Console(record=True, width=100, file=io.StringIO(), highlight=False, markup=False, emoji=False)
    console.print(as_rich(shown))
    return console.export_html(inline_styles=True, code_format=_PRE)
