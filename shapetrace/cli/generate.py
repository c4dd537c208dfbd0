"""shapetrace generate: how the model continues a text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from shapetrace.cli.options import (
    bos_option,
    cast_option,
    device_option,
    ids_option,
    input_option,
    json_option,
    model_option,
    seed_option,
    set_option,
    text_argument,
    tokenizer_option,
    weights_option,
)

if TYPE_CHECKING:
    import torch

    from shapetrace.continuation import Step
    from shapetrace.tokens import Tokenizer


def _check_temperature(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 <= value < math.inf:
        raise click.BadParameter(f"{value:g} is not a number from 0 up; 0 is greedy")
    return value


@click.command()
@text_argument
@click.option("-n", "count", type=click.IntRange(min=1), default=20, show_default=True, help="How many tokens more.")
@click.option(
    "--temperature", type=float, callback=_check_temperature, help="Lower is surer, higher more varied.  [default: 1.0]"
)
@click.option("--top-k", type=click.IntRange(min=1), help="Draw only from so many of the likeliest tokens.")
@click.option("--greedy", is_flag=True, help="Always the likeliest token: the same as --temperature 0.")
@click.option("--trace", is_flag=True, help="Show each step: hidden state, logits, candidates, the choice.")
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
@json_option
def generate(
    text: str | None,
    count: int,
    temperature: float | None,
    top_k: int | None,
    greedy: bool,
    trace: bool,
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
    as_json: bool,
) -> None:
    """Continue TEXT token by token, and with --trace show where each token comes from.

    Any language model will do: one that returns logits, by themselves or in a tuple, at each position or the last one.
    The same seed makes the same text.

    \b
    shapetrace generate "The cat sat on the" --greedy
    shapetrace generate "The cat" -n 5 --temperature 0.8 --top-k 40 --trace
    shapetrace generate --model model.py:GPT --weights model.safetensors
    """
    import json

    from shapetrace.cli.console import note, progress, running_user_code, show_result
    from shapetrace.continuation import to_plain
    from shapetrace.errors import ShapetraceError
    from shapetrace.generation import Sampling
    from shapetrace.generation import generate as generate_steps
    from shapetrace.inputs import Asked, gather_inputs
    from shapetrace.recorder.parameters import count_parameters
    from shapetrace.render.continuation import render_step
    from shapetrace.render.theme import count_of, printable_text
    from shapetrace.running import place
    from shapetrace.target import find_source
    from shapetrace.target.vocabulary import vocabulary_of

    if greedy and temperature:
        raise click.UsageError("--greedy is --temperature 0: one of them")
    sampling = Sampling(0.0 if greedy else 1.0 if temperature is None else temperature, top_k, seed)
    with running_user_code():
        source = find_source(model, settings)
        target = source.outline(seed)
        asked = Asked(text, ids, described, not no_bos, tokenizer)
        inputs = gather_inputs(target.name, target.model, asked, vocabulary_of(target.model), seed=seed, note=note)
        with progress(f"drawing {model}'s weights", count_parameters(target.model)) as advance:
            target = source.complete(target, weights, seed, note, advance)
        target, inputs = place(target, inputs, device, dtype)
        steps = generate_steps(target, inputs, count, sampling)
    if not target.are_trained:
        unless = "" if target.weights.startswith("random") else ", unless these are trained"
        note(f"the weights are {target.weights}: the text means nothing{unless}")
    taken: list[Step] = []
    while True:
        try:
            with running_user_code():
                step = next(steps, None)
        except ShapetraceError:
            if taken and not (trace or as_json):
                click.echo()  # the message begins a line
            raise
        if step is None:
            break
        if step.read < step.given and not taken:
            note(f"{target.name} reads {step.read} tokens at once: of the {step.given} of the text the last ones")
        if trace and not as_json:
            click.echo("\n" if taken else "", nl=False)
            show_result(render_step(step, sampling.temperature, top_k))
        elif not as_json:
            click.echo(printable_text(step.new_text if taken else step.text), nl=False)
        taken.append(step)
    if as_json:
        click.echo(json.dumps(to_plain(taken, target.name, target.weights, sampling.temperature, top_k, seed, trace)))
    elif not trace:
        click.echo()
    if taken[-1].ends:
        note(f"the model ended the text after {count_of(len(taken) - 1, 'token')}, with {taken[-1].chosen.word}")
