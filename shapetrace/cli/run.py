"""shapetrace run: trace a model on a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shapetrace.cli.options import (
    bos_option,
    cast_option,
    depth_option,
    device_option,
    expand_option,
    html_option,
    ids_option,
    input_option,
    inputs_of,
    json_option,
    model_option,
    module_option,
    parallel_option,
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
@ids_option
@input_option
@model_option
@weights_option
@seed_option
@click.option("--meta", is_flag=True, help="Shapes only, without weights: a model of any size in a moment.")
@device_option
@cast_option
@set_option
@bos_option
@tokenizer_option
@parallel_option
@module_option
@depth_option(None)
@expand_option
@click.option("--train", is_flag=True, help="In training mode: dropout and batch statistics at work.")
@click.option("--stats", is_flag=True, help="Also the min, max, mean and rms of each tensor.")
@click.option("--save", type=click.Path(dir_okay=False), metavar="FILE.yaml", help="Write the trace to a file as well.")
@svg_option
@html_option
@json_option
@click.pass_context
def run(
    context: click.Context,
    text: str | None,
    ids: str | None,
    described: tuple[str, ...],
    model: str,
    weights: str,
    seed: int,
    meta: bool,
    device: torch.device | None,
    dtype: torch.dtype | None,
    settings: tuple[str, ...],
    no_bos: bool,
    tokenizer: Tokenizer | None,
    parallel: str | None,
    module: str | None,
    depth: int | None,
    expand: bool,
    train: bool,
    stats: bool,
    save: str | None,
    svg: str | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Run the model on TEXT and show every named tensor with its shape and comment.

    Without TEXT it runs on "The cat sat on the mat"; a model that takes no token ids runs on what `--input` says.
    Exits with 1 where the forward raises: the screen then shows how far it came, and what failed on what.

    \b
    shapetrace run "The cat sat on the mat"
    shapetrace run --model 'model.py:GPT(GPTConfig(n_layer=2))' --save gpt.yaml
    shapetrace run --model net.py:ConvNet --input x=float32[1,3,32,32]
    shapetrace run "Hello" --module blocks.0.attn
    shapetrace run --device cuda --dtype bfloat16
    shapetrace run --meta --set n_layers=80 --set d_model=8192
    """
    from shapetrace.cli.console import note, progress, running_user_code
    from shapetrace.cli.ranks import as_one_of_ranks
    from shapetrace.cli.show import show_trace
    from shapetrace.inputs import Asked
    from shapetrace.parallel.agreement import lines_of
    from shapetrace.recorder.parameters import count_parameters
    from shapetrace.recorder.paths import name_modules
    from shapetrace.running import place, prepare, trace_target
    from shapetrace.selection import match_paths, select_modules
    from shapetrace.store import check_outputs
    from shapetrace.store import save as save_trace
    from shapetrace.target import find_source

    if meta and (weights != "auto" or stats or parallel):
        raise click.UsageError("--meta runs without values: it goes with none of --weights, --stats and --parallel")
    if meta and device is not None:
        raise click.UsageError("--meta and --device are two places to run: one of them")
    with as_one_of_ranks(parallel) as ranks:
        check_outputs((save, svg, html), inputs_of(model, weights, *described))  # before any work that would be lost
        with running_user_code():
            source = find_source(model, settings)
            target = source.outline(seed, meta)
            inputs = prepare(
                target, Asked(text, ids, described, not no_bos, tokenizer), seed, meta, note
            )  # before the weights are had
            if module is not None:
                match_paths(module, list(name_modules(target.model)))
            if not meta:
                total = count_parameters(target.model)
                with progress(f"drawing {model}'s weights", total) as advance:
                    target = source.complete(target, weights, seed, note, advance)
            ranks.settle(device)
            target, inputs = place(target, inputs, device, dtype)
            target.model.train(train)
            ranks.spread(target.model, target.name, note)
            with ranks.running():
                trace = trace_target(target, inputs, stats, meta, seed)
        disagreements = ranks.compare(lines_of(trace), note, trace.error)
        ranks.warn_if_whole(note)
        if ranks.is_first:
            if module is not None:
                trace = select_modules(trace, module)
            if save is not None:
                save_trace(trace, save)
            show_trace(trace, depth, expand, svg, html, as_json)
        for each in disagreements:
            click.echo(f"error: {each}", err=True)
        context.exit(1 if trace.error or disagreements else 0)
