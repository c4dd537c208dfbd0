"""shapetrace annotate: the model's source with the shapes that its lines bind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shapetrace.cli.options import (
    bos_option,
    ids_option,
    input_option,
    model_option,
    module_option,
    seed_option,
    set_option,
    text_argument,
    tokenizer_option,
)

if TYPE_CHECKING:
    from shapetrace.tokens import Tokenizer


@click.command()
@text_argument
@ids_option
@input_option
@model_option
@seed_option
@set_option
@bos_option
@tokenizer_option
@module_option
@click.option("--write", is_flag=True, help="Put the shapes into the files, as comments where there is none yet.")
@click.option("--diff", "as_diff", is_flag=True, help="Print what --write would change, for `patch -p1`.")
@click.pass_context
def annotate(
    context: click.Context,
    text: str | None,
    ids: str | None,
    described: tuple[str, ...],
    model: str,
    seed: int,
    settings: tuple[str, ...],
    no_bos: bool,
    tokenizer: Tokenizer | None,
    module: str | None,
    write: bool,
    as_diff: bool,
) -> None:
    """Run the model on TEXT and show its source with the shape of each tensor at the end of the line that binds it.

    Exits with 1 where the forward raises: the source then has the shapes that were seen until there.

    \b
    shapetrace annotate --model 'model.py:GPT(GPTConfig(n_layer=2))' --write
    shapetrace annotate --model model.py:GPT --diff > shapes.patch
    shapetrace annotate "The cat sat on the mat" --module blocks.0.attn
    """
    import os
    import shlex

    from shapetrace.annotation import annotate as annotate_traces
    from shapetrace.annotation import patch_folder, write_annotations, write_patch
    from shapetrace.cli.console import note, running_user_code, show_listing
    from shapetrace.cli.ranks import is_first_rank
    from shapetrace.inputs import Asked
    from shapetrace.render.failure import shorten
    from shapetrace.render.listing import render_listing
    from shapetrace.render.theme import count_of
    from shapetrace.running import prepare, trace_target
    from shapetrace.target import find_source
    from shapetrace.target.built_in import BuiltIn
    from shapetrace.target.forge import Forge
    from shapetrace.target.target import ignore_advance

    if write and as_diff:
        raise click.UsageError("--diff shows what --write would change: one of them at a time")
    with running_user_code():
        source = find_source(model, settings)
        # Which needs no weights for its shapes; other code may look at values.
        is_built_in = isinstance(source, BuiltIn | Forge)
        target = source.outline(seed)
        inputs = prepare(target, Asked(text, ids, described, not no_bos, tokenizer), seed, is_built_in, note)
        if not is_built_in:
            target = source.complete(target, "auto", seed, note, ignore_advance)
        trace = trace_target(target, inputs, meta=is_built_in, seed=seed)
    if trace.error:
        note(
            f"the forward raised {shorten(str(trace.error))}"
            + (f", in {trace.error.source}" if trace.error.source else "")
        )
    files = annotate_traces(trace, module=module)
    if not write and not as_diff:
        show_listing(render_listing(files))
        context.exit(1 if trace.error else 0)
    for file in files:
        if file.missing:
            note(f"{file.name} is not available: {file.missing}")
    if write:
        if is_first_rank():
            write_annotations(files)
        for file in files:
            if not file.missing:
                click.echo(f"{file.name}: {count_of(len(file.comments), 'comment')} written")
    else:
        folder = patch_folder(files)
        if folder != os.getcwd():
            note(f"the paths in the patch start from {folder}: apply it with `patch -p1 -d {shlex.quote(folder)}`")
        click.echo(b"".join(write_patch(file, folder) for file in files), nl=False)
    context.exit(1 if trace.error else 0)
