"""A comparison in bfloat16 or float16: how much of a difference is rounding, and what is wrong where it is more."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from shapetrace.divergence.alignment import DIFFERS, MATCHED, Aligned
from shapetrace.divergence.exact import as_run, compute_exactly
from shapetrace.divergence.findings import describe_difference
from shapetrace.divergence.randomness import observe_twice
from shapetrace.divergence.reporting import Measured, Say, Sides, Words, explain_sides, measure_sides, write_report
from shapetrace.divergence.tolerance import (
    Tolerance,
    measure,
    measured_tolerance,
    scale_of,
    tolerance_of,
    visible_scores,
)
from shapetrace.divergence.widening import widened
from shapetrace.errors import ShapetraceError
from shapetrace.recorder.tensors import name_of
from shapetrace.reference import ReferenceRun
from shapetrace.report import Cause, Divergence, Report
from shapetrace.sharding import is_distributed


def report_narrow(sides: Sides, rtol: float | None, tensor: str | None, words: Words, say: Say) -> Report:
    """The figures are those of the narrow dtype, and so is the verdict; the cause is looked for in float32.

    There the same weights tell a mistake of the code from what it loses to rounding, however much that is. Raises
    ShapetraceError where the reference itself cannot be computed in the dtype.
    """
    say("computing what rounding costs")
    exact = _run_exactly(sides)
    rounding = {**_distances(sides.theirs.activations, exact.activations)}
    _check_range(sides, rounding)
    rounding |= _distances(sides.theirs.outputs, exact.outputs)
    limits = measured_tolerance(sides.theirs.logits.dtype, rounding)
    measured = measure_sides(sides, limits if rtol is None else Tolerance(rtol, rtol), say)
    if _is_right(measured):
        return write_report(sides, measured, None, (), tensor, words)
    divergence, remarks = _explain_wide(sides, measured, exact, say)
    return write_report(sides, measured, divergence, remarks, tensor, words)


def _is_right(measured: Measured) -> bool:
    """Whether nothing that is seen on both sides differs, be it that the logits do not show it."""
    tensors = (each for each in measured.aligned.values() if not each.stage)
    rows = (row.difference.ok for row in measured.modules)
    return _has_logits(measured) and not any(each.state == DIFFERS for each in tensors) and all(rows)


def _has_logits(measured: Measured) -> bool:
    difference = measured.logits.difference
    return difference is not None and difference.ok


def _run_exactly(sides: Sides) -> ReferenceRun:
    """What the reference computes on its weights, without its rounding; in float32."""
    activations = compute_exactly(sides.definitions, sides.reference.state(), sides.tokens, torch.float32)
    return as_run(activations, sides.tokens, sides.reference.config.n_layers)


def _distances(rounded: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> dict[str, float]:
    """By name, how far each is from its exact value, relative to that; of scores where they are visible."""
    return {
        name: measure(each, exact[name], 0.0, visible_scores(exact[name]) if "attn_scores" in name else None).relative
        for name, each in rounded.items()
    }


def _check_range(sides: Sides, rounding: dict[str, float]) -> None:
    lost = next((name for name, each in rounding.items() if not math.isfinite(each)), None)
    if lost is not None:
        dtype = sides.theirs.logits.dtype
        raise ShapetraceError(
            f"{sides.reference.name} itself leaves the range of {name_of(dtype)}, whose largest number is "
            f"{torch.finfo(dtype).max:g}, at {lost.replace('hook_', '')}: there is nothing to compare with",
            "compare in bfloat16 or float32, or on other weights",
        )


def _explain_wide(
    sides: Sides, narrow: Measured, exact: ReferenceRun, say: Say
) -> tuple[Divergence | None, tuple[str, ...]]:
    """Where in float32 a mistake is as large as what the narrow dtype shows, that; else what the dtype loses."""
    if any(map(is_distributed, sides.model.parameters())):  # whose parts others hold as well, in their own dtype
        return _undecided(
            narrow, "Spread over processes it is not run in float32: leave `--parallel` out to be told why."
        )
    say("running yours in float32")
    with widened(sides.model):
        try:
            seen, random = observe_twice(sides.model, sides.tokens)
        except Exception as error:  # such as a cast that its code has
            raised = f"{type(error).__name__}: {_first_line(error)}"
            return _undecided(narrow, f"It cannot be looked at in float32, where it raises {raised}")
        wide = replace(sides, theirs=exact, seen=seen, random=random)
        measured = measure_sides(wide, tolerance_of(torch.float32), say)
        divergence, remarks = explain_sides(wide, measured, say, narrow)
    if divergence is None and _has_logits(narrow):
        return None, remarks
    difference = measured.logits.difference
    large = narrow.tolerance.of(narrow.logits.name) / 2
    name = name_of(sides.theirs.logits.dtype)
    if divergence is not None and (_has_logits(narrow) or difference is None or difference.relative >= large):
        told = f"the cause, and the values beside it, are those of a run in float32 on the same {name} weights"
        return divergence, (told, *remarks)
    if divergence is not None:
        told = f"in float32 something smaller is wrong too, at {divergence.row.reference}: `--dtype float32` tells it"
        remarks = (told, *remarks)
    drift = Cause("precision", f"In {name} it loses more on the way, bit by bit, than rounding costs the reference.")
    where, cause = next(_losses(sides, narrow, wide, measured), (_first_seen(narrow), drift))
    return _describe(where, narrow, cause), remarks


def _undecided(narrow: Measured, why: str) -> tuple[Divergence | None, tuple[str, ...]]:
    """What can be said without float32: that tensors differ means nothing where the logits do not."""
    if _has_logits(narrow):
        where = _first_seen(narrow).name.replace("hook_", "")
        return None, (f"{where} differs, and the logits do not. {why}",)
    return _describe(_first_seen(narrow), narrow, Cause("unknown", why)), ()


def _losses(sides: Sides, narrow: Measured, wide: Sides, measured: Measured) -> Iterator[tuple[Aligned, Cause]]:
    """The tensors that, at the same place of the same run, are something else in the narrow dtype than in float32."""
    pairs = {
        id(one.value): other
        for one, other in zip(wide.seen.tensors, sides.seen.tensors, strict=False)
        if one.name == other.name
    }
    for name, each in measured.aligned.items():
        if narrow.aligned[name].state == MATCHED:  # be it that both sides have lost the same
            continue
        shown = each.alike or ((each.seen,) if each.seen is not None and not each.stage else ())
        one = next((seen for seen in shown if id(seen.value) in pairs), None)
        if one is None:
            continue
        other = pairs[id(one.value)]
        visible = None
        if each.definition.tensor == "attn_scores":
            visible = one.value > torch.finfo(other.value.dtype).min
        if not measure(other.value, one.value, narrow.tolerance.of(name), visible).ok:
            at = replace(narrow.aligned[name], seen=sides.seen.in_source(other, narrow.places.scopes[name]))
            yield at, _loss(each, one.value, other.value, visible)


def _loss(aligned: Aligned, wide: torch.Tensor, narrow: torch.Tensor, visible: torch.Tensor | None) -> Cause:
    """visible: where the entries are that mean something; the others may be masked with the lowest number."""
    name, limit = name_of(narrow.dtype), torch.finfo(narrow.dtype).max
    if visible is not None:
        wide, narrow = wide[visible], narrow[visible]
    largest, finite = scale_of(wide), narrow.isfinite().all()
    if largest > limit:
        return Cause(
            "precision", f"It overflows: {name} holds numbers up to {limit:g}, and here they go to {largest:.4g}."
        )
    lost = "is lost to rounding" if finite or not wide.isfinite().all() else "is not finite"
    off = aligned.difference.relative if aligned.state == DIFFERS and aligned.difference else 0.0
    right = f"off by no more than {off:.1e}" if off else "right"
    return Cause("precision", f"In float32, on the same weights, it is {right}; in {name} it {lost}.")


def _first_seen(narrow: Measured) -> Aligned:
    """The first activation that is seen to differ, from which the logits do; else the logits."""
    return next((each for each in narrow.aligned.values() if each.state == DIFFERS and not each.stage), narrow.logits)


def _describe(each: Aligned, narrow: Measured, cause: Cause) -> Divergence:
    return describe_difference(each, narrow.tolerance.of(each.name), cause)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
