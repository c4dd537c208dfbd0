"""shapetrace show: print a stored trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shapetrace.cli.options import (
    depth_option,
    expand_option,
    html_option,
    json_option,
    module_option,
    svg_option,
)

if TYPE_CHECKING:
    from shapetrace.trace import Trace


@click.command()
@click.argument("file", type=click.Path(), metavar="FILE.yaml")
@module_option
@depth_option(None)
@expand_option
@svg_option
@html_option
@json_option
def show(
    file: str,
    module: str | None,
    depth: int | None,
    expand: bool,
    svg: str | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Print a stored trace as `run` printed it.

    \b
    shapetrace show attention.yaml
    """
    from shapetrace.selection import select_modules
    from shapetrace.store import check_outputs, load

    check_outputs((svg, html), (file,))
    trace = load(file)
    trace = select_modules(trace, module) if module is not None else trace
    show_trace(trace, depth, expand, svg, html, as_json)


def show_trace(trace: Trace, depth: int | None, expand: bool, svg: str | None, html: str | None, as_json: bool) -> None:
    """Print the trace, as a tree or as one JSON object; write it as a picture or a page where that is asked for."""
    import json

    from shapetrace.cli.console import show_result, write_output, write_picture
    from shapetrace.headroom import DEEP, headroom
    from shapetrace.render.summary import render_trace
    from shapetrace.render.tree import View
    from shapetrace.schema import to_plain

    if html is not None:
        from shapetrace.render.page import render_trace_page

        write_output(html, render_trace_page(trace))
    screen = render_trace(trace, View(depth, expand))
    if svg is not None:
        write_picture(screen, svg)
    if as_json:
        with headroom(DEEP):
            text = json.dumps(to_plain(trace))
        click.echo(text)
    else:
        show_result(screen)
