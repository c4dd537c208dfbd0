"""Tensors of yours that may stand for an activation that none of them matches, and those that are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from shapetrace.divergence.arrangements import arrangements
from shapetrace.divergence.definitions import Definition
from shapetrace.divergence.names import is_called
from shapetrace.divergence.observation import Observation, Observed
from shapetrace.divergence.places import Places

_MOST = 8  # of each sort: in a model that is one long function, every later tensor would be one


def find_candidates(
    definition: Definition,
    reference: Tensor,
    later: Sequence[Observed],
    free: Sequence[Observed],
    used: set[int],
    scope: str,
) -> tuple[list[Observed], list[Observed]]:
    """Those with a fitting name, and those with a fitting shape.

    later: what was bound after all that the activation is computed from; free: of these, what has no other place.
    used: ids of values that match some activation. A name may have been given to one of those: `post = pre`.
    """
    unused = [each for each in free if id(each.value) not in used and each.value.is_floating_point()]
    named = [each for each in unused if is_called(each.record.name, definition.tensor)]
    named += [each for each in later if is_called(each.record.name, definition.tensor) and each not in named]
    if "hook_resid" in definition.name:  # the stream has the shape of much that is inside of modules
        unused = [each for each in free if each.module == scope and each.value.is_floating_point()]
    fitting = [each for each in unused if next(arrangements(each.value, tuple(reference.shape)), None) is not None]
    return named[:_MOST], fitting[:_MOST]


def find_others(seen: Observation, used: set[int], places: Places) -> dict[str, Mapping[str, Tensor]]:
    """By layer: its named tensors that are no activation of the reference, the last of each name."""
    layers = {path: own for path, own in places.modules.items() if path.startswith("blocks.") and path.count(".") == 1}
    return {path: _others(seen.within(own), used) for path, own in layers.items()}


def _others(tensors: Sequence[Observed], used: set[int]) -> Mapping[str, Tensor]:
    return {
        each.record.name: each.value
        for each in tensors
        if id(each.value) not in used and each.value.is_floating_point() and each.record.role == "local"
    }
