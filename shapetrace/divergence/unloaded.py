"""Parameters that do not hold what the reference has in their place, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from shapetrace.divergence.keys import Fitting, is_same, layer_of, nearest_names
from shapetrace.sharding import whole_of


@dataclass(frozen=True, slots=True)
class Unloaded:
    """A parameter of yours that does not hold what the reference has in its place."""

    key: str
    why: str  # a sentence
    held: dict[str, Tensor]  # by TransformerLens name: its value, where it has the reference's shape or spreads to it
    names: tuple[str, ...]  # the TransformerLens names that it stands for


def find_unloaded(model: nn.Module, fitting: Fitting, converted: Mapping[str, Tensor], n_heads: int) -> list[Unloaded]:
    """Parameters with other values, another shape, or a name that the reference has no tensor for."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    slots = {slot.key: slot for slot in (*fitting.layout.slots, *fitting.layout.absent)}
    twins = _find_twins(parameters, fitting)
    meant = {**{key: key for key in parameters if key in slots}, **nearest_names(parameters, converted)}
    found = []
    for key, other in meant.items():
        slot, held = slots.get(other), whole_of(parameters[key].detach())
        if slot is None or other not in converted or is_same(held, converted[other]):
            continue
        expected = converted[other]
        fits = held.shape == expected.shape
        spread = held.expand_as(expected) if not fits and held.numel() == 1 else held
        values = slot.unpack(spread, n_heads) if fits or held.numel() == 1 else {}
        found.append(Unloaded(key, _why(key, other, held, expected, twins.get(key)), values, slot.names))
    return [*found, *_find_homeless(parameters, fitting, converted, meant)]


def _why(key: str, other: str, held: Tensor, expected: Tensor, twin: str | None) -> str:
    """`other` is the key of what belongs there, `twin` that of the same parameter in another place."""
    if twin is not None:
        is_in_layers = layer_of(key) != layer_of(twin)
        anew = ", as by `[Block() for _ in range(n)]`, not `[Block()] * n`" if is_in_layers else ""
        return (
            f"`{key}` and `{twin}` are one parameter, which cannot hold the reference's values for both: "
            f"build a module for each{anew}."
        )
    if key != other:
        return f"`{key}` was never loaded: the reference has no tensor of that name, but `{other}`."
    if held.shape != expected.shape:
        turned = ", its axes in another order" if sorted(held.shape) == sorted(expected.shape) else ""
        return (
            f"`{key}` was never loaded: it is {tuple(held.shape)}, and the reference's is "
            f"{tuple(expected.shape)}{turned}."
        )
    if held.ndim == 2 and held.shape[0] == held.shape[1] and is_same(held.T, expected):
        return f"`{key}` holds the reference's values transposed."
    return f"`{key}` holds other values than the reference's: was it loaded?"


def _find_homeless(
    parameters: Mapping[str, Tensor], fitting: Fitting, converted: Mapping[str, Tensor], meant: Mapping[str, str]
) -> Iterator[Unloaded]:
    """What the reference has and no key of yours takes, where some that take nothing have its shape."""
    placed = {slot.key for slot in fitting.layout.slots} | {*meant}
    for slot in fitting.layout.absent:
        if slot.key not in converted or slot.key in meant.values():
            continue
        free = [
            key
            for key, each in parameters.items()
            if key not in placed and each.shape == converted[slot.key].shape and layer_of(key) == layer_of(slot.key)
        ]
        if free:
            told = " or ".join(f"`{key}`" for key in free[:4])
            why = f"Nothing of yours is `{slot.key}`, unless it is {told}: say which one by `--weights-map FILE.yaml`."
            yield Unloaded(free[0], why, {}, slot.names)


def _find_twins(parameters: Mapping[str, Tensor], fitting: Fitting) -> dict[str, str]:
    """By key: the next one that is the same parameter, but for a head that is the embedding."""
    tied = [
        slot.key for name in ("unembed.W_U", "embed.W_E") if fitting.tied and (slot := fitting.layout.slot_of(name))
    ]
    keys = [slot.key for slot in fitting.layout.slots if slot.key not in tied]
    by_identity: dict[int, list[str]] = {}
    for key in keys:
        by_identity.setdefault(id(parameters[key]), []).append(key)
    return {
        key: group[(index + 1) % len(group)]
        for group in by_identity.values()
        if len(group) > 1
        for index, key in enumerate(group)
    }
