"""shapetrace compare: what changed between two stored traces."""

from __future__ import annotations

import click

from shapetrace.cli.options import json_option, rtol_option


@click.command()
@click.argument("old", type=click.Path(), metavar="OLD.yaml")
@click.argument("new", type=click.Path(), metavar="NEW.yaml")
@click.option("--no-comments", is_flag=True, help="A changed comment is no change.")
@rtol_option
@json_option
@click.pass_context
def compare(context: click.Context, old: str, new: str, no_comments: bool, rtol: float | None, as_json: bool) -> None:
    """Tell what changed from OLD to NEW: shapes, names, order, dtypes, modules, parameters, comments.

    Exits with 0 where nothing did, with 1 where something did.

    \b
    shapetrace compare before.yaml after.yaml
    """
    import json

    from shapetrace.cli.console import show_result
    from shapetrace.comparison import compare as compare_traces
    from shapetrace.comparison import to_plain
    from shapetrace.render.comparison import render_comparison
    from shapetrace.store import load

    comparison = compare_traces(load(old), load(new), comments=not no_comments, rtol=rtol)
    if as_json:
        click.echo(json.dumps(to_plain(comparison)))
    else:
        show_result(render_comparison(comparison))
    context.exit(0 if comparison.same else 1)
