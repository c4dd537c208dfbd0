"""Another function in a function's place, or one where none belongs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from shapetrace.divergence.definitions import Change, Definition, activate, gelu_tanh, take_softmax
from shapetrace.divergence.edits.edit import Edit, Site, fixed, short
from shapetrace.divergence.edits.numbers import write

_TANH_CONSTANT, _CUBIC = math.sqrt(2 / math.pi), 0.044715
_OTHERS: dict[str, Change] = {
    "the exact GELU, with erf": functional.gelu,
    "ReLU": torch.relu,
    "SiLU, x * sigmoid(x)": functional.silu,
    "the sigmoid GELU, x * sigmoid(1.702 x)": lambda x: x * torch.sigmoid(1.702 * x),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "ReLU squared": lambda x: torch.relu(x).square(),
    "leaky ReLU": lambda x: functional.leaky_relu(x, 0.01),
    "ELU": functional.elu,
    "softplus": functional.softplus,
    "Mish": functional.mish,
    "SELU": functional.selu,
    "hard swish": functional.hardswish,
    "ReLU6": functional.relu6,
}
# GPT-2's GELU with a number to be found in it, where that number is by itself, and what is then to be said.
_WITH_A_NUMBER: tuple[tuple[str, Callable[[float], Change], float], ...] = (
    (f"its cubic term has {{}} in place of {_CUBIC}", lambda c: lambda x: _gelu(x, cubic=c), _CUBIC),
    ("inside its tanh is {} in place of sqrt(2 / pi) = 0.7979", lambda c: lambda x: _gelu(x, inner=c), 0.8),
    ("{} is added to its tanh in place of 1", lambda c: lambda x: _gelu(x, one=c), 1.0),
    ("it is x * sigmoid({} x)", lambda c: lambda x: x * torch.sigmoid(c * x), 1.5),
    ("it is ReLU with a slope of {} below 0", lambda c: lambda x: torch.where(x < 0, c * x, x), 0.1),
)
_IN_PLACE_OF_SOFTMAX: dict[str, Change] = {
    "sigmoid": torch.sigmoid,
    "ReLU": torch.relu,
    "exp, without dividing by the sum of the row": torch.exp,
    "log_softmax": lambda x: x.log_softmax(-1),
    "an exp that overflows (take the largest score of each row off before it)": lambda x: _overflowing(x),
    "the softmax, twice": lambda x: x.softmax(-1).softmax(-1),
}


def edit_function(site: Site) -> Iterator[Edit]:
    """The MLP's non-linearity: none, another one of the table, or GPT-2's with another constant."""
    definition = site.definition
    if definition.function is not activate:
        return
    none = definition.with_settings(activation=lambda x: x)
    yield fixed("nonlinearity", none, "`pre` goes on without a non-linearity: GELU is missing.")
    for name, function in _OTHERS.items():
        hint = 'use `approximate="tanh"`' if function is functional.gelu else "GPT-2 has the tanh form of GELU"
        changed = definition.with_settings(activation=function)
        yield fixed("nonlinearity", changed, f"`post` is `pre` after {name}: {hint}.")
    twice = definition.with_settings(activation=lambda x: gelu_tanh(gelu_tanh(x)))
    yield fixed("nonlinearity", twice, "GELU is applied twice.")
    for words, make, start in _WITH_A_NUMBER:
        yield _with_a_number(definition, words, make, start)


def edit_some_function(site: Site) -> Iterator[Edit]:
    """Another function that is in no table: each entry of yours hangs on the one entry of `pre` alone."""
    if site.definition.function is not activate or not site.is_target or site.yours is None:
        return
    shown = site.yours
    pre, yours = site.values(site.definition.operands["x"].name).flatten(), shown.flatten()
    order = pre.argsort()
    x, y = pre[order], yours[order]
    # Each entry laid on the line between its neighbours; at the ends they are too far away to tell.
    part = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2]).clamp_min(1e-12)
    missed = (y[:-2] + part * (y[2:] - y[:-2]) - y[1:-1]).abs()
    if float(missed.quantile(0.9)) < 2e-4 * float(y.abs().max()) and float(missed.max()) < 0.05 * float(y.abs().max()):
        at = [int((x - point).abs().argmin()) for point in (-1.0, 0.0, 1.0)]
        points = ", ".join(f"{_plain(x[each], 2)} to {_plain(y[each], 3)}" for each in at)
        words = f"`post` is another function of each entry of `pre`, taking {points}: GPT-2 has the tanh form of GELU."
        changed = Definition(site.definition.name, site.definition.axes, lambda x: shown, site.definition.operands)
        yield fixed("nonlinearity", changed, words, 5)


def edit_extra_function(site: Site) -> Iterator[Edit]:
    """A function applied to what needs none."""
    definition, name = site.definition, short(site.definition.name)
    if definition.tensor in ("attn_scores", "pattern", "scale", "post"):
        return
    for each, function in {"the tanh GELU": gelu_tanh, **_OTHERS}.items():
        changed = definition.followed_by(function)
        yield fixed("nonlinearity", changed, f"{each} is applied to {name}, which needs none.", 3)
    for each, change in _NORMALISING.items():
        kind = "nonlinearity" if "softmax" in each else "normalisation"
        yield fixed(kind, definition.followed_by(change), each.format(name), 3)


_NORMALISING: dict[str, Change] = {
    "softmax is applied to {}: return them as they are.": lambda x: x.softmax(-1),
    "log_softmax is applied to {}: return them as they are.": lambda x: x.log_softmax(-1),
    "the mean of each position is taken from {}.": lambda x: x - x.mean(-1, keepdim=True),
    "each position's {} is divided by its length.": lambda x: x / x.norm(dim=-1, keepdim=True),
    "{} is normalised once more: mean 0 and variance 1 at each position.": lambda x: functional.layer_norm(
        x, x.shape[-1:], eps=1e-5
    ),
}


def edit_softmax(site: Site) -> Iterator[Edit]:
    """The softmax over another axis, with a temperature, or something else in its place."""
    definition = site.definition
    if definition.function is not take_softmax:
        return
    for axis, word in ((-2, "queries"), (-3, "heads"), (-4, "the batch")):
        words = f"the pattern sums to 1 along axis {axis} ({word}); the softmax goes over keys, axis -1."
        yield fixed("axis", definition.with_settings(axis=axis), words)
    yield Edit(
        "scale",
        lambda c: _of_scores(definition, lambda scores: (c * scores).softmax(-1)),
        lambda c: f"the softmax is taken of {write(c)} times the scores.",
        2,
        (1.5, 0.5),
    )
    for name, function in _IN_PLACE_OF_SOFTMAX.items():
        words = f"the pattern is made with {name} in place of the softmax."
        yield fixed("nonlinearity", _of_scores(definition, function), words, 2)
    words = "the scores stand in for the pattern: the softmax is missing."
    yield fixed("nonlinearity", _of_scores(definition, lambda scores: scores), words)
    yield fixed("nonlinearity", _of_scores(definition, lambda x: x.masked_fill(x.isinf(), 0)), words)


def _plain(entry: Tensor, digits: int) -> str:
    return f"{round(float(entry), digits) + 0.0:.{digits}f}"  # never -0


def _with_a_number(definition: Definition, words: str, make: Callable[[float], Change], start: float) -> Edit:
    return Edit(
        "nonlinearity",
        lambda c: definition.with_settings(activation=make(c)),
        lambda c: f"`post` is not GPT-2's GELU of `pre`: {words.format(write(c))}.",
        3,
        (start,),
    )


def _of_scores(definition: Definition, function: Change) -> Definition:
    return Definition(definition.name, definition.axes, lambda scores: function(scores), definition.operands)


def _gelu(x: Tensor, cubic: float = _CUBIC, inner: float = _TANH_CONSTANT, one: float = 1.0) -> Tensor:
    return 0.5 * x * (one + torch.tanh(inner * (x + cubic * x**3)))


def _overflowing(scores: Tensor) -> Tensor:
    powers = scores.float().exp()
    return (powers / powers.sum(-1, keepdim=True)).double()
