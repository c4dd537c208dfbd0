"""Put a model beside the reference: the same weights, the same tokens, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from shapetrace.divergence.alignment import align
from shapetrace.divergence.causes import explain
from shapetrace.divergence.keys import compare_keys, holding
from shapetrace.divergence.observation import Observation, observe
from shapetrace.divergence.sizes import config_of
from shapetrace.divergence.tolerance import measure, tolerance_of, visible_scores
from shapetrace.folding import fold_names
from shapetrace.recorder.leaves import walk_leaves
from shapetrace.reference import Reference, ReferenceRun, build_reference
from shapetrace.report import (
    END_TO_END,
    ISOLATED,
    Divergence,
    ModuleRow,
    Prediction,
    Report,
    TensorRow,
)
from shapetrace.tokens import decode_each
from shapetrace.weights.seeded import seeded_state


def diff(
    model: nn.Module,
    tokens: Tensor,
    reference: Reference | None = None,
    *,
    seed: int = 0,
    rtol: float | None = None,
    load: bool | None = None,
    say: Callable[[str], None] = lambda step: None,
) -> Report:
    """Compare a GPT-2 in TransformerLens layout with transformer_lens on tokens of shape (batch, posn).

    Without a reference one is built at the model's sizes, with random weights from the seed, and for the time of the
    diff the model holds its weights. With a reference the model is compared with the weights it has, unless `load` is
    True.
    rtol: the largest relative difference that counts as equal; by default what rounding costs in the model's dtype.
    `say` is told each step as it begins.
    Raises ShapetraceError where the sizes cannot be read off the model or no reference can be built.
    """
    dtype = next(model.parameters()).dtype
    if reference is None:
        load = True if load is None else load
        say("drawing weights")
        config = config_of(model)
        state = seeded_state(config, seed, dtype)
        say("building the reference")
        reference = build_reference(config, state, f"random (seed {seed})")
    state = reference.state()
    with holding(model, state) if load else nullcontext():
        say("running the reference")
        theirs = reference.run(tokens)
        say("running yours")
        return _compare(model, tokens, reference, theirs, dtype, rtol, say)


def _compare(
    model: nn.Module,
    tokens: Tensor,
    reference: Reference,
    theirs: ReferenceRun,
    dtype: torch.dtype,
    rtol: float | None,
    say: Callable[[str], None],
) -> Report:
    keys = compare_keys(model, reference.state())
    seen = observe(model, tokens)
    limit = tolerance_of(dtype, isolated=False) if rtol is None else rtol
    rows = tuple(align(name, activation, seen, limit) for name, activation in theirs.activations.items())
    say("running each module on the reference's input")
    modules = (*_isolated(model, tokens, theirs, dtype, rtol), *_end_to_end(seen, theirs, limit))
    first = next((row for row in rows if row.difference is not None and not row.difference.ok), None)
    divergence = None
    if first is not None:
        yours = next(each for each in reversed(seen.tensors) if each.name == first.yours)
        divergence = Divergence(first, explain(first, keys, yours.value, theirs.activations[first.reference]))
    logits = next((value for _, value in walk_leaves("", seen.output)), None)
    same_argmax = (
        logits is not None
        and logits.shape == theirs.logits.shape
        and torch.equal(logits.argmax(-1), theirs.logits.argmax(-1))
    )
    return Report(
        reference.name,
        reference.weights,
        keys,
        modules,
        rows,
        measure(logits, theirs.logits, limit) if logits is not None else None,
        same_argmax,
        divergence,
        tuple(_remarks(rows, seen, theirs)),
        () if logits is None or reference.weights.startswith("random") else _predictions(tokens, logits, theirs.logits),
    )


@torch.no_grad()
def _isolated(
    model: nn.Module, tokens: Tensor, theirs: ReferenceRun, dtype: torch.dtype, rtol: float | None
) -> Iterator[ModuleRow]:
    """Each module on a copy of what the reference's module of that path was given."""
    limit = tolerance_of(dtype, isolated=True) if rtol is None else rtol
    own = dict(model.named_modules())
    for path, expected in theirs.outputs.items():
        if path in own:
            given = tokens if path in ("embed", "pos_embed") else theirs.inputs[path]
            output = next((value for _, value in walk_leaves("", own[path](given.clone()))), None)
            if output is not None:
                yield ModuleRow(path, ISOLATED, measure(output, expected, limit))


def _end_to_end(seen: Observation, theirs: ReferenceRun, rtol: float) -> Iterator[ModuleRow]:
    for path, expected in theirs.outputs.items():
        if path in seen.outputs:
            yield ModuleRow(path, END_TO_END, measure(seen.outputs[path].value, expected, rtol))


def _remarks(rows: tuple[TensorRow, ...], seen: Observation, theirs: ReferenceRun) -> Iterator[str]:
    """What is different and does no harm."""
    absent = [row.reference for row in rows if row.difference is None]
    if absent:
        yield f"not seen in yours: {', '.join(fold_names(absent))}"
    fills: dict[str, list[str]] = {}
    for row in rows:
        if row.tensor == "attn_scores" and row.difference is not None and row.difference.ok:
            fill = _mask_value(seen, row, theirs.activations[row.reference])
            if fill is not None:
                fills.setdefault(f"{fill:g}", []).append(row.reference)
    for value, names in fills.items():
        yield f"masked scores are {value} and not -inf ({', '.join(fold_names(names))}); the pattern is the same"


def _mask_value(seen: Observation, row: TensorRow, reference: Tensor) -> float | None:
    """The one finite value that your scores have wherever the reference's are masked, if they are masked by one."""
    hidden = ~visible_scores(reference)
    for each in seen.of(row.module):
        if (
            each.name == row.yours
            and each.value.shape == hidden.shape
            and each.value.is_floating_point()
            and hidden.any()
        ):
            values = each.value[hidden]
            if values.isfinite().all() and (values == values[0]).all() and values[0] < each.value[~hidden].min():
                return float(values[0].item())
    return None


def _predictions(tokens: Tensor, yours: Tensor, reference: Tensor) -> tuple[Prediction, ...]:
    def words(ids: Tensor) -> tuple[str, ...]:
        return decode_each(ids[0].tolist())

    return tuple(map(Prediction, words(tokens), words(yours.argmax(-1)), words(reference.argmax(-1))))
