"""What GPT-2 computes with some weights, by its definitions: nothing is rounded that float64 keeps."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from shapetrace.divergence.definitions import POSITIONS, TOKENS, Definition
from shapetrace.divergence.places import GIVEN, RETURNED, find_places
from shapetrace.reference import ReferenceRun
from shapetrace.reference.reference import module_paths
from shapetrace.weights.layouts import Layout
from shapetrace.weights.layouts.layout import slots_of
from shapetrace.weights.layouts.tables import TRANSFORMER_LENS


def compute_exactly(
    definitions: Mapping[str, Definition], state: Mapping[str, Tensor], tokens: Tensor, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Every activation by its definition, computed in float64 on the CPU and given in that dtype."""
    found = {TOKENS: tokens.cpu(), POSITIONS: torch.arange(tokens.shape[1]).expand(tokens.shape)}

    def value_of(name: str) -> Tensor:
        return found[name] if name in found else state[name].detach().cpu().double()

    for name, definition in definitions.items():
        found[name] = definition.evaluate(value_of)
    return {name: found[name].to(dtype) for name in definitions}


def as_run(activations: Mapping[str, Tensor], tokens: Tensor, n_layers: int) -> ReferenceRun:
    """With what each of the reference's modules is given and returns, by path; the embeddings are given the tokens."""
    layout = Layout(TRANSFORMER_LENS.name, tuple(slots_of(TRANSFORMER_LENS, range(n_layers))))
    found: dict[str, dict[str, Tensor]] = {GIVEN: {}, RETURNED: {}}
    for name, ends in find_places(layout, activations).ends.items():
        for module, end in ends:
            found[end][module] = activations[name]
    paths = module_paths(n_layers)
    inputs = {path: found[GIVEN].get(path, tokens) for path in paths}
    outputs = {path: found[RETURNED][path] for path in paths}
    return ReferenceRun(dict(activations), inputs, outputs, activations["unembed.hook_out"])
