"""Any GPT-2 as the reference: what it computes is recorded, and told by GPT-2's definitions which activation it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from shapetrace.divergence.alignment import MATCHED, UNSEEN, Aligned, align
from shapetrace.divergence.definitions import POSITIONS, TOKENS, Definition, define_gpt2
from shapetrace.divergence.flow import find_open, readers_of
from shapetrace.divergence.keys import Fitting, fit_layout, holding, own_state
from shapetrace.divergence.observation import Observation, find_logits, observe
from shapetrace.divergence.places import GIVEN, RETURNED, find_places
from shapetrace.divergence.preconditions import dtype_of
from shapetrace.divergence.sizes import config_of, layout_of, says_no_bias
from shapetrace.divergence.tolerance import tolerance_of
from shapetrace.errors import ShapetraceError
from shapetrace.folding import fold_names
from shapetrace.gpt2 import Config
from shapetrace.reference import ReferenceRun
from shapetrace.reference.reference import module_paths
from shapetrace.weights.layouts import Layout
from shapetrace.weights.layouts.layout import slots_of
from shapetrace.weights.layouts.tables import TRANSFORMER_LENS


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
        try:
            seen = observe(self.model, tokens)
        except Exception as error:
            raise ShapetraceError(f"the reference {self.name} raised {type(error).__name__}: {error}") from error
        definitions = define_gpt2(self.config, tokens.shape[1])
        computed = _compute(definitions, self.held, tokens)
        aligned = _align(definitions, computed, seen, self.fitting.layout)
        wrong = [aligned[name] for name in find_open(aligned, readers_of(definitions))]
        if wrong:
            raise ShapetraceError(*self._explain(wrong))
        activations = {name: _value_of(aligned[name], computed[name]) for name in definitions}
        inputs, outputs = _sides(activations, tokens, self.config.n_layers)
        return ReferenceRun(activations, inputs, outputs, activations["unembed.hook_out"])

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


def _compute(definitions: Mapping[str, Definition], state: Mapping[str, Tensor], tokens: Tensor) -> dict[str, Tensor]:
    """Every activation by its definition, computed in float64 and given in the dtype of the weights."""
    found = {TOKENS: tokens.cpu(), POSITIONS: torch.arange(tokens.shape[1]).expand(tokens.shape)}

    def value_of(name: str) -> Tensor:
        return found[name] if name in found else state[name].detach().cpu().double()

    for name, definition in definitions.items():
        found[name] = definition.evaluate(value_of)
    dtype = next(iter(state.values())).dtype
    return {name: found[name].to(dtype) for name in definitions}


def _align(
    definitions: Mapping[str, Definition], computed: Mapping[str, Tensor], seen: Observation, layout: Layout
) -> dict[str, Aligned]:
    logits = computed["unembed.hook_out"]
    limit = tolerance_of(logits.dtype, isolated=False)
    places = find_places(layout, definitions)
    return align(definitions, computed, seen, places, find_logits(seen, logits.shape), limit)


def _value_of(found: Aligned, computed: Tensor) -> Tensor:
    """What the model made of it, where it did; scores that are hidden count as -inf, however it hides them."""
    if found.state != MATCHED or found.yours is None or not found.fits:
        return computed
    return torch.where(computed.isfinite(), found.yours.cpu(), computed)


def _sides(
    activations: Mapping[str, Tensor], tokens: Tensor, n_layers: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What each of the reference's modules is given and returns, by path; the embeddings are given the tokens."""
    layout = Layout(TRANSFORMER_LENS.name, tuple(slots_of(TRANSFORMER_LENS, range(n_layers))))
    found: dict[str, dict[str, Tensor]] = {GIVEN: {}, RETURNED: {}}
    for name, ends in find_places(layout, activations).ends.items():
        for module, end in ends:
            found[end][module] = activations[name]
    paths = module_paths(n_layers)
    return {path: found[GIVEN].get(path, tokens) for path in paths}, {path: found[RETURNED][path] for path in paths}
