"""A verdict as the report holds it: rows, the entries side by side, the statement that made the tensor."""

from __future__ import annotations

import linecache
import math
import textwrap
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from shapetrace.divergence.alignment import Aligned, nearest
from shapetrace.divergence.causes import Explainer
from shapetrace.divergence.observation import Observation, Observed, is_within
from shapetrace.divergence.places import Places
from shapetrace.divergence.pointing import Pointed
from shapetrace.divergence.stages import factor_between, find_stage
from shapetrace.divergence.tolerance import Tolerance, find_worst, measure, visible_scores
from shapetrace.divergence.values import Values
from shapetrace.divergence.verdict import Verdict
from shapetrace.errors import ShapetraceError, suggest
from shapetrace.recorder.source import read_source
from shapetrace.report import Cause, Divergence, Entry, Pair, TensorRow
from shapetrace.trace import split_source, write_source

_SHOWN = 4


def to_row(each: Aligned) -> TensorRow:
    """The report's row of an activation."""
    if each.seen is None:
        return TensorRow(each.name, "", "", None)
    return TensorRow(each.name, each.seen.name, write_source(each.seen.record.source), each.difference)


def describe_verdict(verdict: Verdict, explainer: Explainer, pointed: Pointed | None, limit: float) -> Divergence:
    """The divergence with all that helps to look at it."""
    if pointed is None:
        each = verdict.aligned
        cause = verdict.cause or Cause("unknown", "Your model returns no tensor: let its `forward` return the logits.")
        return Divergence(TensorRow(each.name, "", "", None), cause, axes=each.definition.axes)
    each, seen, reference = pointed.aligned, pointed.seen, pointed.reference
    difference, arranged = nearest(seen.value, reference, limit, each.definition)
    if difference.ok and seen.value.shape == reference.shape:  # wrong as it lies: transposed, with axes of one size
        difference, arranged = measure(seen.value, reference, limit), seen.value
    row = TensorRow(each.name, seen.name, write_source(seen.record.source), difference)
    fits = arranged.shape == reference.shape
    explained = explainer.cause_of(verdict.explanation) if verdict.explanation else None
    cause = explained or verdict.cause or explainer.unexplained(each, _visible(arranged, reference, each))
    cause = replace(cause, at=None) if cause.at == each.name else cause
    return Divergence(
        row,
        cause,
        statement_at(seen),
        tuple(seen.value.shape),
        tuple(reference.shape),
        pointed.axes,
        _entries(arranged, reference, _first(reference)) if fits else (),
        _entries(arranged, reference, _worst(arranged, reference, each, cause)) if fits else (),
        pointed.stage,
    )


def describe_difference(each: Aligned, limit: float, cause: Cause) -> Divergence:
    """An activation beside the tensor of yours that stands for it, with a cause that is known already."""
    if each.seen is None:
        return Divergence(TensorRow(each.name, "", "", None), cause, axes=each.definition.axes)
    seen, reference = each.seen, each.reference
    difference, arranged = nearest(seen.value, reference, limit, each.definition)
    fits = arranged.shape == reference.shape
    return Divergence(
        TensorRow(each.name, seen.name, write_source(seen.record.source), difference),
        cause,
        statement_at(seen),
        tuple(seen.value.shape),
        tuple(reference.shape),
        each.definition.axes,
        _entries(arranged, reference, _first(reference)) if fits else (),
        _entries(arranged, reference, _worst(arranged, reference, each, cause)) if fits else (),
    )


def describe_tensor(
    name: str, aligned: Mapping[str, Aligned], values: Values, run: Observation, places: Places, tolerance: Tolerance
) -> Pair:
    """A tensor of either side, by its name, beside its match; raises ShapetraceError where there is none.

    `blocks.0.attn.q` is the reference's, `transformer.h.0.attn.q` may be yours.
    """
    for each in aligned.values():
        if name in (each.name, each.name.replace("hook_", "")):
            return _pair(each, each.seen, values, tolerance.of(each.name))
    own = [each for each in run.tensors if each.name == name]
    if not own:
        known = [*(each.replace("hook_", "") for each in aligned), *(each.name for each in run.tensors)]
        raise ShapetraceError(f"there is no tensor `{name}` on either side", suggest(name, dict.fromkeys(known)))
    for seen in own[::-1]:
        for each in aligned.values():
            is_its_own = each.seen is not None and each.seen.value is seen.value
            if is_its_own or any(other.value is seen.value for other in each.alike):
                return _pair(each, seen, values, tolerance.of(each.name))
    seen = own[-1]
    near = [each for each in aligned.values() if is_within(seen.module, run.around(places.scopes[each.name]))]
    for pair in (_pair(each, seen, values, tolerance.of(each.name)) for each in near if seen.value.is_floating_point()):
        if pair.stage or pair.factor is not None:
            return pair
    row = TensorRow("", seen.name, write_source(seen.record.source), None)
    return Pair(row, statement_at(seen), tuple(seen.value.shape), first=_own_entries(seen.value))


def _pair(each: Aligned, seen: Observed | None, values: Values, limit: float) -> Pair:
    reference = each.reference
    if seen is None:
        return Pair(TensorRow(each.name, "", "", None), "", (), tuple(reference.shape), each.definition.axes)
    difference, arranged = nearest(seen.value, reference, limit, each.definition)
    stage, factor = "", None
    if not difference.ok:
        step = find_stage(each.definition, seen.value, values, limit)
        if step is not None:
            stage, reference = step
            difference, arranged = nearest(seen.value, reference, limit, each.definition)
        elif arranged.shape == reference.shape:
            factor = factor_between(arranged, reference, limit)
    fits = arranged.shape == reference.shape
    return Pair(
        TensorRow(each.name, seen.name, write_source(seen.record.source), difference),
        statement_at(seen),
        tuple(seen.value.shape),
        tuple(reference.shape),
        each.definition.axes,
        _entries(arranged, reference, _first(reference)) if fits else (),
        _entries(arranged, reference, _worst(arranged, reference, each, Cause("unknown", ""))) if fits else (),
        stage,
        factor,
    )


def _own_entries(yours: Tensor) -> tuple[Entry, ...]:
    """The first entries of a tensor that has no counterpart."""
    places = [tuple(int(each) for each in place) for place in (yours == yours).nonzero()[:_SHOWN]]
    return tuple(Entry(place, float(yours[place]), math.nan) for place in places)


def statement_at(seen: Observed) -> str:
    """The source text of the statement that bound a tensor, comments left out; "" where the file cannot be read."""
    if not seen.record.source:
        return ""
    file, line = split_source(seen.record.source)
    statement = read_source(file).statement_at(line)
    lines = linecache.getlines(file)[statement.first - 1 : statement.last] or linecache.getlines(file)[line - 1 : line]
    return textwrap.dedent("".join(lines)).rstrip()


def _worst(yours: Tensor, reference: Tensor, each: Aligned, cause: Cause) -> list[tuple[int, ...]]:
    yours = yours if cause.kind == "mask" else _visible(yours, reference, each)
    return find_worst(yours, reference, _SHOWN)


def _visible(yours: Tensor, reference: Tensor, each: Aligned) -> Tensor:
    """Of scores those that are visible, and the reference's in place of the others."""
    if each.definition.tensor != "attn_scores" or yours.shape != reference.shape:
        return yours
    return torch.where(visible_scores(each.reference), yours, reference)


def _first(reference: Tensor) -> list[tuple[int, ...]]:
    """The first few entries that say something: in scores, of the last query, which sees every key."""
    last = tuple(0 for _ in reference.shape[:-1])
    if reference.ndim == 4 and not reference[last].isfinite().all():
        last = (*last[:-1], reference.shape[-2] - 1)
    return [(*last, column) for column in range(min(_SHOWN, reference.shape[-1]))]


def _entries(yours: Tensor, reference: Tensor, places: list[tuple[int, ...]]) -> tuple[Entry, ...]:
    return tuple(Entry(place, float(yours[place]), float(reference[place])) for place in places)
