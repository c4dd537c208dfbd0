"""shapetrace run: trace a model on a text."""

from __future__ import annotations

import click

from shapetrace.cli.options import (
    bos_option,
    depth_option,
    expand_option,
    html_option,
    json_option,
    model_option,
    module_option,
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
@click.option("--meta", is_flag=True, help="Shapes only, without weights: a model of any size in a moment.")
@set_option
@bos_option
@module_option
@depth_option(None)
@expand_option
@click.option("--stats", is_flag=True, help="Also the min, max, mean and rms of each tensor.")
@click.option("--save", type=click.Path(dir_okay=False), metavar="FILE.yaml", help="Write the trace to a file as well.")
@svg_option
@html_option
@json_option
def run(
    text: str,
    model: str,
    weights: str,
    seed: int,
    meta: bool,
    settings: tuple[str, ...],
    no_bos: bool,
    module: str | None,
    depth: int | None,
    expand: bool,
    stats: bool,
    save: str | None,
    svg: str | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Run the model on TEXT and show every named tensor with its shape and comment.

    \b
    shapetrace run "The cat sat on the mat"
    shapetrace run "Hello" --module blocks.0.attn --save attention.yaml
    shapetrace run --meta --set n_layers=80 --set d_model=8192
    """
    from shapetrace.cli.console import note, progress
    from shapetrace.cli.show import show_trace
    from shapetrace.selection import match_paths, select_modules
    from shapetrace.store import check_writable
    from shapetrace.store import save as save_trace
    from shapetrace.target import build_on_meta, build_target
    from shapetrace.text_run import tokenize, trace_text

    for path in (save, svg, html):
        if path is not None:
            check_writable(path)  # before any work that would be lost
    if meta and (weights != "auto" or stats):
        raise click.UsageError("--meta runs without values: it goes with neither --weights nor --stats")
    target = build_on_meta(model, settings)
    given = tokenize(text, target, bos=not no_bos)  # before any work that a bad text would waste
    if module is not None:
        match_paths(module, [path for path, _ in target.model.named_modules()])
    if not meta:
        total = sum(parameter.numel() for parameter in target.model.parameters())
        with progress(f"drawing {model}'s weights", total) as advance:
            target = build_target(model, settings, weights, seed, note, advance)
    trace = trace_text(target, given, stats)
    if module is not None:
        trace = select_modules(trace, module)
    if save is not None:
        save_trace(trace, save)
    show_trace(trace, depth, expand, svg, html, as_json)
