"""Run a model on its inputs and trace it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from shapetrace.gpt2 import Transformer
from shapetrace.inputs import Asked, Inputs, gather_inputs
from shapetrace.recorder import recording
from shapetrace.recorder.leaves import walk_leaves
from shapetrace.target import Target
from shapetrace.target.seeding import seeded
from shapetrace.target.vocabulary import vocabulary_of
from shapetrace.tokens import words_of
from shapetrace.trace import Trace


def prepare(target: Target, asked: Asked, seed: int = 0, meta: bool = False, note: Any = lambda text: None) -> Inputs:
    """What the target is called with; raises ShapetraceError where it needs other inputs than were asked for."""
    model = target.model
    context = model.cfg.n_ctx if isinstance(model, Transformer) else None
    device = "meta" if meta else "cpu"
    return gather_inputs(target.name, model, asked, vocabulary_of(model), context, seed, device, note)


def trace_target(target: Target, inputs: Inputs, stats: bool = False, meta: bool = False, seed: int = 0) -> Trace:
    """Call the target once; with trained weights the trace holds the likeliest next tokens.

    seed: of what the forward draws, such as dropout in training mode.
    An exception of the model's, or its exit, is not raised: the trace ends there, and holds it as `error`.
    """
    output: Any = None
    trace = None
    try:
        with (
            torch.no_grad(),
            seeded(seed),
            torch.device("meta") if meta else nullcontext(),
            recording(target.model, name=target.name, weights=target.weights, stats=stats) as trace,
        ):
            output = target.model(*inputs.args, **inputs.kwargs)
    except (Exception, SystemExit):
        if trace is None or trace.error is None:
            raise
    assert trace is not None
    return replace(trace, input=inputs.given, predictions=_predict(target, inputs, output))


def _predict(target: Target, inputs: Inputs, output: Any) -> tuple[str, ...]:
    """The likeliest next token at each position, where that means anything."""
    vocabulary = vocabulary_of(target.model)
    logits = _logits_in(output, len(inputs.given.ids), vocabulary) if target.are_trained and inputs.given else None
    if logits is None or not bool(logits.isfinite().all()):
        return ()
    return words_of(logits[0].argmax(-1).tolist(), vocabulary)


def _logits_in(output: Any, count: int, vocabulary: int | None) -> Tensor | None:
    """The first tensor of the output with a figure for each token id at each position: (1, posn, d_vocab)."""
    found = (leaf for _, leaf in walk_leaves("out", output) if tuple(leaf.shape) == (1, count, vocabulary))
    return next(found, None)
