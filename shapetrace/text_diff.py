"""Diff a model with transformer_lens on a text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shapetrace.divergence import diff
from shapetrace.divergence.keys import holding
from shapetrace.divergence.observation import Observation, observe
from shapetrace.errors import ShapetraceError
from shapetrace.gpt2 import Config, Transformer
from shapetrace.reference import build_reference
from shapetrace.report import Report
from shapetrace.trace import InputRecord, Trace
from shapetrace.weights.seeded import WithoutInitialising

_PATTERNS = ("attn_pattern", "pattern")
Pattern = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class TextDiff:
    """The report, and the run of ours that it tells of."""

    report: Report
    trace: Trace
    patterns: dict[str, tuple[Pattern, ...]]  # by module: the attention pattern of each head, (query, key)


def diff_text(
    config: Config,
    state: dict[str, Tensor],
    weights: str,
    given: InputRecord,
    rtol: float | None = None,
    say: Callable[[str], None] = lambda step: None,
) -> TextDiff:
    """Both sides with these weights, which are used up, on these tokens; they share what memory they can.

    Raises ShapetraceError where no reference can be built.
    """
    dtype = next(iter(state.values())).dtype
    say("building the reference")
    reference = build_reference(config, state, weights)
    with WithoutInitialising():
        model = Transformer(config).eval().to(dtype)
    tokens = torch.tensor([given.ids])
    with holding(model, reference.state(), share=True):
        report = diff(model, tokens, reference, rtol=rtol, say=say)
        seen = observe(model, tokens)
    return TextDiff(report, seen.trace, _patterns_in(seen))


def diff_model(
    model: nn.Module,
    given: InputRecord,
    seed: int = 0,
    rtol: float | None = None,
    say: Callable[[str], None] = lambda step: None,
) -> TextDiff:
    """A model of the user's beside a reference of its size, which lends it weights drawn from the seed.

    Raises ShapetraceError where no reference can be built for it.
    """
    tokens = torch.tensor([given.ids])
    report = diff(model, tokens, seed=seed, rtol=rtol, say=say)
    seen = observe(model, tokens)
    return TextDiff(report, seen.trace, _patterns_in(seen))


def pattern_of(result: TextDiff, module: str, head: int | None) -> Pattern | None:
    """The pattern of one head, of the first if None; raises ShapetraceError where there is no such head."""
    heads = result.patterns.get(module)
    if heads is None and head is None:
        return None
    if heads is None:
        raise ShapetraceError(f"{module} has no attention pattern, and so no heads", "give an attention module")
    head = head or 0
    if not 0 <= head < len(heads):
        raise ShapetraceError(f"{module} has {len(heads)} heads, 0 to {len(heads) - 1}, and no head {head}")
    return heads[head]


def _patterns_in(seen: Observation) -> dict[str, tuple[Pattern, ...]]:
    return {each.module: _heads(each.value) for each in seen.tensors if each.record.name in _PATTERNS}


def _heads(pattern: Tensor) -> tuple[Pattern, ...]:
    """(1, n_heads, posn_Q, posn_K) -> nested tuples."""
    return tuple(tuple(tuple(row) for row in head) for head in pattern[0].tolist())
