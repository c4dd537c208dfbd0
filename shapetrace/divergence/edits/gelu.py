"""The MLP's non-linearity: none, another one, one in another place, or GPT-2's GELU with a slip in its formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from shapetrace.divergence.definitions import Change, Definition, activate, gelu_tanh
from shapetrace.divergence.edits.edit import Edit, Site, fixed

ROOT, CUBIC = math.sqrt(2 / math.pi), 0.044715
OTHERS: dict[str, Change] = {
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
_ALONG_AN_AXIS: dict[str, Change] = {
    "the softmax": lambda x: x.softmax(-1),
    "a LayerNorm without gain and bias": lambda x: functional.layer_norm(x, x.shape[-1:], eps=1e-5),
}
_FORMULA = f"0.5 x (1 + tanh(sqrt(2 / pi) (x + {CUBIC} x**3)))"
# What becomes of the formula where a sign, a bracket, a power or a part of it is another one.
_SLIPS: dict[str, Change] = {
    "the factor x is missing": lambda x: 0.5 * (1 + torch.tanh(ROOT * (x + CUBIC * x**3))),
    "the 1 that is added to tanh is missing": lambda x: _gelu(x, one=0),
    "1 is taken from tanh, and not added to it (or `pre` goes in with its sign turned)": lambda x: _gelu(x, one=-1),
    "tanh is taken from 1, and not added to it": lambda x: 0.5 * x * (1 - torch.tanh(ROOT * (x + CUBIC * x**3))),
    "1 + tanh lacks its brackets, so that tanh is added and not multiplied": lambda x: (
        0.5 * x + torch.tanh(ROOT * (x + CUBIC * x**3))
    ),
    "0.5 x is added to 1 + tanh, and not multiplied by it": lambda x: (
        0.5 * x + 1 + torch.tanh(ROOT * (x + CUBIC * x**3))
    ),
    "the cubic term is missing": lambda x: _gelu(x, cubic=0),
    "the cubic term is taken off, and not added": lambda x: _gelu(x, cubic=-CUBIC),
    "x and its cubic term are multiplied, and not added": lambda x: 0.5 * x * (1 + torch.tanh(ROOT * CUBIC * x**4)),
    "x**2 stands in place of x**3": lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + CUBIC * x**2))),
    "x**4 stands in place of x**3": lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + CUBIC * x**4))),
    "3 x stands in place of x**3": lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + CUBIC * 3 * x))),
    "0.044715 is cubed together with x": lambda x: _gelu(x, cubic=CUBIC**3),
    "sqrt(2 / pi) multiplies x alone, and not the cubic term": lambda x: _gelu(x, cubic=CUBIC / ROOT),
    "sqrt(2 / pi) multiplies the cubic term alone, and not x": lambda x: (
        0.5 * x * (1 + torch.tanh(x + ROOT * CUBIC * x**3))
    ),
    "0.044715 multiplies x too": lambda x: 0.5 * x * (1 + torch.tanh(ROOT * CUBIC * (x + x**3))),
    "sqrt(2 / pi) is missing": lambda x: _gelu(x, inner=1),
    "sigmoid stands in place of tanh": lambda x: 0.5 * x * (1 + torch.sigmoid(ROOT * (x + CUBIC * x**3))),
    "sin stands in place of tanh": lambda x: 0.5 * x * (1 + torch.sin(ROOT * (x + CUBIC * x**3))),
    "erf stands in place of tanh": lambda x: 0.5 * x * (1 + torch.erf(ROOT * (x + CUBIC * x**3))),
}
# GPT-2's GELU with a number to be found in it, where that number is by itself, and what is then to be said.
_WITH_A_NUMBER: tuple[tuple[str, Callable[[float], Change], float], ...] = (
    (f"its cubic term has {{}} in place of {CUBIC}", lambda c: lambda x: _gelu(x, cubic=c), CUBIC),
    ("inside its tanh is {} in place of sqrt(2 / pi) = 0.7979", lambda c: lambda x: _gelu(x, inner=c), 0.8),
    ("{} is added to its tanh in place of 1", lambda c: lambda x: _gelu(x, one=c), 1.0),
    ("it is x * sigmoid({} x)", lambda c: lambda x: x * torch.sigmoid(c * x), 1.5),
    ("it is 0.5 x (1 + erf({} x)), the exact GELU with another factor", lambda c: lambda x: _with_erf(x, c), 0.7),
    ("it is ReLU with a slope of {} below 0", lambda c: lambda x: torch.where(x < 0, c * x, x), 0.1),
)
_CONSTANTS = {
    "2 / pi, without its root": 2 / math.pi,
    "sqrt(pi / 2)": math.sqrt(math.pi / 2),
    "sqrt(2) / pi": math.sqrt(2) / math.pi,
    "2 / sqrt(pi)": 2 / math.sqrt(math.pi),
    "sqrt(2 * pi)": math.sqrt(2 * math.pi),
    "1 / sqrt(2 * pi)": 1 / math.sqrt(2 * math.pi),
    "sqrt(2)": math.sqrt(2),
}


def edit_function(site: Site) -> Iterator[Edit]:
    """The MLP's non-linearity: none, another one of the table, or GPT-2's with another constant."""
    definition = site.definition
    if definition.function is not activate:
        return
    none = definition.with_settings(activation=lambda x: x)
    yield fixed("nonlinearity", none, "`pre` goes on without a non-linearity: GELU is missing.")
    last = site.values.definitions[definition.name.replace("mlp.hook_post", "hook_mlp_out")]
    words = "GELU comes after `W_out`: it belongs between `W_in` and `W_out`."
    yield fixed("nonlinearity", none, words, 0, besides=(last.followed_by(gelu_tanh),))
    for name, function in {**OTHERS, **_ALONG_AN_AXIS}.items():
        hint = 'use `approximate="tanh"`' if function is functional.gelu else "GPT-2 has the tanh form of GELU"
        changed = definition.with_settings(activation=function)
        yield fixed("nonlinearity", changed, f"`post` is `pre` after {name}: {hint}.")
    twice = definition.with_settings(activation=lambda x: gelu_tanh(gelu_tanh(x)))
    yield fixed("nonlinearity", twice, "GELU is applied twice.")
    for slip, function in _SLIPS.items():
        changed = definition.with_settings(activation=function)
        yield fixed("nonlinearity", changed, f"GELU has a slip: {slip}. It is {_FORMULA}.")
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


def _with_a_number(definition: Definition, words: str, make: Callable[[float], Change], start: float) -> Edit:
    return Edit(
        "nonlinearity",
        lambda c: definition.with_settings(activation=make(c)),
        lambda c: f"`post` is not GPT-2's GELU of `pre`: {words.format(_name(c))}.",
        3,
        (start,),
    )


def _name(number: float) -> str:
    """`0.6366 (that is 2 / pi, without its root)`."""
    known = [name for name, value in _CONSTANTS.items() if math.isclose(number, value, rel_tol=2e-5)]
    return f"{number:.4g} (that is {known[0]})" if known else f"{number:.5g}"


def _plain(entry: Tensor, digits: int) -> str:
    return f"{round(float(entry), digits) + 0.0:.{digits}f}"  # never -0


def _gelu(x: Tensor, cubic: float = CUBIC, inner: float = ROOT, one: float = 1.0) -> Tensor:
    return 0.5 * x * (one + torch.tanh(inner * (x + cubic * x**3)))


def _with_erf(x: Tensor, inner: float) -> Tensor:
    return 0.5 * x * (1 + torch.erf(inner * x))
