"""shapetrace annotate: the model's source with the shapes that its lines bind."""

from __future__ import annotations

import click

from shapetrace.cli.options import bos_option, model_option, module_option, seed_option, set_option


@click.command()
@click.argument("text", default="The cat sat on the mat")
@model_option
@seed_option
@set_option
@bos_option
@module_option
@click.option("--write", is_flag=True, help="Put the shapes into the files, as comments where there is none yet.")
@click.option("--diff", "as_diff", is_flag=True, help="Print what --write would change, for `patch -p1`.")
def annotate(
    text: str,
    model: str,
    seed: int,
    settings: tuple[str, ...],
    no_bos: bool,
    module: str | None,
    write: bool,
    as_diff: bool,
) -> None:
    """Run the model on TEXT and show its source with the shape of each tensor at the end of the line that binds it.

    \b
    shapetrace annotate "The cat sat on the mat" --module blocks.0.attn
    shapetrace annotate --diff > shapes.patch
    """
    import torch

    from shapetrace.annotation import annotate as annotate_traces
    from shapetrace.annotation import write_annotations, write_patch
    from shapetrace.cli.console import note, show_listing
    from shapetrace.render.listing import render_listing
    from shapetrace.render.theme import count_of
    from shapetrace.target import build_on_meta
    from shapetrace.text_run import tokenize, trace_text

    if write and as_diff:
        raise click.UsageError("--diff shows what --write would change: one of them at a time")
    torch.manual_seed(seed)
    target = build_on_meta(model, settings)
    files = annotate_traces(trace_text(target, tokenize(text, target, bos=not no_bos)), module=module)
    if not write and not as_diff:
        show_listing(render_listing(files))
        return
    for file in files:
        if file.missing:
            note(f"{file.name} is not available: {file.missing}")
    if write:
        write_annotations(files)
        for file in files:
            if not file.missing:
                click.echo(f"{file.name}: {count_of(len(file.comments), 'comment')} written")
    else:
        click.echo(b"".join(map(write_patch, files)), nl=False)
