"""shapetrace attention: where the heads of a layer look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shapetrace.cli.options import (
    bos_option,
    cast_option,
    device_option,
    html_option,
    ids_option,
    input_option,
    inputs_of,
    json_option,
    model_option,
    seed_option,
    set_option,
    svg_option,
    text_argument,
    tokenizer_option,
    weights_option,
)

if TYPE_CHECKING:
    import torch

    from shapetrace.tokens import Tokenizer


@click.command()
@text_argument
@click.option(
    "--layer",
    type=click.IntRange(min=0),
    help="The layer, by the number in its path; else the first.",
)
@click.option("--head", type=click.IntRange(min=0), help="Only this head, in figures; else all heads, as small maps.")
@click.option("--module", metavar="PATH", help="The attention module, where a layer has several.")
@ids_option
@input_option
@model_option
@weights_option
@seed_option
@device_option
@cast_option
@set_option
@bos_option
@tokenizer_option
@svg_option
@html_option
@json_option
@click.pass_context
def attention(
    context: click.Context,
    text: str | None,
    layer: int | None,
    head: int | None,
    module: str | None,
    ids: str | None,
    described: tuple[str, ...],
    model: str,
    weights: str,
    seed: int,
    device: torch.device | None,
    dtype: torch.dtype | None,
    settings: tuple[str, ...],
    no_bos: bool,
    tokenizer: Tokenizer | None,
    svg: str | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Show how much each position of TEXT reads of each other, in one layer of the model.

    The pattern is found by its values, whatever it is called: rows of weights that sum to 1, bound to a name.
    Exits with 1 where the forward raises.

    \b
    shapetrace attention "The cat sat on the mat" --layer 5
    shapetrace attention "The cat sat on the mat" --layer 0 --head 3
    shapetrace attention --model 'hf:gpt2?attn_implementation=eager' --html heads.html
    """
    import json

    from shapetrace.cli.console import note, progress, running_user_code, show_result, write_output, write_picture
    from shapetrace.inputs import Asked
    from shapetrace.pattern_search import find_patterns
    from shapetrace.patterns import to_plain
    from shapetrace.recorder.parameters import count_parameters
    from shapetrace.render.attention import render_pattern
    from shapetrace.render.failure import render_failure
    from shapetrace.render.page import render_pattern_page
    from shapetrace.running import place, prepare
    from shapetrace.store import check_outputs
    from shapetrace.target import find_source

    check_outputs((svg, html), inputs_of(model, weights, *described))
    if layer is not None and module is not None:
        raise click.UsageError("--layer and --module are two ways to name one layer: one of them")
    with running_user_code():
        source = find_source(model, settings)
        target = source.outline(seed)
        inputs = prepare(target, Asked(text, ids, described, not no_bos, tokenizer), seed, note=note)
        with progress(f"drawing {model}'s weights", count_parameters(target.model)) as advance:
            target = source.complete(target, weights, seed, note, advance)
        target, inputs = place(target, inputs, device, dtype)
        found = find_patterns(target, inputs, seed)
    if found.trace.error:
        show_result(render_failure(found.trace.error))
        context.exit(1)
    pattern = found.choose(layer, head, module)
    size = len(next(iter(pattern.heads.values()))[0])
    tokens = inputs.given.tokens if inputs.given else ()
    labels = tokens if len(tokens) == size else tuple(map(str, range(size)))
    if html is not None:
        write_output(html, render_pattern_page(target.name, target.weights, pattern, labels))
    screen = render_pattern(target.name, target.weights, pattern, labels)
    if svg is not None:
        write_picture(screen, svg)
    if as_json:
        click.echo(json.dumps(to_plain(pattern, target.name, target.weights, labels)))
    else:
        show_result(screen)
