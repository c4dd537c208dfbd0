"""Sums with a term too few or too many, products without a factor, and multiples of the whole."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from shapetrace.divergence.definitions import Change, Definition, activate, add, project, project_heads, score
from shapetrace.divergence.edits.edit import Edit, Site, fixed, named, short
from shapetrace.divergence.edits.numbers import recognise, write_factor


def edit_terms(site: Site) -> Iterator[Edit]:
    """A term dropped, repeated, or counted a number of times that is still to be found."""
    definition = site.definition
    roles = [*definition.operands] if definition.function is add else ["bias"]
    for role in roles:
        if role in definition.operands and definition.operands[role].name not in site.zero:
            yield from _edit_term(site, role)
    if definition.function is add:
        terms = " and ".join(named(each, definition.name) for each in definition.reads())
        multiplied = Definition(definition.name, definition.axes, _multiply, definition.operands)
        yield fixed("wrong-operand", multiplied, f"{terms} are multiplied, and not added.", 2)
    if "weight" in definition.operands:
        yield _count(site, "weight", f"the product with {short(definition.operands['weight'].name)}")
    if "gain" in definition.operands:
        yield from _edit_gain(site)


def edit_extra_terms(site: Site) -> Iterator[Edit]:
    """A known tensor added that is no term."""
    definition = site.definition
    if definition.tensor in ("attn_scores", "pattern", "scale"):
        return
    for name in site.others(site.values.shape(definition.name), broadcast=True):
        if definition.function is not add or name not in definition.reads():
            yield _add(site, name)
    if definition.function in (project, project_heads):
        yield from _add_to_input(site)


def edit_factor(site: Site) -> Iterator[Edit]:
    """The whole tensor times a number, or plus one."""
    definition = site.definition
    if definition.function is score:
        return  # what scores are divided by has edits of its own
    yield Edit(
        "scale",
        lambda c: definition.followed_by(times(c)),
        lambda c: f"yours is {recognise(c, site.config)} times the reference{_also(site, c)}.",
        2,
        (1.5,),
    )
    yield Edit(
        "extra-term",
        lambda c: definition.followed_by(lambda each: each + c),
        lambda c: f"yours is the reference plus {c:.6g}, everywhere.",
        3,
        (0.1,),
    )


def _multiply(**terms: Tensor) -> Tensor:
    return math.prod(terms.values(), start=torch.ones((), dtype=torch.float64))


def times(number: float) -> Change:
    return lambda each: number * each


def _edit_term(site: Site, role: str) -> Iterator[Edit]:
    definition = site.definition
    name = definition.operands[role].name
    term = named(name, definition.name)
    missing = f"{term} is missing: {_sum(site)}."
    yield fixed("missing-term", definition.with_operand(role, change=torch.zeros_like), missing, tensor=name)
    twice = f"{term} is added twice; {short(definition.name)} needs it once."
    yield fixed("extra-term", definition.with_operand(role, change=times(2)), twice, tensor=name)
    yield _count(site, role, term)


def _count(site: Site, role: str, term: str) -> Edit:
    """The term a number of times."""
    definition = site.definition
    return Edit(
        "scale",
        lambda c: definition.with_operand(role, change=times(c)),
        lambda c: f"{term} goes in {write_factor(c, site.config)}; it belongs in as it is.",
        3,
        (1.5,),
        definition.operands[role].name,
    )


def _edit_gain(site: Site) -> Iterator[Edit]:
    definition = site.definition
    name = definition.operands["gain"].name
    gain = short(name)
    words = f"{gain} is missing: the normalised stream is to be multiplied by it."
    yield fixed("missing-term", definition.with_operand("gain", change=torch.ones_like), words, tensor=name)
    bias = short(definition.operands["bias"].name)
    words = f"{gain} and {bias} are missing: the normalised stream is to be multiplied by the one, and the other added."
    neither = definition.with_operand("gain", change=torch.ones_like).with_operand("bias", change=torch.zeros_like)
    yield fixed("missing-term", neither, words, tensor=name)
    words = f"the normalised stream is multiplied by 1 + {gain}; GPT-2 multiplies by {gain}."
    yield fixed("extra-term", definition.with_operand("gain", change=lambda each: 1 + each), words)
    words = f"one number, the mean of {gain}, stands for its vector: each entry of the stream has its own gain."
    mean = definition.with_operand("gain", change=_mean_of)
    yield fixed("normalisation", mean, words, 2)
    for told, change in (("their mean", _mean_of), ("the first", lambda each: each[:1].expand_as(each))):
        words = f"one number, {told}, stands for all of {gain} and one for {bias}: each entry has its own."
        both = definition.with_operand("gain", change=change).with_operand("bias", change=change)
        yield fixed("normalisation", both, words, 2)


def _mean_of(vector: Tensor) -> Tensor:
    return vector.mean().expand_as(vector)


def _add(site: Site, name: str) -> Edit:
    definition = site.definition
    holder = _holder(site, name)
    there = f": {named(holder, definition.name)} holds it already" if holder else ""
    return Edit(
        "extra-term",
        lambda number: definition.followed_by(lambda each: each + site.values(name)),
        lambda number: f"{named(name, definition.name)} is added, and is no term of {short(definition.name)}{there}.",
        2,
        tensor=name,
    )


def _add_to_input(site: Site) -> Iterator[Edit]:
    definition = site.definition
    x = definition.operands["x"].name
    streams = site.others(site.values.shape(x), far=False)
    if site.layer == "unembed":
        streams.append(site.values.definitions["ln_final.hook_scale"].operands["x"].name)
    for name in streams:
        if name != x and name in site.values.definitions:
            changed = definition.with_operand("x", change=_plus(site, name))
            words = f"{named(name, x)} is added to {short(x)}, from which {short(definition.name)} is computed."
            yield fixed("extra-term", changed, words.replace("logits is", "logits are"), 4, name)


def _plus(site: Site, name: str) -> Change:
    return lambda each: each + site.values(name)


def _holder(site: Site, term: str) -> str:
    """The nearest activation that this one comes of and that has the term in it; "" where none has."""
    definitions = site.values.definitions
    frontier = [site.definition.name]
    for name in frontier:
        read = definitions[name].operands
        terms = [each.name for role, each in read.items() if role == "bias" or definitions[name].function is add]
        if term in terms and name != site.definition.name:
            return name
        frontier += [each.name for each in read.values() if each.name in definitions and each.name not in frontier]
    return ""


def _also(site: Site, c: float) -> str:
    """What the factor is there: GELU's own one, or one that comes once more further on."""
    if site.definition.function is activate and math.isclose(c, 2, rel_tol=2e-5):
        return ": the factor 0.5 of GELU is missing"
    is_root = site.definition.tensor in ("q", "k") and math.isclose(c, site.config.d_head**-0.5, rel_tol=2e-5)
    return ": the scores are divided by sqrt(d_head) after that, once more" if is_root else ""


def _sum(site: Site) -> str:
    definition = site.definition
    if definition.function is add:
        terms = [named(each, definition.name) for each in definition.reads()]
        return f"{short(definition.name)} is {' + '.join(terms)}"
    return f"add it to {short(definition.name)} at each position"
