"""shapetrace check: are the shape comments true?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shapetrace.cli.options import (
    bos_option,
    ids_option,
    input_option,
    seed_option,
    set_option,
    text_argument,
    tokenizer_option,
)

if TYPE_CHECKING:
    from shapetrace.shape_comments import ShapeComments
    from shapetrace.shape_comments.listed import Listed
    from shapetrace.tokens import Tokenizer


@click.command()
@text_argument
@ids_option
@input_option
@click.option(
    "--model", metavar="NAME", help="As for run. By default those that pyproject.toml lists, else gpt2-small."
)
@seed_option
@set_option
@bos_option
@tokenizer_option
@click.option("--fix", is_flag=True, help="Rewrite the false ones where it is certain what they should say.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    help="github: as annotations of a pull request.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead, as --format json.")
@click.pass_context
def check(
    context: click.Context,
    text: str | None,
    ids: str | None,
    described: tuple[str, ...],
    model: str | None,
    seed: int,
    settings: tuple[str, ...],
    no_bos: bool,
    tokenizer: Tokenizer | None,
    fix: bool,
    style: str,
    as_json: bool,
) -> None:
    """Run the model and compare every shape comment in its source with what the line bound.

    Comments, docstrings, jaxtyping annotations and einops patterns are read. Where TEXT and the inputs leave them open,
    the batch and the sequence get sizes that nothing else in the model has. Without --model, all that
    `[[tool.shapetrace.check]]` in pyproject.toml lists are checked.
    Exits with 0 where all are true, with 1 where some are false.

    \b
    shapetrace check --model 'model.py:GPT(GPTConfig(n_layer=2))'
    shapetrace check --model net.py:ConvNet --input x=float32[3,3,32,32]
    shapetrace check --format github
    """
    from shapetrace.cli.console import note, running_user_code
    from shapetrace.cli.ranks import is_first_rank
    from shapetrace.inputs import Asked
    from shapetrace.shape_comments.findings import merge
    from shapetrace.shape_comments.fixing import fix as fix_files
    from shapetrace.shape_comments.fixing import write
    from shapetrace.shape_comments.listed import Listed, read_listed

    asked = Asked(text, ids, described, not no_bos, tokenizer)
    is_plain = asked == Asked() and not settings
    listed = read_listed() if model is None and is_plain else []
    with running_user_code():
        result = merge([_check(each) for each in listed or [Listed(model or "gpt2-small", asked, settings, seed)]])
    files = fix_files(result.false) if fix else []
    _show(result, "json" if as_json else style)
    if is_first_rank():
        write(files)
    if fix and style == "text" and not as_json:
        for file in files:
            click.echo(file.patch, nl=False)
    fixed = sum(len(file.fixed) for file in files)
    if fix:
        note(f"{fixed} of {len(result.false)} false comments rewritten")
    for each in result.notes:
        note(each)
    context.exit(1 if len(result.false) > fixed else 0)


def _check(listed: Listed) -> ShapeComments:
    from shapetrace.cli.console import note
    from shapetrace.shape_comments.construction import watching_construction
    from shapetrace.shape_comments.probing import check_target
    from shapetrace.target import find_source
    from shapetrace.target.built_in import BuiltIn
    from shapetrace.target.forge import Forge
    from shapetrace.target.target import ignore_advance

    source = find_source(listed.model, listed.settings)
    is_built_in = isinstance(source, BuiltIn | Forge)  # whose shapes need no weights; other code may look at values
    with watching_construction() as built:
        target = source.outline(listed.seed)
    if not is_built_in:
        target = source.complete(target, "auto", listed.seed, note, ignore_advance)
    return check_target(target, listed.asked, listed.seed, is_built_in, note, built)


def _show(result: ShapeComments, style: str) -> None:
    import json

    from shapetrace.shape_comments.findings import to_github, to_plain

    if style == "json":
        click.echo(json.dumps(to_plain(result)))
    elif style == "github":
        click.echo("\n".join(filter(None, (to_github(result), result.summary))))
    else:
        click.echo(str(result))
