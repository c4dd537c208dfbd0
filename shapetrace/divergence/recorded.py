"""Any GPT-2 as the reference: what it computes is recorded, and told by GPT-2's definitions which activation it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from shapetrace.divergence.alignment import MATCHED, UNSEEN, Aligned, align
from shapetrace.divergence.definitions import define_gpt2
from shapetrace.divergence.exact import as_run, compute_exactly
from shapetrace.divergence.flow import find_open, readers_of
from shapetrace.divergence.keys import Fitting, fit_layout, holding, own_state
from shapetrace.divergence.observation import find_logits, observe
from shapetrace.divergence.places import find_places
from shapetrace.divergence.preconditions import dtype_of
from shapetrace.divergence.sizes import config_of, layout_of, says_no_bias
from shapetrace.divergence.tolerance import NARROW, Tolerance, tolerance_of
from shapetrace.divergence.widening import widened
from shapetrace.errors import ShapetraceError
from shapetrace.folding import fold_names
from shapetrace.gpt2 import Config
from shapetrace.reference import ReferenceRun

# In eps of a narrow dtype: how far what a GPT-2 makes of an activation may be from its exact value.
_LOOSE = 64


@dataclass(frozen=True, slots=True)
class RecordedReference:
    """A model in a known layout, with the weights it holds."""

    name: str
    config: Config
    weights: str  # where the values came from, in words
    model: nn.Module
    fitting: Fitting
    held: dict[str, Tensor]  # its weights under TransformerLens names

    def state(self) -> dict[str, Tensor]:
        """Its weights under TransformerLens names."""
        return self.held

    def run(self, tokens: Tensor) -> ReferenceRun:
        """Run it on tokens of shape (batch, posn).

        An activation that it makes no tensor of, such as the scores where a kernel fuses them, is computed from its
        weights. Raises ShapetraceError where it raises, or what it computes is not what a GPT-2 does.
        """
        definitions = define_gpt2(self.config, tokens.shape[1])
        dtype = dtype_of(self.model)
        aligned = None
        with widened(self.model):  # whether it is a GPT-2 is not for the rounding of a narrow dtype to say
            wide = dtype_of(self.model)
            computed = compute_exactly(definitions, self.held, tokens, wide)
            try:
                aligned = self._align(computed, tokens, tolerance_of(wide))
            except ShapetraceError:
                if dtype not in NARROW:
                    raise
                # Its code may be tied to that dtype, in which it runs next; then only what is far off tells.
        if aligned is not None:
            self._refuse_what_is_wrong(aligned)
        if aligned is None or dtype in NARROW:
            is_told = aligned is not None
            computed = {name: each.to(dtype) for name, each in computed.items()}
            loose = _LOOSE * torch.finfo(dtype).eps
            aligned = self._align(computed, tokens, Tolerance(loose, loose))
            if not is_told:
                self._refuse_what_is_wrong(aligned)
        activations = {name: _value_of(aligned[name], computed[name]) for name in definitions}
        return as_run(activations, tokens, self.config.n_layers)

    @contextmanager
    def lent(self, state: dict[str, Tensor], weights: str, exactly: bool) -> Iterator[RecordedReference]:
        """Inside, it holds these weights instead, which are under TransformerLens names, or what it can of them.

        exactly: raises ShapetraceError where it cannot hold them all.
        """
        held = self.fitting.adapt(dict(state))
        spared = [name for name in state if not torch.equal(held[name], state[name])] if exactly else []
        if spared:
            raise ShapetraceError(
                f"the reference {self.name} cannot hold your {', '.join(fold_names(spared))}: "
                "its head is its embedding, or it has no biases",
                "compare with random weights, or with a reference that has these",
            )
        with holding(self.model, self.fitting.convert(held)):
            yield replace(self, held=held, weights=weights)

    def _align(self, computed: Mapping[str, Tensor], tokens: Tensor, tolerance: Tolerance) -> dict[str, Aligned]:
        """What it makes of each activation, beside what its definition says."""
        try:
            seen = observe(self.model, tokens)
        except Exception as error:
            raise ShapetraceError(f"the reference {self.name} raised {type(error).__name__}: {error}") from error
        definitions = define_gpt2(self.config, tokens.shape[1])
        places = find_places(self.fitting.layout, definitions)
        output = find_logits(seen, computed["unembed.hook_out"].shape)
        return align(definitions, computed, seen, places, output, tolerance)

    def _refuse_what_is_wrong(self, aligned: dict[str, Aligned]) -> None:
        definitions = {name: each.definition for name, each in aligned.items()}
        wrong = [aligned[name] for name in find_open(aligned, readers_of(definitions))]
        if wrong:
            raise ShapetraceError(*self._explain(wrong))

    def _explain(self, wrong: list[Aligned]) -> tuple[str, str]:
        first = next((each for each in wrong if each.state != UNSEEN), wrong[0])
        name = first.name.replace("hook_", "")
        where = f", its `{first.seen.name}`" if first.seen is not None else ""
        hint = "a reference has GPT-2's layers, the tanh form of GELU, an eps of 1e-5 and learned positions"
        if self.model.training:
            hint = "it is in training mode, in which dropout is on: call `.eval()` first"
        return f"{self.name} is no GPT-2, and no reference: {name}{where} is not what GPT-2 computes there", hint


def record_reference(
    model: nn.Module, name: str = "", weights: str = "its own", n_heads: int | None = None
) -> RecordedReference:
    """A model in one of the known layouts as the reference, with the weights that it holds now.

    Raises ShapetraceError where its layout or a size cannot be told.
    """
    name = name or type(model).__name__
    try:
        layout = layout_of(model)
        config = config_of(model, layout, n_heads)
        fitting = fit_layout(model, layout, says_no_bias(model))
        held = own_state(model, fitting, config, dtype_of(model))
    except ShapetraceError as error:
        raise ShapetraceError(
            f"{name} cannot be the reference: {error.message}",
            "a reference is a GPT-2 in TransformerLens', Hugging Face's, nanoGPT's, forge's or the textbook's layout",
        ) from None
    return RecordedReference(name, config, weights, model, fitting, held)


def _value_of(found: Aligned, computed: Tensor) -> Tensor:
    """What the model made of it, where it did; scores that are hidden count as -inf, however it hides them."""
    if found.state != MATCHED or found.yours is None or not found.fits:
        return computed
    return torch.where(computed.isfinite(), found.yours, computed)
