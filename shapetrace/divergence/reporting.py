"""Both sides after they ran, tensor by tensor, as a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shapetrace.divergence.alignment import Aligned, align, matches_of
from shapetrace.divergence.candidates import find_others
from shapetrace.divergence.causes import Explainer
from shapetrace.divergence.definitions import Definition, define_gpt2
from shapetrace.divergence.findings import describe_tensor, describe_verdict, to_row
from shapetrace.divergence.flow import find_open, layers_run, readers_of
from shapetrace.divergence.isolation import compare_end_to_end, run_alone
from shapetrace.divergence.keys import Fitting, compare_keys
from shapetrace.divergence.observation import Observation, Observed, find_logits
from shapetrace.divergence.places import Places, find_places
from shapetrace.divergence.pointing import Pointer
from shapetrace.divergence.preconditions import remark_on_biases, remark_on_setting
from shapetrace.divergence.randomness import judge_randomness
from shapetrace.divergence.remarks import remark_on_tensors
from shapetrace.divergence.stages import note_stages
from shapetrace.divergence.tolerance import Tolerance
from shapetrace.divergence.unloaded import find_unloaded
from shapetrace.divergence.values import Values
from shapetrace.divergence.verdict import find_first
from shapetrace.recorder.tensors import name_of
from shapetrace.reference import Reference, ReferenceRun
from shapetrace.report import ISOLATED, Divergence, ModuleRow, Pair, Prediction, Report

Words = Callable[[Iterable[int]], tuple[str, ...]]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sides:
    """A model and the reference, on the same weights and tokens, after both ran."""

    model: nn.Module
    tokens: Tensor  # (batch, posn)
    reference: Reference
    theirs: ReferenceRun
    seen: Observation
    random: Observed | None  # the first tensor that a second run gave other values
    fitting: Fitting
    converted: Mapping[str, Tensor]  # the reference's weights under the model's keys

    @property
    def definitions(self) -> dict[str, Definition]:
        return define_gpt2(self.reference.config, self.tokens.shape[1])


@dataclass(frozen=True, slots=True)
class Measured:
    """How far both are apart, wherever both can be seen."""

    tolerance: Tolerance
    definitions: Mapping[str, Definition]
    places: Places
    aligned: Mapping[str, Aligned]
    values: Values
    unloaded: Mapping[str, str]  # by the reference's parameter, why yours does not hold it
    modules: tuple[ModuleRow, ...]
    remarks: tuple[str, ...]

    @property
    def logits(self) -> Aligned:
        return self.aligned["unembed.hook_out"]


def measure_sides(sides: Sides, tolerance: Tolerance, say: Say) -> Measured:
    """Align the two runs, and run each module on the reference's input."""
    theirs, seen, config = sides.theirs, sides.seen, sides.reference.config
    definitions = sides.definitions
    places = find_places(sides.fitting.layout, definitions)
    aligned = align(definitions, theirs.activations, seen, places, find_logits(seen, theirs.logits.shape), tolerance)
    say("running each module on the reference's input")
    remarks: list[str] = []
    modules = (
        *run_alone(sides.model, theirs, seen, places, tolerance, remarks),
        *compare_end_to_end(theirs, seen, places, tolerance),
    )
    unloaded = find_unloaded(sides.model, sides.fitting, sides.converted, config.n_heads)
    own = {name: tensor for each in unloaded for name, tensor in each.held.items()}
    others = find_others(seen, {*matches_of(aligned.values())}, places)
    values = Values(definitions, theirs.activations, sides.reference.state(), sides.tokens, own, others)
    aligned = note_stages(aligned, values, tolerance)
    why = {name: each.why for each in unloaded for name in each.names}
    return Measured(tolerance, definitions, places, aligned, values, why, modules, tuple(remarks))


def explain_sides(
    sides: Sides, measured: Measured, say: Say, ran: Measured | None = None
) -> tuple[Divergence | None, tuple[str, ...]]:
    """The first wrong tensor with its cause, and remarks on others.

    ran: in the precision that was asked for, where `measured` is of a higher one.
    """
    say("looking for the cause")
    aligned, places, limit = measured.aligned, measured.places, measured.tolerance.end_to_end
    known = measured.values, sides.reference.config, limit, sides.fitting.without, measured.unloaded
    explainer = Explainer(aligned, *known, layers_run(sides.seen, places))
    readers = readers_of(measured.definitions)
    open_names = find_open(aligned, readers)
    verdict = find_first(aligned, open_names, readers, explainer)
    verdict = judge_randomness(sides.random, verdict, aligned, sides.seen, sides.model.training) or verdict
    remarks = tuple(remark_on_tensors(aligned, open_names, explainer, verdict, sides.theirs, (ran or measured).aligned))
    if verdict is None:
        return None, remarks
    alone = (row for row in measured.modules if row.mode == ISOLATED and row.difference.ok)
    right = frozenset(places.modules[row.module] for row in alone)
    pointed = Pointer(aligned, measured.values, sides.seen, places, right).point(verdict, explainer.limit)
    return describe_verdict(verdict, explainer, pointed, limit), remarks


def write_report(
    sides: Sides,
    measured: Measured,
    divergence: Divergence | None,
    remarks: tuple[str, ...],
    tensor: str | None,
    words: Words,
) -> Report:
    """All that was found. tensor: one to show beside its match, by its name on either side."""
    reference, theirs, logits = sides.reference, sides.theirs, measured.logits
    fits = logits.yours is not None and logits.yours.shape == theirs.logits.shape
    asked: Pair | None = None
    if tensor is not None:
        asked = describe_tensor(
            tensor, measured.aligned, measured.values, sides.seen, measured.places, measured.tolerance
        )
    return Report(
        reference.name,
        reference.weights,
        compare_keys(sides.model, sides.converted, sides.fitting),
        measured.modules,
        tuple(to_row(each) for each in measured.aligned.values()),
        logits.difference,
        _same_argmax(logits.yours, theirs.logits),
        divergence,
        (
            *remark_on_setting(sides.model, reference.config, reference.state(), sides.tokens, sides.seen),
            *remark_on_biases(sides.fitting.without),
            *remarks,
            *measured.remarks,
        ),
        _predictions(sides.tokens, logits.yours, theirs.logits, words)
        if fits and logits.yours is not None and not reference.weights.startswith("random")
        else (),
        sides.fitting.layout.name,
        asked,
        name_of(theirs.logits.dtype),
        measured.tolerance.range,
    )


def _same_argmax(yours: Tensor | None, reference: Tensor) -> bool:
    if (
        yours is None
        or yours.ndim != 3
        or yours.shape[-1] != reference.shape[-1]
        or yours.shape[0] != reference.shape[0]
    ):
        return False
    return yours.shape[1] <= reference.shape[1] and torch.equal(
        yours.argmax(-1), reference[:, reference.shape[1] - yours.shape[1] :].argmax(-1)
    )


def _predictions(
    tokens: Tensor, yours: Tensor, reference: Tensor, words: Callable[[Iterable[int]], tuple[str, ...]]
) -> tuple[Prediction, ...]:
    columns = (words(ids[0].tolist()) for ids in (tokens, yours.argmax(-1), reference.argmax(-1)))
    return tuple(map(Prediction, *columns))
