"""Run a language model on a text and trace it."""

from __future__ import annotations

from dataclasses import replace

import torch

from shapetrace.errors import ShapetraceError
from shapetrace.recorder import recording
from shapetrace.target import Target
from shapetrace.tokens import decode_each, encode
from shapetrace.trace import InputRecord, Trace


def tokenize(text: str, target: Target, bos: bool = True) -> InputRecord:
    """The text as the target's token ids.

    Raises ShapetraceError where it is empty, longer than n_ctx, or has an id past the vocabulary.
    """
    if not text:
        raise ShapetraceError("the text is empty", 'give some words, such as `shapetrace run "The cat sat on the mat"`')
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ShapetraceError("the text is not valid UTF-8", "check the encoding of your terminal or file") from None
    ids = encode(text, bos)
    limit, vocabulary = target.config.n_ctx, target.config.d_vocab
    if len(ids) > limit:
        raise ShapetraceError(
            f"the text is {len(ids):,} tokens long, and {target.name}'s n_ctx is {limit:,}",
            f"shorten the text, or run random weights with `--set n_ctx={len(ids)}`",
        )
    largest = max(ids)
    if largest >= vocabulary:
        token = decode_each([largest])[0]
        raise ShapetraceError(
            f"token {token!r} has id {largest:,} and the vocabulary ends at d_vocab = {vocabulary:,}",
            f"set d_vocab to {largest + 1} or more" + (", or leave <|endoftext|> out with `--no-bos`" if bos else ""),
        )
    return InputRecord(text, ids, decode_each(ids))


@torch.no_grad()
def trace_text(target: Target, given: InputRecord, stats: bool = False) -> Trace:
    """Run the target on the tokens, shape (1, posn); with trained weights the trace holds the likeliest next tokens."""
    device = next(target.model.parameters()).device
    tokens = torch.tensor([given.ids], device=device)
    with recording(target.model, name=target.name, weights=target.weights, stats=stats) as trace:
        logits = target.model(tokens)
    predicts = target.are_trained and bool(logits.isfinite().all())
    return replace(trace, input=given, predictions=decode_each(logits[0].argmax(-1).tolist()) if predicts else ())
