"""Every known tensor by name, in float64: the reference's activations, its parameters, the token ids."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from shapetrace.divergence.arrangements import arrangements
from shapetrace.divergence.definitions import POSITIONS, TOKENS, Definition

# A parameter larger than this is converted each time it is asked for, and not kept.
_KEPT_ENTRIES = 4_000_000
KNOWN = "known "  # before a name: the reference's own value, also where a definition of that name is edited
OWN = "yours "  # before the name of a parameter: what your model holds in its place


class Values:
    """Looks tensors up, and computes what edited definitions give."""

    def __init__(
        self,
        definitions: Mapping[str, Definition],
        activations: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
        tokens: Tensor,
        own: Mapping[str, Tensor] | None = None,
        on_the_way: Mapping[str, Mapping[str, Tensor]] | None = None,
    ):
        """own: what your model holds in place of the reference's parameters, under their names.

        on_the_way: by layer, tensors of yours that are no activation of the reference, by name.
        """
        self.definitions = definitions
        self._given = {**activations, **state}
        self._own = {OWN + name: tensor for name, tensor in (own or {}).items()}
        self._on_the_way = on_the_way or {}
        self.has_own = frozenset(own or {})  # parameters
        self._kept: dict[str, Tensor] = {
            TOKENS: tokens.cpu(),
            POSITIONS: torch.arange(tokens.shape[1]).expand(tokens.shape),
        }

    def __call__(self, name: str) -> Tensor:
        name = name.removeprefix(KNOWN)
        if name in self._kept:
            return self._kept[name]
        given = self._own if name.startswith(OWN) else self._given
        tensor = given[name].detach().cpu().double()
        if tensor.numel() <= _KEPT_ENTRIES:
            self._kept[name] = tensor
        return tensor

    def __contains__(self, name: str) -> bool:
        return name in self._given or name in self._kept

    def own_tensors(self, operand: str, layer: str) -> dict[str, str]:
        """Tensors of yours in that layer that can be brought into the shape of an operand: by name, what to read."""
        found = {}
        shape = self.shape(operand)
        for name, tensor in self._on_the_way.get(layer, {}).items():
            arranged = next(arrangements(tensor, shape), None)
            if arranged is not None and tensor.numel() == self._given[operand].numel():
                # The same name stands for another tensor in each layer, and for another arrangement at each operand.
                found[name] = f"{OWN}{layer}.{name} {shape}"
                self._kept[found[name]] = arranged.double()
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._given[name].shape)

    def names(self) -> list[str]:
        return list(self._given)

    def replay(self, edited: Mapping[str, Definition], target: str) -> Tensor:
        """The target's value where these definitions hold instead of their own; the rest is taken as known."""
        changed: dict[str, Tensor] = {}

        def value_of(name: str) -> Tensor:
            return changed[name] if name in changed else self(name)

        for name, definition in self.definitions.items():
            used = edited.get(name, definition)
            if name in edited or any(each in changed for each in used.reads()):
                changed[name] = used.evaluate(value_of)
            if name == target:
                break
        return value_of(target)
