"""Where in a model the reference's activations are computed, as its parameters tell.

The module that owns `blocks.0.mlp.W_out`, or what the model calls it, is given `post` and returns `mlp_out`; the module
around all parameters of `blocks.0.attn` is given what ln1 returned and returns `attn_out`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from shapetrace.weights.layouts import Layout

GIVEN, RETURNED = "given", "returned"


@dataclass(frozen=True, slots=True)
class Places:
    """Of a model in a known layout."""

    modules: dict[str, str]  # by the reference's module: the model's own one that does the same
    scopes: dict[str, str]  # by activation: the module within which it is computed
    ends: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # by activation: module, GIVEN or RETURNED

    def given_to(self, module: str) -> str:
        """The activation that a module of yours is given; "" where that is none."""
        return next((name for name, ends in self.ends.items() if (module, GIVEN) in ends), "")


def find_places(layout: Layout, names: Iterable[str]) -> Places:
    """The places of the activations with these hook names."""
    owners = {name: slot.key.rpartition(".")[0] for slot in layout.slots for name in slot.names}
    around = {path: _common(owners, path) for path in dict.fromkeys(part for name in owners for part in _parts(name))}
    layers = sorted((path for path in around if _is_layer(path)), key=lambda path: int(path.partition(".")[2]))
    # Where a block's own module owns its parameters, there is no module of its attention alone.
    shared = {around[layer] for layer in layers} | {""}
    modules = {path: own for path, own in around.items() if path in layers or own not in shared}
    ends: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for path, own in modules.items():
        for activation, end in _ends_of(path, layers):
            ends[activation].append((own, end))
    for own, activation, end in _ends_of_owners(owners):
        ends[activation].append((own, end))
    scopes = {name: around.get(name.rpartition(".")[0], "") for name in names}
    # What a module returns is nearer to where it was made than what another one is given.
    in_order = {name: sorted(dict.fromkeys(each), key=lambda end: end[1] == GIVEN) for name, each in ends.items()}
    return Places(modules, scopes, in_order)


def _is_layer(path: str) -> bool:
    return path.startswith("blocks.") and path.count(".") == 1


def _parts(name: str) -> list[str]:
    """`blocks.0.attn.W_Q` -> blocks.0, blocks.0.attn."""
    parts = name.split(".")[:-1]
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1) if parts[:count] != ["blocks"]]


def _common(owners: dict[str, str], path: str) -> str:
    """The innermost module around all parameters that the reference has in the path."""
    inside = [owner.split(".") for name, owner in owners.items() if name.startswith(f"{path}.")]
    shared = []
    for parts in zip(*inside, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


def _ends_of(path: str, layers: list[str]) -> list[tuple[str, str]]:
    """What the reference's module is given and returns."""
    block, _, kind = path.rpartition(".")
    if path in layers:
        return [(f"{path}.hook_resid_pre", GIVEN), (f"{path}.hook_resid_post", RETURNED)]
    if kind in ("embed", "pos_embed"):
        return [(f"hook_{kind}", RETURNED)]
    if kind in ("attn", "mlp"):
        norm = {"attn": "ln1", "mlp": "ln2"}[kind]
        return [(f"{block}.{norm}.hook_out", GIVEN), (f"{block}.hook_{kind}_out", RETURNED)]
    if kind in ("ln1", "ln2"):
        stream = {"ln1": "resid_pre", "ln2": "resid_mid"}[kind]
        return [(f"{block}.hook_{stream}", GIVEN), (f"{path}.hook_out", RETURNED)]
    if kind == "ln_final":
        return [(f"{layer}.hook_resid_post", GIVEN) for layer in layers[-1:]] + [("ln_final.hook_out", RETURNED)]
    return [("ln_final.hook_out", GIVEN), ("unembed.hook_out", RETURNED)]


def _ends_of_owners(owners: dict[str, str]) -> list[tuple[str, str, str]]:
    """The same of modules that own one matrix of an attention or an MLP, such as an nn.Linear."""
    owned: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, owner in owners.items():
        path, _, parameter = name.rpartition(".")
        if owner:
            owned[owner, path].add(parameter.rpartition("_")[2])
    found = []
    for (owner, path), letters in owned.items():
        block, _, kind = path.rpartition(".")
        if len([other for other, _ in owned if other == owner]) > 1:
            continue
        if kind == "attn" and letters <= {"Q", "K", "V"}:
            found.append((owner, f"{block}.ln1.hook_out", GIVEN))
            if len(letters) == 1:
                found.append((owner, f"{path}.hook_{next(iter(letters)).lower()}", RETURNED))
        elif kind == "attn" and letters == {"O"}:
            found += [(owner, f"{path}.hook_z", GIVEN), (owner, f"{block}.hook_attn_out", RETURNED)]
        elif kind == "mlp" and letters == {"in"}:
            found += [(owner, f"{block}.ln2.hook_out", GIVEN), (owner, f"{path}.hook_pre", RETURNED)]
        elif kind == "mlp" and letters == {"out"}:
            found += [(owner, f"{path}.hook_post", GIVEN), (owner, f"{block}.hook_mlp_out", RETURNED)]
    return found
