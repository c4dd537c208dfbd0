"""From which activations a difference flows on to the logits, and which ones heal; in which order the layers ran."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from shapetrace.divergence.alignment import DIFFERS, MATCHED, Aligned
from shapetrace.divergence.definitions import Definition
from shapetrace.divergence.observation import Observation
from shapetrace.divergence.places import Places
from shapetrace.trace import walk_calls


def readers_of(definitions: Mapping[str, Definition]) -> dict[str, list[str]]:
    """By activation: those that are computed from it."""
    readers: dict[str, list[str]] = defaultdict(list)
    for name, definition in definitions.items():
        for each in definition.reads():
            readers[each].append(name)
    return readers


def find_open(aligned: Mapping[str, Aligned], readers: Mapping[str, list[str]]) -> list[str]:
    """The activations, in order, from which a difference may flow to the logits.

    One that is not seen is right where anything that is computed from it is right; one that is seen to differ has
    healed where everything is.
    """
    right: dict[str, bool] = {}
    for name in reversed([*aligned]):
        each = aligned[name]
        outcomes = [right[reader] for reader in readers.get(name, ())]
        if each.state == MATCHED:
            right[name] = True
        elif each.state == DIFFERS:
            right[name] = bool(outcomes) and all(outcomes)
        else:
            right[name] = any(outcomes)
    return [name for name in aligned if not right[name]]


def ancestors(name: str, definitions: Mapping[str, Definition], within: set[str]) -> list[str]:
    """What an activation is computed from, through members of `within` only; the nearest first."""
    found: list[str] = []
    frontier = [name]
    while frontier:
        for each in definitions[frontier.pop(0)].reads():
            if each in within and each not in found:
                found.append(each)
                frontier.append(each)
    return found


def layers_run(seen: Observation, places: Places) -> tuple[int, ...]:
    """The layers whose own modules ran, in that order, each as often as it did."""
    blocks = {path.removeprefix("blocks."): own for path, own in places.modules.items() if path.startswith("blocks.")}
    layers = {own: int(rest) for rest, own in blocks.items() if rest.isdigit()}
    calls = (call.module for whole in seen.trace.calls for call in walk_calls(whole))
    return tuple(layers[module] for module in calls if module in layers)
