"""Put a model beside the reference: the same weights, the same tokens, tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn

from shapetrace.divergence.alignment import Aligned, align, measure_best
from shapetrace.divergence.causes import explain
from shapetrace.divergence.keys import compare_keys, holding
from shapetrace.divergence.observation import Observation, observe
from shapetrace.divergence.sizes import check_reference, check_values, config_of
from shapetrace.divergence.tolerance import measure, tolerance_of
from shapetrace.errors import ShapetraceError
from shapetrace.folding import fold_names
from shapetrace.recorder.leaves import walk_leaves
from shapetrace.reference import Reference, ReferenceRun, build_reference
from shapetrace.report import (
    END_TO_END,
    ISOLATED,
    Difference,
    Divergence,
    ModuleRow,
    Prediction,
    Report,
    TensorRow,
)
from shapetrace.tokens import decode_each
from shapetrace.trace import write_source
from shapetrace.weights.seeded import seeded_state


def diff(
    model: nn.Module,
    tokens: Tensor,
    reference: Reference | None = None,
    *,
    seed: int = 0,
    rtol: float | None = None,
    load: bool | None = None,
    share: bool = False,
    say: Callable[[str], None] = lambda step: None,
) -> Report:
    """Compare a GPT-2 in TransformerLens layout with transformer_lens on tokens of shape (batch, posn).

    Without a reference one is built at the model's sizes, with random weights from the seed, and for the time of the
    diff the model holds its weights. With a reference the model is compared with the weights it has, unless `load` is
    True.
    rtol: the largest relative difference that counts as equal; by default what rounding costs in the model's dtype.
    share: the model holds the reference's tensors themselves, which saves a copy; for code that never writes to its
    weights. `say` is told each step as it begins.
    Raises ShapetraceError where the sizes cannot be read off the model, no reference can be built or it has other sizes
    or another dtype, the tokens are none of the model's, or the model raises.
    """
    if rtol is not None and not rtol >= 0:
        raise ShapetraceError(f"rtol is a number from 0 up, not {rtol}")
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    config = config_of(model)
    check_values(model, tokens, config)
    dtype = next(model.parameters()).dtype
    if reference is None:
        load = True if load is None else load
        say("drawing weights")
        state = seeded_state(config, seed, dtype)
        say("building the reference")
        reference = build_reference(config, state, f"random (seed {seed})")
    state = reference.state()
    check_reference(reference, config, dtype)
    with holding(model, state, share) if load else nullcontext():
        say("running the reference")
        theirs = reference.run(tokens)
        say("running yours")
        try:
            seen = observe(model, tokens)
        except Exception as error:
            wrong = ", ".join(compare_keys(model, state).mismatched)
            raise ShapetraceError(
                f"the model raised {type(error).__name__}: {error}",
                f"these parameters have another shape than the reference's: {wrong}" if wrong else "mend that first",
            ) from error
        return _compare(model, tokens, reference, theirs, seen, rtol, say)


def _compare(
    model: nn.Module,
    tokens: Tensor,
    reference: Reference,
    theirs: ReferenceRun,
    seen: Observation,
    rtol: float | None,
    say: Callable[[str], None],
) -> Report:
    keys = compare_keys(model, reference.state())
    dtype = theirs.logits.dtype
    limit = tolerance_of(dtype, isolated=False) if rtol is None else rtol
    found = _without_namesakes([align(name, each, seen, limit) for name, each in theirs.activations.items()])
    say("running each module on the reference's input")
    alone: list[str] = []
    modules = (*_isolated(model, tokens, theirs, dtype, rtol, alone), *_end_to_end(seen, theirs, limit))
    output = _find_logits(seen, theirs, limit)
    wrong = next((each for each in (*found, output) if _differs(each.row)), None)
    logits = output.yours
    fits = logits is not None and logits.shape == theirs.logits.shape
    predicts = logits is not None and fits and not reference.weights.startswith("random")
    return Report(
        reference.name,
        reference.weights,
        keys,
        modules,
        tuple(each.row for each in found),
        output.row.difference if logits is not None else None,
        logits is not None and fits and torch.equal(logits.argmax(-1), theirs.logits.argmax(-1)),
        Divergence(wrong.row, explain(wrong, keys)) if wrong else None,
        (*_remarks(model, found, theirs), *alone),
        _predictions(tokens, logits, theirs.logits) if predicts and logits is not None else (),
    )


def _find_logits(seen: Observation, theirs: ReferenceRun, rtol: float) -> Aligned:
    """What the model returned: the tensor with the shape of logits, else the first."""
    leaves = [value for _, value in walk_leaves("", seen.output)]
    shaped = [value for value in leaves if value.shape == theirs.logits.shape]
    logits = next(iter(shaped or leaves), None)
    named = seen.outputs.get("")
    name, line = (named.name, write_source(named.record.source)) if named else ("", "")
    difference = Difference(math.inf, math.inf, 0.0, False) if logits is None else measure(logits, theirs.logits, rtol)
    return Aligned(TensorRow("unembed.hook_out", name, line, difference), named, logits, theirs.logits, None)


def _without_namesakes(found: list[Aligned]) -> list[Aligned]:
    """A LayerNorm whose output is right may call something else `scale`: that tensor is not seen, and not wrong."""
    right = {each.row.module for each in found if each.row.tensor == "out" and _agrees(each.row)}
    return [
        replace(each, row=TensorRow(each.row.reference, "", "", None), seen=None, yours=None)
        if each.row.tensor in ("scale", "normalized") and each.row.module in right and _differs(each.row)
        else each
        for each in found
    ]


def _differs(row: TensorRow) -> bool:
    return row.difference is not None and not row.difference.ok


def _agrees(row: TensorRow) -> bool:
    return row.difference is not None and row.difference.ok


@torch.no_grad()
def _isolated(
    model: nn.Module, tokens: Tensor, theirs: ReferenceRun, dtype: torch.dtype, rtol: float | None, alone: list[str]
) -> Iterator[ModuleRow]:
    """Each module on a copy of what the reference's was given; a remark in `alone` for each that wants more."""
    limit = tolerance_of(dtype, isolated=True) if rtol is None else rtol
    own = dict(model.named_modules())
    for path, expected in theirs.outputs.items():
        if path in own:
            given = tokens if path in ("embed", "pos_embed") else theirs.inputs[path]
            try:
                output = own[path](given.clone())
            except Exception as error:
                alone.append(f"{path} does not run on the reference's input alone ({type(error).__name__})")
                continue
            leaf = next((value for _, value in walk_leaves("", output)), None)
            if leaf is not None:
                yield ModuleRow(path, ISOLATED, measure_best(leaf, expected, limit)[0])


def _end_to_end(seen: Observation, theirs: ReferenceRun, rtol: float) -> Iterator[ModuleRow]:
    for path, expected in theirs.outputs.items():
        if path in seen.outputs:
            yield ModuleRow(path, END_TO_END, measure_best(seen.outputs[path].value, expected, rtol)[0])


def _remarks(model: nn.Module, found: list[Aligned], theirs: ReferenceRun) -> Iterator[str]:
    """What is different and does no harm, and what else the reader should know."""
    if model.training:
        yield "your model is in training mode, in which dropout is on: call `.eval()` first"
    if not theirs.logits.isfinite().all():
        yield "the reference's own logits are not all finite"
    absent = [each.row.reference for each in found if each.row.difference is None]
    if absent:
        names = fold_names(absent)
        yield f"not seen in yours: {', '.join(names[:4])}" + (f" and {len(names) - 4} more" if names[4:] else "")
    agreeing = {each.row.module for each in found if each.row.tensor == "pattern" and _agrees(each.row)}
    fills: dict[str, list[str]] = {}
    for each in found:
        fill = _mask_value(each) if each.row.module in agreeing and _agrees(each.row) else None
        if fill is not None:
            fills.setdefault(f"{fill:g}", []).append(each.row.reference)
    for value, hooks in fills.items():
        yield f"masked scores are {value} and not -inf ({', '.join(fold_names(hooks))}); the pattern is the same"


def _mask_value(found: Aligned) -> float | None:
    """The one finite value that your scores have wherever the reference's are masked, if they are masked by one."""
    if found.visible is None or found.yours is None or found.visible.all():
        return None
    values = found.yours[~found.visible]
    lower = values[0] < found.yours[found.visible].min()
    return float(values[0].item()) if values.isfinite().all() and (values == values[0]).all() and lower else None


def _predictions(tokens: Tensor, yours: Tensor, reference: Tensor) -> tuple[Prediction, ...]:
    def words(ids: Tensor) -> tuple[str, ...]:
        return decode_each(ids[0].tolist())

    return tuple(map(Prediction, words(tokens), words(yours.argmax(-1)), words(reference.argmax(-1))))
