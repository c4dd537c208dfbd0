"""shapetrace diff: a model beside transformer_lens, or beside another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shapetrace.cli.options import (
    bos_option,
    device_option,
    dtype_option,
    expand_option,
    html_option,
    ids_option,
    inputs_of,
    json_option,
    model_option,
    parallel_option,
    rtol_option,
    seed_option,
    set_option,
    svg_option,
    text_argument,
    tokenizer_option,
    weights_option,
)

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shapetrace.tokens import Tokenizer
LENS = "transformer_lens"


@click.command()
@text_argument
@ids_option
@model_option
@click.option(
    "--reference",
    default=LENS,
    show_default=True,
    metavar="NAME",
    help="What to compare with: any GPT-2 that --model could name, such as gpt2-small, 'gpt2-small?n_layers=2' or "
    "other.py:GPT.",
)
@weights_option
@seed_option
@set_option
@bos_option
@tokenizer_option
@device_option
@dtype_option(
    "float32", "Precision of both sides. float64 tells the smallest slip from rounding, bfloat16 none that is small."
)
@rtol_option
@parallel_option
@click.option("--module", metavar="PATH", help="Only this module: its parameters, trace and attention pattern too.")
@click.option("--head", type=int, help="The head whose pattern `--module` shows; 0 if not given.")
@click.option("--tensor", metavar="NAME", help="Only this tensor, of either side, beside its match: blocks.0.attn.q.")
@click.option("--n-heads", type=click.IntRange(min=1), help="Attention heads, where the model does not tell.")
@click.option(
    "--weights-map",
    type=click.Path(),
    metavar="FILE.yaml",
    help="For a layout of your own: your key to TransformerLens' name, a line each.",
)
@expand_option
@svg_option
@html_option
@json_option
@click.pass_context
def diff(
    context: click.Context,
    text: str | None,
    ids: str | None,
    model: str,
    reference: str,
    weights: str,
    seed: int,
    settings: tuple[str, ...],
    no_bos: bool,
    tokenizer: Tokenizer | None,
    device: torch.device | None,
    dtype: torch.dtype,
    rtol: float | None,
    parallel: str | None,
    module: str | None,
    head: int | None,
    tensor: str | None,
    n_heads: int | None,
    weights_map: str | None,
    expand: bool,
    svg: str | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Compare with transformer_lens, or another model, on TEXT: what is wrong first, and why.

    Without TEXT it runs on "The cat sat on the mat". A model of your own may keep its weights in TransformerLens'
    layout, Hugging Face's, nanoGPT's, forge's or the common textbook's; both sides get the same random ones, or your
    own where `--weights` names a file.
    Exits with 0 where the logits agree, with 1 where something is wrong or a parameter got no weights.

    \b
    shapetrace diff "The cat sat on the mat"
    shapetrace diff --model 'model.py:GPT(GPTConfig(n_layer=2))'
    shapetrace diff --model forge-small --reference gpt2-small
    shapetrace diff --model model.py:GPT --tensor blocks.0.attn.q
    shapetrace diff --module blocks.0.attn --head 3
    shapetrace diff --dtype float64 --set n_layers=2
    shapetrace diff --device cuda --dtype bfloat16
    """
    import json

    from shapetrace.cli.console import (
        note,
        progress,
        running_user_code,
        show_result,
        steps,
        write_output,
        write_picture,
    )
    from shapetrace.cli.ranks import as_one_of_ranks
    from shapetrace.errors import ShapetraceError
    from shapetrace.inputs import Asked
    from shapetrace.parallel.agreement import lines_of_report
    from shapetrace.recorder.parameters import count_parameters
    from shapetrace.recorder.paths import name_modules
    from shapetrace.render.page import render_report_page
    from shapetrace.render.report import render_asked, render_module, render_report
    from shapetrace.report import narrow, to_plain
    from shapetrace.running import prepare
    from shapetrace.selection import find_path
    from shapetrace.store import check_outputs
    from shapetrace.target import find_reference, find_source
    from shapetrace.target.built_in import BuiltIn
    from shapetrace.target.placement import place
    from shapetrace.target.target import ignore_advance
    from shapetrace.text_diff import Wanted, diff_target, diff_text, pattern_of

    with as_one_of_ranks(parallel) as ranks:
        check_outputs((svg, html), inputs_of(model, reference, weights, weights_map or ""))
        with running_user_code():
            source = find_source(model, settings)
            target = source.outline(seed)
            other = find_reference(reference, source) if reference != LENS else None
            other_outline = other.outline(seed) if other else None
            given = prepare(target, Asked(text, ids, None, not no_bos, tokenizer), seed, note=note).given
        if given is None:
            raise ShapetraceError(f"{model} takes no token ids, and a diff compares language models", "give a GPT-2")
        if head is not None and module is None:
            raise click.UsageError("--head goes with --module, such as --module blocks.0.attn")
        if tensor is not None and module is not None:
            raise click.UsageError("--tensor and --module are two things to look at: one of them at a time")
        wanted = Wanted(rtol, tensor, module is not None, n_heads, weights_map, tokenizer)
        if module is not None:
            find_path(module, list(name_modules(target.model)))
        ranks.settle(device)
        with progress(f"drawing {model}'s weights", count_parameters(target.model)) as advance, running_user_code():
            beside = None
            if other is not None and other_outline is not None:
                beside = other.complete(other_outline, "random", seed, note, ignore_advance)
                beside = place(beside, device, dtype)
            if isinstance(source, BuiltIn) and beside is None:
                state, origin = source.find_weights(target.model, weights, seed, note, advance, dtype)
            else:
                target = source.complete(target, weights, seed, note, advance)
                target = place(target, device, dtype)

        def spread(model: nn.Module) -> None:
            ranks.spread(model, target.name, note)

        with steps() as say, running_user_code(), ranks.running():
            if isinstance(source, BuiltIn) and beside is None:
                result = diff_text(source.config, state, origin, given, wanted, say, spread, device)
            else:
                spread(target.model)
                result = diff_target(target, given, wanted, seed, say, beside)
        disagreements = ranks.compare(lines_of_report(result.report), note)
        ranks.warn_if_whole(note)
        report = narrow(result.report, module) if module is not None else result.report
        if html is not None and ranks.is_first:
            write_output(html, render_report_page(report))
        if tensor is not None:
            screen = render_asked(report)
        elif module is not None and result.trace is not None:
            pattern = pattern_of(result, module, head)
            screen = render_module(report, module, result.trace, pattern, given.tokens, head or 0)
        else:
            screen = render_report(report, expand)
        if svg is not None and ranks.is_first:
            write_picture(screen, svg)
        if as_json:
            click.echo(json.dumps(to_plain(report)))
        else:
            show_result(screen)
        for each in disagreements:
            click.echo(f"error: {each}", err=True)
        context.exit(0 if report.ok and not disagreements else 1)
