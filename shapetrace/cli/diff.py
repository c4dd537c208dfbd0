"""shapetrace diff: a model beside transformer_lens."""

from __future__ import annotations

import click

from shapetrace.cli.options import (
    bos_option,
    expand_option,
    html_option,
    json_option,
    model_option,
    rtol_option,
    seed_option,
    set_option,
    svg_option,
    weights_option,
)


@click.command()
@click.argument("text", default="The cat sat on the mat")
@model_option
@weights_option
@seed_option
@set_option
@bos_option
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    show_default=True,
    help="Precision of both sides; float64 tells the smallest slip from rounding.",
)
@rtol_option
@click.option("--module", metavar="PATH", help="Only this module: its parameters, trace and attention pattern too.")
@click.option("--head", type=int, help="The head whose pattern `--module` shows; 0 if not given.")
@expand_option
@svg_option
@html_option
@json_option
@click.pass_context
def diff(
    context: click.Context,
    text: str,
    model: str,
    weights: str,
    seed: int,
    settings: tuple[str, ...],
    no_bos: bool,
    dtype: str,
    rtol: float | None,
    module: str | None,
    head: int | None,
    expand: bool,
    svg: str | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Compare every module with transformer_lens on TEXT.

    Exits with 0 where everything matches, with 1 where something differs or a parameter got no weights.

    \b
    shapetrace diff "The cat sat on the mat"
    shapetrace diff --module blocks.0.attn --head 3
    shapetrace diff --dtype float64 --set n_layers=2
    """
    import json

    import torch

    from shapetrace.cli.console import note, progress, show_result, steps, write_picture
    from shapetrace.reference.reference import module_paths
    from shapetrace.render.page import render_report_page
    from shapetrace.render.report import render_module, render_report
    from shapetrace.report import narrow, to_plain
    from shapetrace.selection import find_path
    from shapetrace.store import check_writable, write_text
    from shapetrace.target import build_on_meta, find_weights
    from shapetrace.text_diff import diff_text, pattern_of
    from shapetrace.text_run import tokenize

    for path in (svg, html):
        if path is not None:
            check_writable(path)
    target = build_on_meta(model, settings)
    given = tokenize(text, target, bos=not no_bos)
    if head is not None and module is None:
        raise click.UsageError("--head goes with --module, such as --module blocks.0.attn")
    if module is not None:
        find_path(module, module_paths(target.config.n_layers))
    total = sum(parameter.numel() for parameter in target.model.parameters())
    with progress(f"drawing {model}'s weights", total) as advance:
        state, origin = find_weights(model, settings, weights, seed, note, advance, getattr(torch, dtype))
    with steps() as say:
        result = diff_text(target.config, state, origin, given, rtol, say)
    report = narrow(result.report, module) if module is not None else result.report
    if html is not None:
        write_text(html, render_report_page(report))
    if module is not None:
        pattern = pattern_of(result, module, head)
        screen = render_module(report, module, result.trace, pattern, given.tokens, head or 0)
    else:
        screen = render_report(report, expand)
    if svg is not None:
        write_picture(screen, svg)
    if as_json:
        click.echo(json.dumps(to_plain(report)))
    else:
        show_result(screen)
    context.exit(0 if report.ok else 1)
