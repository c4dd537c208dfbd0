"""Diff a model with transformer_lens, or with another model, on a text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from shapetrace.divergence import diff
from shapetrace.divergence.keys import holding
from shapetrace.divergence.observation import observe
from shapetrace.divergence.recorded import record_reference
from shapetrace.errors import ShapetraceError
from shapetrace.gpt2 import Config, Transformer
from shapetrace.initialising import WithoutInitialising
from shapetrace.pattern_search import as_heads
from shapetrace.reference import build_reference
from shapetrace.report import Report
from shapetrace.target import Target
from shapetrace.tokens import Tokenizer, load_gpt2
from shapetrace.trace import InputRecord, Trace

Pattern = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a diff is to tell, beside its verdict."""

    rtol: float | None = None
    tensor: str | None = None  # one tensor beside its match
    inside: bool = False  # the run of ours too: its trace and its attention patterns
    n_heads: int | None = None
    weights_map: str | None = None
    tokenizer: Tokenizer | None = None  # None: GPT-2's


@dataclass(frozen=True, slots=True)
class TextDiff:
    """The report, and the run of ours that it tells of."""

    report: Report
    trace: Trace | None = None
    patterns: dict[str, tuple[Pattern, ...]] = field(default_factory=dict)  # by module, of each head: (query, key)


def diff_text(
    config: Config,
    state: dict[str, Tensor],
    weights: str,
    given: InputRecord,
    wanted: Wanted,
    say: Callable[[str], None] = lambda step: None,
    spread: Callable[[nn.Module], None] = lambda model: None,
    device: torch.device | None = None,
) -> TextDiff:
    """The modular GPT-2 and the reference with these weights, which are used up, on that device or the CPU; they share
    what memory they can.

    spread: puts the model on several ranks, in place.
    Raises ShapetraceError where no reference can be built.
    """
    dtype = next(iter(state.values())).dtype
    say("building the reference")
    reference = build_reference(config, state, weights, device)
    with WithoutInitialising(), torch.device(device or "cpu"):
        model = Transformer(config).eval().to(dtype)
    spread(model)
    with holding(model, reference.state(), share=True):
        return _diff(model, given, wanted, reference=reference, say=say)


def diff_target(
    target: Target,
    given: InputRecord,
    wanted: Wanted,
    seed: int = 0,
    say: Callable[[str], None] = lambda step: None,
    beside: Target | None = None,
) -> TextDiff:
    """Any model beside transformer_lens at its size, or beside another model: on its own weights where they are
    trained, else on random ones.

    Raises ShapetraceError where there can be no reference for it.
    """
    own = target.weights if target.are_trained else ""
    reference = record_reference(beside.model, beside.name, n_heads=wanted.n_heads) if beside else None
    return _diff(target.model, given, wanted, reference=reference, load=True, seed=seed, own=own, say=say)


def _diff(model: nn.Module, given: InputRecord, wanted: Wanted, **how: Any) -> TextDiff:
    tokens = torch.tensor([given.ids])
    report = diff(
        model,
        tokens,
        rtol=wanted.rtol,
        tensor=wanted.tensor,
        n_heads=wanted.n_heads,
        weights_map=wanted.weights_map,
        words=(wanted.tokenizer or load_gpt2()).words,
        **how,
    )
    if not wanted.inside:
        return TextDiff(report)
    seen = observe(model, tokens)
    patterns = {
        each.module: _to_plain(heads)
        for each in seen.tensors
        if each.record.role == "local" and (heads := as_heads(each.value, len(given.ids))) is not None
    }
    return TextDiff(report, seen.trace, patterns)


def pattern_of(result: TextDiff, module: str, head: int | None) -> Pattern | None:
    """The pattern of one head, of the first if None; raises ShapetraceError where there is no such head."""
    heads = result.patterns.get(module)
    if heads is None and head is None:
        return None
    if heads is None:
        raise ShapetraceError(
            f"{module} has no attention pattern, and so no heads",
            "give an attention module that binds its pattern to a name: fused attention makes none",
        )
    head = head or 0
    if not 0 <= head < len(heads):
        raise ShapetraceError(f"{module} has {len(heads)} heads, 0 to {len(heads) - 1}, and no head {head}")
    return heads[head]


def _to_plain(heads: Tensor) -> tuple[Pattern, ...]:
    """(head, query, key) -> nested tuples."""
    return tuple(tuple(tuple(row) for row in head) for head in heads.tolist())
