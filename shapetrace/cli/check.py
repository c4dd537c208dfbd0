"""shapetrace check: are the shape comments true?"""

from __future__ import annotations

import click

from shapetrace.cli.options import (
    bos_option,
    ids_option,
    input_option,
    json_option,
    model_option,
    seed_option,
    set_option,
    text_argument,
)


@click.command()
@text_argument
@ids_option
@input_option
@model_option
@seed_option
@set_option
@bos_option
@json_option
@click.pass_context
def check(
    context: click.Context,
    text: str | None,
    ids: str | None,
    described: tuple[str, ...],
    model: str,
    seed: int,
    settings: tuple[str, ...],
    no_bos: bool,
    as_json: bool,
) -> None:
    """Run the model and compare every shape comment in its source with what the line bound.

    Comments, docstrings, jaxtyping annotations and einops patterns are read. Where TEXT and the inputs leave them open,
    the batch and the sequence get sizes that nothing else in the model has.
    Exits with 0 where all are true, with 1 where some are false.

    \b
    shapetrace check --model 'model.py:GPT(GPTConfig(n_layer=2))'
    shapetrace check --model net.py:ConvNet --input x=float32[3,3,32,32]
    """
    import json

    from shapetrace.cli.console import note, running_user_code
    from shapetrace.inputs import Asked
    from shapetrace.shape_comments.findings import to_plain
    from shapetrace.shape_comments.probing import check_target
    from shapetrace.target import find_source
    from shapetrace.target.built_in import BuiltIn
    from shapetrace.target.target import ignore_advance

    with running_user_code():
        source = find_source(model, settings)
        is_built_in = isinstance(source, BuiltIn)  # whose shapes need no weights; other code may look at values
        target = source.outline(seed)
        if not is_built_in:
            target = source.complete(target, "auto", seed, note, ignore_advance)
        result = check_target(target, Asked(text, ids, described, not no_bos), seed, is_built_in, note)
    if as_json:
        click.echo(json.dumps(to_plain(result)))
    else:
        click.echo(str(result))
        for each in result.notes:
            note(each)
    context.exit(0 if result.all_true else 1)
