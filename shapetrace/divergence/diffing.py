"""Put a model beside the reference: the same weights, the same tokens, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from shapetrace.divergence.keys import compare_keys, fit_layout, holding, own_state
from shapetrace.divergence.narrow import report_narrow
from shapetrace.divergence.preconditions import check_reference, check_values, dtype_of
from shapetrace.divergence.randomness import observe_twice
from shapetrace.divergence.recorded import RecordedReference, record_reference
from shapetrace.divergence.reporting import Sides, explain_sides, measure_sides, write_report
from shapetrace.divergence.sizes import config_of, layout_of, says_no_bias
from shapetrace.divergence.tolerance import NARROW, Tolerance, tolerance_of
from shapetrace.errors import ShapetraceError
from shapetrace.reference import Reference, build_reference
from shapetrace.report import Report
from shapetrace.sharding import is_distributed
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
    tokens = tokens.cpu()
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
                reference = build_reference(config, state, origin, next(model.parameters()).device)
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
            # To gather the parts of a parameter takes all ranks, and the others are in the forward.
            is_alone = not any(map(is_distributed, model.parameters()))
            raise _what_it_raised(error, compare_keys(model, converted).mismatched if is_alone else ()) from error
        sides = Sides(model, tokens, reference, theirs, seen, random, fitting, converted)
        if dtype in NARROW:
            return report_narrow(sides, rtol, tensor, words, say)
        measured = measure_sides(sides, tolerance_of(dtype) if rtol is None else Tolerance(rtol, rtol), say)
        return write_report(sides, measured, *explain_sides(sides, measured, say), tensor, words)


def _what_it_raised(error: Exception, mismatched: Iterable[str]) -> ShapetraceError:
    """The error, and where it came from as far as the recorder noted it."""
    notes = (each for each in getattr(error, "__notes__", ()) if each.startswith(_NOTE))
    where = "".join(f"\n  {each.removeprefix(_NOTE)}" for each in notes)
    wrong = ", ".join(mismatched)
    hint = f"these parameters have another shape than the reference's: {wrong}" if wrong else "mend that first"
    if "not implemented for" in str(error):
        hint = "torch lacks this operation for the dtype on this device: take another `--dtype` or `--device`"
    return ShapetraceError(f"the model raised {type(error).__name__}: {error}{where}", hint)
