"""Run a model on its inputs and trace it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from shapetrace import forge, gpt2
from shapetrace.inputs import Asked, Inputs, gather_inputs
from shapetrace.meta import on_meta
from shapetrace.recorder import recording
from shapetrace.recorder.calls import Observer
from shapetrace.recorder.crash.site import find_site
from shapetrace.recorder.leaves import walk_leaves
from shapetrace.recorder.paths import name_modules
from shapetrace.recorder.user_code import user_code_of
from shapetrace.sharding import whole_of
from shapetrace.target import Target
from shapetrace.target.placement import device_of
from shapetrace.target.placement import place as place_target
from shapetrace.target.seeding import seeded
from shapetrace.target.vocabulary import vocabulary_of
from shapetrace.tokens import words_of
from shapetrace.trace import Failure, Trace


def prepare(target: Target, asked: Asked, seed: int = 0, meta: bool = False, note: Any = lambda text: None) -> Inputs:
    """What the target is called with; raises ShapetraceError where it needs other inputs than were asked for."""
    model = target.model
    context = model.cfg.n_ctx if isinstance(model, gpt2.Transformer | forge.Transformer) else None
    device = "meta" if meta else "cpu"
    return gather_inputs(target.name, model, asked, vocabulary_of(model), context, seed, device, note)


def place(
    target: Target, inputs: Inputs, device: torch.device | None, dtype: torch.dtype | None
) -> tuple[Target, Inputs]:
    """Both on that device and in that dtype; of None what the model has. Raises ShapetraceError where torch refuses."""
    target = place_target(target, device, dtype)
    return target, inputs.to(device or device_of(target.model), dtype)


def trace_target(
    target: Target,
    inputs: Inputs,
    stats: bool = False,
    meta: bool = False,
    seed: int = 0,
    observe: Observer | None = None,
) -> Trace:
    """Call the target once; with trained weights the trace holds the likeliest next tokens.

    seed: of what the forward draws, such as dropout in training mode. observe: see `recording`.
    An exception of the model's, or its exit, is not raised: the trace ends there, and holds it as `error`.
    """
    output: Any = None
    trace = None
    try:
        with (
            torch.no_grad(),
            seeded(seed),
            on_meta() if meta else nullcontext(),
            recording(target.model, name=target.name, weights=target.weights, stats=stats, observe=observe) as trace,
        ):
            output = target.model(*inputs.args, **inputs.kwargs)
    except Exception:
        if trace is None or trace.error is None:
            raise
    except SystemExit as error:
        if trace is None or trace.error is None:
            raise
        trace = replace(trace, error=_locate(trace.error, error, target.model))
    assert trace is not None
    return replace(trace, input=inputs.given, predictions=_predict(target, inputs, output))


def _locate(failure: Failure, error: SystemExit, model: nn.Module) -> Failure:
    """The failure with the statement that exited: torch calls no hook for an exit, so that none told where it was."""
    site = find_site(error, user_code_of(model))
    if site is None:
        return failure
    owner = site.frame.f_locals.get("self")
    path = next((path for path, module in name_modules(model).items() if module is owner), "")
    return replace(failure, module=path, source=site.source, statement=site.statement)


def _predict(target: Target, inputs: Inputs, output: Any) -> tuple[str, ...]:
    """The likeliest next token at each position, where that means anything; "" where the model tells none."""
    vocabulary = vocabulary_of(target.model)
    count = len(inputs.given.ids) if inputs.given else 0
    logits = _logits_in(output, count, vocabulary) if target.are_trained and count else None
    if logits is None or not bool(logits.isfinite().all()):
        return ()
    words = words_of(logits[0].argmax(-1).tolist(), vocabulary, inputs.tokenizer)
    return ("",) * (count - len(words)) + words


def _logits_in(output: Any, count: int, vocabulary: int | None) -> Tensor | None:
    """The first tensor with a figure for each token id at each position, or at the last: (1, posn, d_vocab)."""
    found = (whole_of(leaf) for _, leaf in walk_leaves("out", output))
    return next((leaf for leaf in found if tuple(leaf.shape) in ((1, count, vocabulary), (1, 1, vocabulary))), None)
