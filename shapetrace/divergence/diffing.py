"""Put a model beside the reference: the same weights, the same tokens, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shapetrace.divergence.alignment import align, matches_of
from shapetrace.divergence.candidates import find_others
from shapetrace.divergence.causes import Explainer
from shapetrace.divergence.definitions import define_gpt2
from shapetrace.divergence.findings import describe_tensor, describe_verdict, to_row
from shapetrace.divergence.flow import find_open, layers_run, readers_of
from shapetrace.divergence.isolation import compare_end_to_end, run_alone
from shapetrace.divergence.keys import Fitting, compare_keys, fit_layout, holding, own_state
from shapetrace.divergence.observation import Observation, Observed, find_logits
from shapetrace.divergence.places import find_places
from shapetrace.divergence.pointing import Pointer
from shapetrace.divergence.preconditions import (
    check_reference,
    check_values,
    dtype_of,
    remark_on_biases,
    remark_on_setting,
)
from shapetrace.divergence.randomness import judge_randomness, observe_twice
from shapetrace.divergence.recorded import RecordedReference, record_reference
from shapetrace.divergence.remarks import remark_on_tensors
from shapetrace.divergence.sizes import config_of, layout_of, says_no_bias
from shapetrace.divergence.stages import note_stages
from shapetrace.divergence.tolerance import tolerance_of
from shapetrace.divergence.unloaded import find_unloaded
from shapetrace.divergence.values import Values
from shapetrace.divergence.verdict import find_first
from shapetrace.errors import ShapetraceError
from shapetrace.reference import Reference, ReferenceRun, build_reference
from shapetrace.report import ISOLATED, Prediction, Report
from shapetrace.tokens import decode_each
from shapetrace.weights.seeded import seeded_state

_NOTE = "shapetrace: "  # what the recorder writes on an exception begins with it


def diff(
    model: nn.Module,
    tokens: Tensor,
    reference: Reference | nn.Module | None = None,
    *,
    seed: int = 0,
    rtol: float | None = None,
    load: bool | None = None,
    share: bool = False,
    n_heads: int | None = None,
    weights_map: Mapping[str, Any] | str | Path | None = None,
    own: str = "",
    tensor: str | None = None,
    words: Callable[[Iterable[int]], tuple[str, ...]] = decode_each,
    say: Callable[[str], None] = lambda step: None,
) -> Report:
    """Compare a GPT-2 with transformer_lens, or another one, on tokens of shape (batch, posn): what is wrong, and why.

    Its parameters may have TransformerLens', Hugging Face's, nanoGPT's or forge's names, or the textbook's; others are
    told by `weights_map`, a mapping or a YAML file: your key to TransformerLens' name, or to
    `{name: ..., transpose: true}`, or to a list of names for a fused tensor.

    Without a reference, transformer_lens is built at the model's sizes, with random weights from the seed, and for the
    time of the diff the model holds its weights; or, where `own` says in words where they came from, with the model's
    own. A module as the reference is a GPT-2 of these sizes in a known layout. With a reference the model is compared
    with the weights it has, unless `load` is True: a module then holds the same random ones, or the model's own.
    tensor: one that the report is to show beside its match, by its name on either side.
    rtol: the largest relative difference that counts as equal; by default what rounding costs in the model's dtype.
    share: the model holds the reference's tensors themselves, which saves a copy; for code that never writes to its
    weights. n_heads: where neither shapes nor the model's config tell. words: what token ids stand for. `say` is told
    each step as it begins.
    Raises ShapetraceError where the layout or a size cannot be told, no reference can be built or it has other sizes or
    another dtype, the tokens are none of the model's, or the model raises.
    """
    if rtol is not None and not rtol >= 0:
        raise ShapetraceError(f"rtol is a number from 0 up, not {rtol}")
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    layout = layout_of(model, weights_map)
    config = config_of(model, layout, n_heads)
    check_values(model, tokens, config)
    fitting = fit_layout(model, layout, says_no_bias(model))
    dtype = dtype_of(model)
    if isinstance(reference, nn.Module):
        reference = record_reference(reference)
    with ExitStack() as stack:
        if reference is None or (load and isinstance(reference, RecordedReference)):
            load = True if load is None else load
            say("drawing weights")
            drawn = own_state(model, fitting, config, dtype) if own else seeded_state(config, seed, dtype)
            state, origin = fitting.adapt(drawn), own or f"random (seed {seed})"
            if reference is None:
                say("building the reference")
                reference = build_reference(config, state, origin)
            else:
                check_reference(reference, config, dtype, to_hold=True)
                reference = stack.enter_context(reference.lent(state, origin, exactly=bool(own)))
        check_reference(reference, config, dtype)
        converted = fitting.convert(reference.state())
        say("running the reference")
        theirs = reference.run(tokens)
        if load:
            stack.enter_context(holding(model, converted, share))
        say("running yours")
        try:
            seen, random = observe_twice(model, tokens)
        except Exception as error:
            raise _what_it_raised(error, compare_keys(model, converted).mismatched) from error
        return _compare(model, tokens, reference, theirs, seen, random, fitting, converted, rtol, tensor, words, say)


def _what_it_raised(error: Exception, mismatched: Iterable[str]) -> ShapetraceError:
    """The error, and where it came from as far as the recorder noted it."""
    notes = (each for each in getattr(error, "__notes__", ()) if each.startswith(_NOTE))
    where = "".join(f"\n  {each.removeprefix(_NOTE)}" for each in notes)
    wrong = ", ".join(mismatched)
    return ShapetraceError(
        f"the model raised {type(error).__name__}: {error}{where}",
        f"these parameters have another shape than the reference's: {wrong}" if wrong else "mend that first",
    )


def _compare(
    model: nn.Module,
    tokens: Tensor,
    reference: Reference,
    theirs: ReferenceRun,
    seen: Observation,
    random: Observed | None,
    fitting: Fitting,
    converted: Mapping[str, Tensor],
    rtol: float | None,
    tensor: str | None,
    words: Callable[[Iterable[int]], tuple[str, ...]],
    say: Callable[[str], None],
) -> Report:
    config, state, dtype = reference.config, reference.state(), theirs.logits.dtype
    limit = tolerance_of(dtype, isolated=False) if rtol is None else rtol
    definitions = define_gpt2(config, tokens.shape[1])
    places = find_places(fitting.layout, definitions)
    aligned = align(definitions, theirs.activations, seen, places, find_logits(seen, theirs.logits.shape), limit)

    say("running each module on the reference's input")
    alone: list[str] = []
    alone_limit = tolerance_of(dtype, isolated=True) if rtol is None else rtol
    modules = (
        *run_alone(model, theirs, seen, places, alone_limit, alone),
        *compare_end_to_end(theirs, seen, places, limit),
    )

    say("looking for the cause")
    unloaded = find_unloaded(model, fitting, converted, config.n_heads)
    used = {*matches_of(aligned.values())}
    own = {name: tensor for each in unloaded for name, tensor in each.held.items()}
    values = Values(definitions, theirs.activations, state, tokens, own, find_others(seen, used, places))
    aligned = note_stages(aligned, values, limit)
    why = {name: each.why for each in unloaded for name in each.names}
    explainer = Explainer(aligned, values, config, limit, fitting.without, why, layers_run(seen, places))
    readers = readers_of(definitions)
    open_names = find_open(aligned, readers)
    verdict = find_first(aligned, open_names, readers, explainer)
    verdict = judge_randomness(random, verdict, aligned, seen, model.training) or verdict
    right = frozenset(places.modules[row.module] for row in modules if row.mode == ISOLATED and row.difference.ok)
    pointer = Pointer(aligned, values, seen, places, right)
    logits = aligned["unembed.hook_out"]
    fits = logits.yours is not None and logits.yours.shape == theirs.logits.shape
    return Report(
        reference.name,
        reference.weights,
        compare_keys(model, converted, fitting),
        modules,
        tuple(to_row(each) for each in aligned.values()),
        logits.difference,
        _same_argmax(logits.yours, theirs.logits),
        describe_verdict(verdict, explainer, pointer.point(verdict, explainer.limit), limit) if verdict else None,
        (
            *remark_on_setting(model, config, state, tokens, seen),
            *remark_on_biases(fitting.without),
            *remark_on_tensors(aligned, open_names, explainer, verdict, theirs),
            *alone,
        ),
        _predictions(tokens, logits.yours, theirs.logits, words)
        if fits and logits.yours is not None and not reference.weights.startswith("random")
        else (),
        fitting.layout.name,
        describe_tensor(tensor, aligned, values, seen, places, limit) if tensor is not None else None,
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
