"""A function where none belongs: on a tensor, or on a term of a sum."""

from __future__ import annotations

from collections.abc import Iterator

from torch.nn import functional

from shapetrace.divergence.definitions import Change, add, gelu_tanh
from shapetrace.divergence.edits.edit import Edit, Site, fixed, named, short
from shapetrace.divergence.edits.gelu import OTHERS

_POINTWISE: dict[str, Change] = {"the tanh GELU": gelu_tanh, **OTHERS}
_NORMALISING: dict[str, Change] = {
    "softmax is applied to {}: return them as they are.": lambda x: x.softmax(-1),
    "log_softmax is applied to {}: return them as they are.": lambda x: x.log_softmax(-1),
    "the mean of each position is taken from {}.": lambda x: x - x.mean(-1, keepdim=True),
    "{} is divided by its length at each position.": lambda x: x / x.norm(dim=-1, keepdim=True),
    "{} is normalised once more: mean 0 and variance 1 at each position.": lambda x: functional.layer_norm(
        x, x.shape[-1:], eps=1e-5
    ),
}


def edit_extra_function(site: Site) -> Iterator[Edit]:
    """A function applied to what needs none."""
    definition, name = site.definition, short(site.definition.name)
    if definition.tensor in ("attn_scores", "pattern", "scale", "post"):
        return
    for each, function in _POINTWISE.items():
        changed = definition.followed_by(function)
        yield fixed("nonlinearity", changed, f"{each} is applied to {name}, which needs none.", 3)
    for each, change in _NORMALISING.items():
        kind = "nonlinearity" if "softmax" in each else "normalisation"
        yield fixed(kind, definition.followed_by(change), each.format(name), 3)


def edit_function_of_term(site: Site) -> Iterator[Edit]:
    """A function applied to a term before it is added."""
    definition = site.definition
    if definition.function is not add:
        return
    for role, operand in definition.operands.items():
        term = named(operand.name, definition.name)
        for each, function in _POINTWISE.items():
            changed = definition.with_operand(role, change=function)
            words = f"{each} is applied to {term} before it is added, which needs none."
            yield fixed("nonlinearity", changed, words, 4, operand.name)
        for each, change in _NORMALISING.items():
            if "softmax" not in each:
                words = f"before it is added, {each.format(term)}"
                changed = definition.with_operand(role, change=change)
                yield fixed("normalisation", changed, words, 4, operand.name)
