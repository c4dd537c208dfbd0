"""Another known tensor read in an operand's place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

import torch

from shapetrace.divergence.definitions import (
    POSITIONS,
    TOKENS,
    Definition,
    Operand,
    project,
    project_heads,
    score,
    spread,
)
from shapetrace.divergence.edits.edit import Edit, Site, fixed, layer_of, named, short
from shapetrace.divergence.names import is_called
from shapetrace.divergence.values import OWN

_PARAMETERS = ("weight", "bias", "gain", "table")


def edit_operands(site: Site) -> Iterator[Edit]:
    """One operand replaced by any other known tensor of its shape."""
    definition = site.definition
    for role, operand in definition.operands.items():
        if operand.name in (TOKENS, POSITIONS):
            continue
        for name in _candidates(site, role):
            words = _instead(site, role, named(name, definition.name))
            changed = definition.with_operand(role, name)
            yield fixed("wrong-operand", changed, words, _cost_of(name), name, _besides(site, name))
        shape = site.values.shape(operand.name)
        for name in site.values.names() if role == "weight" and len(shape) == 2 else ():
            if site.values.shape(name) == shape[::-1] and name not in site.values.definitions:
                words = _instead(site, role, f"{named(name, definition.name)} transposed")
                changed = definition.with_operand(role, name, lambda each: each.T)
                yield fixed("wrong-operand", changed, words, 2, name)
                bias = definition.operands["bias"].name
                words = f"{words.removesuffix('.')}, and without {short(bias)}."
                yield fixed("wrong-operand", changed.with_operand("bias", change=torch.zeros_like), words, 3, name)


def edit_pairs(site: Site) -> Iterator[Edit]:
    """Weight and bias, or gain and bias, of another projection or norm; q and k exchanged."""
    definition = site.definition
    if definition.function is score:
        q, k = definition.operands["q"].name, definition.operands["k"].name
        words = "the scores are transposed: rows belong to queries and columns to keys, as in q @ k.T."
        yield fixed("permutation", definition.with_operand("q", k).with_operand("k", q), words, 2)
    first = next((role for role in ("weight", "gain") if role in definition.operands), None)
    if first is None:
        return
    one, two = definition.operands[first].name, definition.operands["bias"].name
    for other in site.values.names():
        partner = _partner(other)
        if other != one and partner in site.values and _have_shapes_of(site, (other, partner), (one, two)):
            words = (
                f"{_computed(definition)} with {_pair(other, partner, definition.name)} instead of {_pair(one, two)}."
            )
            changed = definition.with_operand(first, other).with_operand("bias", partner)
            yield fixed("wrong-operand", changed, words, 2, other)


def edit_equal(site: Site) -> Iterator[Edit]:
    """Another known tensor itself."""
    definition = site.definition
    for name in site.others(site.values.shape(definition.name)):
        changed = Definition(definition.name, definition.axes, lambda x: x, {"x": Operand(name)})
        yield fixed("wrong-operand", changed, _equality(definition, name), _cost_of(name), name)


def edit_split_order(site: Site) -> Iterator[Edit]:
    """q, k and v taken from a fused projection in another order."""
    owner, _, tensor = site.definition.name.rpartition(".hook_")
    if site.definition.function is not project_heads:
        return
    for order in permutations("qkv"):
        taken = {own: other for own, other in zip("qkv", order, strict=True) if own != other}
        if not taken or next(iter(taken)) != tensor:  # told once, where it shows first
            continue
        changed = [
            replace(site.values.definitions[f"{owner}.hook_{other}"], name=f"{owner}.hook_{own}")
            for own, other in taken.items()
        ]
        words = (
            f"`q`, `k` and `v` are taken in the order {', '.join(order)}: "
            f"yours called `{tensor}` is the reference's `{taken[tensor]}`."
        )
        yield fixed("wrong-operand", changed[0], words, 1, f"{owner}.hook_{taken[tensor]}", tuple(changed[1:]))


def edit_own_parameters(site: Site) -> Iterator[Edit]:
    """Your own value of a parameter in place of the reference's: it was never loaded."""
    changed, why = site.definition, []
    for role, operand in site.definition.operands.items():
        if operand.name in site.values.has_own:
            changed = changed.with_operand(role, OWN + operand.name)
            why.append(site.unloaded[operand.name])
    if why:
        yield fixed("weights", changed, " ".join(dict.fromkeys(why)), 0)


def edit_own_tensors(site: Site) -> Iterator[Edit]:
    """Tensors of yours that are no activation of the reference, such as raw scores, read in an operand's place.

    Where yours never has the right operand, such a tensor may be what became of it.
    """
    definition = site.definition
    for role, operand in definition.operands.items():
        if operand.name not in site.matched or operand.name not in site.values.definitions:
            continue
        tensor = operand.name.rpartition("hook_")[2]
        for name, kept in site.values.own_tensors(operand.name, site.layer).items():
            if not is_called(name, tensor):
                words = _instead(site, role, f"your `{name}`")
                changed = definition.with_operand(role, kept)
                yield fixed("wrong-operand", changed, words, 3, besides=_besides(site, kept))


def _candidates(site: Site, role: str) -> list[str]:
    """What may be read by mistake: activations for an activation, parameters for a parameter."""
    definition, operand = site.definition, site.definition.operands[role].name
    is_cheap = role in _PARAMETERS or definition.function not in (project, project_heads)
    is_activation = operand in site.values.definitions
    others = [
        name
        for name in site.others(site.values.shape(operand), far=is_cheap)
        if name != operand and (name in site.values.definitions) == is_activation
    ]
    if role in _PARAMETERS:
        others += [name for name in site.values.names() if _is_namesake(name, operand)]
    if definition.function is score:
        others = [name for name in others if layer_of(name) == site.layer]
    return list(dict.fromkeys(others))


def _cost_of(name: str) -> int:
    """What one norm has on its way is hardly ever given to another: it is the stream that is read elsewhere."""
    return 4 if name.endswith("hook_normalized") else 2


def _is_namesake(name: str, operand: str) -> bool:
    """The same parameter of another layer."""
    one, other = name.split("."), operand.split(".")
    return name != operand and one[0] == other[0] == "blocks" and one[2:] == other[2:]


def _have_shapes_of(site: Site, names: tuple[str, str], others: tuple[str, str]) -> bool:
    return [site.values.shape(each) for each in names] == [site.values.shape(each) for each in others]


def _pair(weight: str, bias: str, beside: str = "") -> str:
    """``ln1.w` and `ln1.b` of block 0`."""
    whole = named(weight, beside or weight)
    return f"{short(weight)} and {short(bias)}{whole.removeprefix(short(weight))}"


def _partner(name: str) -> str:
    """The bias that goes with a weight."""
    owner, _, last = name.rpartition(".")
    return f"{owner}.b" if last == "w" else f"{owner}.b_{last[2:]}" if last.startswith("W_") else ""


def _besides(site: Site, name: str) -> tuple[Definition, ...]:
    """A LayerNorm that reads another tensor reads it twice."""
    if site.definition.function is not spread:
        return ()
    quotient = site.values.definitions[site.definition.name.replace("hook_scale", "hook_normalized")]
    return (quotient.with_operand("x", name),)


def _equality(definition: Definition, name: str) -> str:
    own, other = short(definition.name), named(name, definition.name)
    if definition.tensor == "resid_post" and name == definition.name.replace("resid_post", "resid_pre"):
        return f"block {layer_of(name).rpartition('.')[2]} is skipped: yours is its {other}, where {own} belongs."
    return f"yours is {other} itself, where {own} belongs."


def _instead(site: Site, role: str, other: str) -> str:
    preposition = "with" if role in _PARAMETERS else "from"
    own = short(site.definition.operands[role].name)
    return f"{_computed(site.definition)} {preposition} {other} instead of {own}."


def _computed(definition: Definition) -> str:
    if definition.function is spread:  # the norm's two readings of the stream are edited together
        return f"`{definition.name.split('.')[-2]}` is computed"
    return f"{short(definition.name)} {'are' if definition.name == 'unembed.hook_out' else 'is'} computed"
