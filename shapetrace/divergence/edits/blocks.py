"""Whole blocks and sub-layers in another order, left out, or run more than once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from torch import Tensor

from shapetrace.divergence.definitions import Definition, Operand, project_heads
from shapetrace.divergence.edits.edit import Edit, Site, fixed, layer_of
from shapetrace.divergence.values import Values

# What each sub-layer returns: the norm before it, and what it is called.
_SUB_LAYERS = {"attn_out": ("ln1", "attention"), "mlp_out": ("ln2", "the MLP")}


def edit_run_order(site: Site) -> Iterator[Edit]:
    """The blocks in the order in which they ran."""
    right, ran = tuple(range(site.config.n_layers)), site.ran
    is_replaced = len(ran) == len(right) and set(ran) != set(right)  # one called in another's place: see edit_layer
    is_stream = site.definition.tensor in ("resid_pre", "resid_post") or site.definition.name == "ln_final.hook_out"
    if not is_stream or ran in ((), right) or is_replaced:
        return
    yield _together(site, _streams(site.values, right, ran), _tell_order(right, ran), 1)


def edit_layer(site: Site) -> Iterator[Edit]:
    """A whole block with another one's weights: the same module called twice."""
    if site.definition.tensor != "resid_post":
        return
    definitions = site.values.definitions
    inside = [each for name, each in definitions.items() if layer_of(name) == site.layer]
    for layer in sorted({layer_of(name) for name in definitions if name.startswith("blocks.")} - {site.layer}):
        changed = [_with_weights_of(layer, site, each) for each in inside]
        own, other = (each.rpartition(".")[2] for each in (site.layer, layer))
        words = f"block {own} is computed with the weights of block {other}: is the same module called twice?"
        yield fixed("wrong-operand", changed[-1], words, 2, besides=tuple(changed[:-1]))


def edit_sub_layers(site: Site) -> Iterator[Edit]:
    """The MLP before attention, each with its own norm or with the other's."""
    if site.definition.name in (f"{site.layer}.ln1.hook_scale", f"{site.layer}.ln1.hook_out"):
        words = "the MLP runs before attention: `ln1` is given `resid_pre` + `mlp_out`, and `ln2` is given `resid_pre`."
        yield _together(site, _mlp_first(site), words)
    elif site.definition.function is project_heads and site.definition.tensor == "q":
        words = "the MLP runs before attention: it is given the output of `ln1`, and attention that of `ln2`."
        yield _together(site, _mlp_first_with_other_norms(site), words)
    elif site.definition.tensor in _SUB_LAYERS:
        yield from _other_sub_layers(site)


def _other_sub_layers(site: Site) -> Iterator[Edit]:
    """The other sub-layer in this one's place, or this one twice."""
    own = site.definition.tensor
    other = next(each for each in _SUB_LAYERS if each != own)
    given = Operand(f"{site.layer}.{_SUB_LAYERS[own][0]}.hook_out")
    name, instead = _SUB_LAYERS[own][1], _SUB_LAYERS[other][1]
    for made_by, words in (
        ((other,), f"{instead} runs in place of {name}."),
        ((own, own), f"{name} runs twice: what it returns goes through it once more."),
    ):
        changed = replace(site.definition, function=_through(site, made_by), operands={"x": given})
        yield fixed("wrong-operand", changed, words, 1)


def _through(site: Site, sub_layers: tuple[str, ...]) -> Callable[..., Tensor]:
    """Sub-layers one after the other, without norms between them."""

    def run(x: Tensor) -> Tensor:
        for each in sub_layers:
            x = _compute(site.values, f"{site.layer}.hook_{each}", {f"{site.layer}.{_SUB_LAYERS[each][0]}.hook_out": x})
        return x

    return run


def _mlp_first(site: Site) -> Iterator[Definition]:
    definitions, hook = site.values.definitions, f"{site.layer}.hook_"

    def after_mlp(stream: Tensor) -> Tensor:
        return stream + _compute(site.values, f"{hook}mlp_out", {f"{hook}resid_mid": stream})

    for each in ("scale", "normalized"):
        yield definitions[f"{site.layer}.ln1.hook_{each}"].with_operand("x", change=after_mlp)
    yield Definition(f"{hook}resid_mid", "b p m", lambda x: x, {"x": Operand(f"{hook}resid_pre")})
    terms = {each: Operand(hook + each) for each in ("resid_pre", "attn_out", "mlp_out")}
    yield replace(definitions[f"{hook}resid_post"], operands=terms)


def _mlp_first_with_other_norms(site: Site) -> Iterator[Definition]:
    definitions, hook, normed = site.values.definitions, f"{site.layer}.hook_", f"{site.layer}.ln2.hook_out"
    given = {"resid": Operand(f"{hook}resid_pre"), "x": Operand(f"{site.layer}.ln1.hook_out")}

    def middle(resid: Tensor, x: Tensor) -> Tensor:
        return resid + _compute(site.values, f"{hook}mlp_out", {normed: x})

    def project(resid: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x = _compute(site.values, normed, {f"{hook}resid_mid": middle(resid, x)})
        return project_heads(x, weight, bias)

    for each in "qkv":
        head = definitions[f"{site.layer}.attn.hook_{each}"]
        yield replace(head, function=project, operands={**head.operands, **given})
    yield Definition(f"{hook}resid_mid", "b p m", middle, given)
    yield definitions[f"{site.layer}.mlp.hook_pre"].with_operand("x", given["x"].name)
    yield definitions[f"{hook}resid_post"].with_operand("update", f"{hook}attn_out")


def _together(site: Site, changed: Iterable[Definition], words: str, cost: int = 2) -> Edit:
    """One mistake that edits several definitions, told where the site is."""
    edited = {each.name: each for each in changed}
    own = edited.pop(site.definition.name, site.definition)
    return fixed("wrong-operand", own, words, cost, besides=tuple(edited.values()))


def _streams(values: Values, right: tuple[int, ...], ran: tuple[int, ...]) -> Iterator[Definition]:
    """What each block was given the last time, and the last norm, where it is something else than it should be."""
    stream, after = values("blocks.0.hook_resid_pre"), [values("blocks.0.hook_resid_pre")]
    for layer in ran:
        stream = _compute(values, f"blocks.{layer}.hook_resid_post", {f"blocks.{layer}.hook_resid_pre": stream})
        after.append(stream)
    for layer in sorted(set(ran)):
        last = len(ran) - 1 - ran[::-1].index(layer)
        if ran[:last] != right[:layer]:
            yield _holding(values.definitions[f"blocks.{layer}.hook_resid_pre"], after[last])
    for each in ("scale", "normalized"):
        norm = values.definitions[f"ln_final.hook_{each}"]
        yield norm.with_operand("x", change=lambda given: after[-1])


def _holding(definition: Definition, value: Tensor) -> Definition:
    return Definition(definition.name, definition.axes, lambda: value, {})


def _compute(values: Values, name: str, given: Mapping[str, Tensor]) -> Tensor:
    """An activation from others of its block, whatever comes between."""
    found = dict(given)
    first = min(map([*values.definitions].index, given))
    for each in [*values.definitions.values()][first:]:
        if each.name not in found and any(read in found for read in each.reads()):
            found[each.name] = each.evaluate(lambda read: found[read] if read in found else values(read))
        if each.name == name:
            break
    return found[name]


def _tell_order(right: tuple[int, ...], ran: tuple[int, ...]) -> str:
    never = [layer for layer in right if layer not in ran]
    often = [layer for layer in right if ran.count(layer) > 1]
    told = [f"block {layer} never runs" for layer in never]
    told += [f"block {layer} runs {_times(ran.count(layer))}" for layer in often]
    told += [f"the blocks run in the order {_listed(ran)}: it is {_listed(right)}"]
    return "; ".join(told) + "."


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _listed(layers: Iterable[int]) -> str:
    return ", ".join(map(str, layers))


def _with_weights_of(layer: str, site: Site, definition: Definition) -> Definition:
    for role, operand in definition.operands.items():
        if operand.name not in site.values.definitions and layer_of(operand.name) == site.layer:
            definition = definition.with_operand(role, operand.name.replace(site.layer, layer, 1))
    return definition
