"""Golden traces: a model's trace beside the one that is kept in a file."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from shapetrace.comparison import Comparison, compare
from shapetrace.recorder import recording
from shapetrace.render.comparison import render_comparison
from shapetrace.store import load
from shapetrace.trace import Trace

_RTOL = 1e-4  # of a tensor's largest value: several times what another processor's rounding makes of it


def record_golden(
    model: Any,
    inputs: tuple[Any, ...],
    named_inputs: dict[str, Any],
    values: bool,
    tokenizer: str | os.PathLike[str] | None = None,
    shape_comments: bool = False,
) -> tuple[Trace, str]:
    """The trace of one call, without gradients, and its false shape comments as text, where those are asked for.

    With figures of each tensor where values are guarded. A model can be named as on the command line: then it has
    random weights, and runs on a text where that is its one input, and without inputs on the default text; in the
    tokens of that folder, or GPT-2's.
    """
    import torch

    if not isinstance(model, str) and shape_comments:
        from shapetrace.shape_comments.checking import check_call

        trace, result = check_call(model, inputs, named_inputs, stats=values)
        return trace, "" if result.all_true else str(result)
    if not isinstance(model, str):
        with torch.no_grad(), recording(model, stats=values) as trace:
            model(*inputs, **named_inputs)
        return trace, ""
    from shapetrace.target.importing import path_restored
    from shapetrace.target.seeding import seeded

    # A test goes on: its own random numbers, and what it can import, are to be what they were.
    with path_restored(), seeded(0):
        built, inputs, named_inputs = _build(model, inputs, named_inputs, tokenizer)
        return record_golden(built, inputs, named_inputs, values, shape_comments=shape_comments)


def _build(
    name: str, inputs: tuple[Any, ...], named_inputs: dict[str, Any], tokenizer: str | os.PathLike[str] | None
) -> tuple[Any, tuple[Any, ...], Any]:
    from shapetrace.inputs import Asked
    from shapetrace.running import prepare
    from shapetrace.target import build_target
    from shapetrace.tokens.folder import load_tokenizer

    target = build_target(name, weights="random")
    text = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], str) else None
    if (not inputs or text is not None) and not named_inputs:
        chosen = None if tokenizer is None else load_tokenizer(tokenizer)
        prepared = prepare(target, Asked(text, tokenizer=chosen))
        inputs, named_inputs = prepared.args, prepared.kwargs
    return target.model, inputs, named_inputs


def describe_difference(path: Path, trace: Trace, comments: bool, values: bool | float) -> str:
    """What is different from the golden trace at the path, as text; "" where nothing is.

    Raises TraceFileError for a file that is no trace.
    """
    rtol = None if values is False else _RTOL if values is True else float(values)
    comparison = compare(load(path), trace, comments=comments, rtol=rtol)
    return "" if comparison.same else _as_text(comparison)


def obtained_path(path: Path) -> Path:
    """Where the trace that differs is put: `attention.obtained.yaml` beside `attention.yaml`."""
    return path.with_name(f"{path.stem}.obtained.yaml")


def _as_text(comparison: Comparison) -> str:
    from rich.console import Console

    from shapetrace.render.theme import THEME

    console = Console(file=io.StringIO(), width=100, theme=THEME, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(render_comparison(comparison))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
