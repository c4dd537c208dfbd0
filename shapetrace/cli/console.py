"""Where a command prints: data on standard output, notes and progress on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from io import StringIO

    from rich.console import Console, RenderableType
    from rich.segment import Segment
    from rich.text import Text


def note(text: str) -> None:
    """Tell what the reader should know, beside the data."""
    click.echo(f"note: {text}", err=True)


def show_result(result: RenderableType) -> None:
    """Print to standard output, as wide as the terminal or 80 columns."""
    from rich.segment import Segment, Segments

    console = _console()
    for line in console.render_lines(result, pad=False):
        console.print(Segments([*_without_end_spaces(line), Segment.line()]), end="")


def show_listing(listing: Text) -> None:
    """Print source code: its lines are folded by the terminal, and in a file not at all."""
    _console().print(listing, soft_wrap=True)


def write_picture(result: RenderableType, path: str) -> None:
    """Write what `show_result` would print as an SVG file."""
    import io

    console = _console(record=io.StringIO())
    console.print(result)
    write_output(path, console.export_svg(title="shapetrace"))


def write_output(path: str, text: str) -> None:
    """Write the file, once where several processes run the command."""
    from shapetrace.cli.ranks import is_first_rank
    from shapetrace.store import write_text

    if is_first_rank():
        write_text(path, text)


def _without_end_spaces(line: list[Segment]) -> list[Segment]:
    """The columns of a table are padded; what is copied from a terminal should not be."""
    from rich.segment import Segment

    kept = list(line)
    while kept and not kept[-1].text.strip():
        kept.pop()
    return [*kept[:-1], Segment(kept[-1].text.rstrip(), kept[-1].style)] if kept else []


@contextmanager
def running_user_code() -> Iterator[None]:
    """What the user's code prints while the block runs goes to standard error, beside the data."""
    import sys
    from contextlib import redirect_stdout

    with redirect_stdout(sys.stderr):
        yield


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while the block runs, where that is a terminal; yields what advances it."""
    from rich.progress import Progress

    console = _console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda amount: bar.advance(task, amount)


@contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """A spinner on standard error while the block runs, where that is a terminal; yields what names the step."""
    console = _console(stderr=True)
    if not console.is_terminal:
        yield lambda step: None
        return
    with console.status("") as status:
        yield status.update


def _console(stderr: bool = False, record: StringIO | None = None) -> Console:
    from rich.console import Console

    from shapetrace.render.theme import THEME

    class Pipe(Console):
        """Whose reader may have seen enough, which for rich is a failure of ours."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    is_recorded = record is not None
    return Pipe(stderr=stderr, file=record, record=is_recorded, theme=THEME, highlight=False, markup=False, emoji=False)
