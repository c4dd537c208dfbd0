"""What a number is: 4 is sqrt(d_head)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from shapetrace.gpt2.config import Config

_CLOSE = 2e-5


def recognise(number: float, config: Config) -> str:
    """`4, which is sqrt(d_head),` where the number is one that the sizes make; else the number."""
    name = name_of(number, config)
    written = write(number)
    return f"{written} (that is {name})" if name and name != written else written


def name_of(number: float, config: Config, also_simple: bool = False) -> str:
    """The likeliest expression in the model's sizes that has this value; "" where there is none, or none is needed.

    Where two are as likely, both: `n_heads and sqrt(d_head)`.
    """
    for group in (_likely(config), () if _is_simple(number) and not also_simple else _less_likely(config)):
        names = [name for value, name in group if math.isclose(number, value, rel_tol=_CLOSE)]
        if names:
            return " and ".join(names[:2])
    return ""


def _is_simple(number: float) -> bool:
    """2, 0.5 or a third needs no explanation, and small sizes would give it many."""
    return any(
        math.isclose(each, round(each), rel_tol=_CLOSE) and 1 <= abs(each) <= 12 for each in (number, 1 / (number or 1))
    )


def write_factor(number: float, config: Config) -> str:
    """`8 times, which is sqrt(d_model)`; `with its sign turned`."""
    if math.isclose(number, -1, rel_tol=_CLOSE):
        return "with its sign turned"
    name = name_of(number, config)
    return f"{write(number)} times" + (f", which is {name}" if name and name != write(number) else "")


def write(number: float) -> str:
    """As few digits as tell it."""
    rounded = round(number)
    return str(rounded) if math.isclose(number, rounded, rel_tol=_CLOSE) and rounded else f"{number:.4g}"


def _likely(config: Config) -> Iterator[tuple[float, str]]:
    for name, size in (("d_head", config.d_head), ("d_model", config.d_model)):
        yield math.sqrt(size), f"sqrt({name})"
        yield float(size), name
        yield 1 / math.sqrt(size), f"1 / sqrt({name})"
        yield 1 / size, f"1 / {name}"
    if config.n_heads > 2:
        yield float(config.n_heads), "n_heads"
        yield 1 / config.n_heads, "1 / n_heads"


def _less_likely(config: Config) -> Iterator[tuple[float, str]]:
    if config.n_heads > 2:
        yield math.sqrt(config.n_heads), "sqrt(n_heads)"
        yield 1 / math.sqrt(config.n_heads), "1 / sqrt(n_heads)"
    for name, size in (("d_head", config.d_head), ("d_model", config.d_model)):
        yield size**0.25, f"{name}**0.25"
        yield size**-0.25, f"1 / {name}**0.25"
        yield size**1.5, f"{name}**1.5"
        yield size / (size - 1), f"{name} / ({name} - 1)"
        yield math.sqrt(size / (size - 1)), f"sqrt({name} / ({name} - 1))"
    yield math.sqrt(config.d_head / config.d_model), "sqrt(d_head / d_model)"
    yield math.sqrt(config.d_mlp), "sqrt(d_mlp)"
    yield 1 / math.sqrt(2 * config.n_layers), "1 / sqrt(2 * n_layers)"
    yield math.log2(math.e), "log2(e)"
    yield math.log(2), "ln(2)"
    yield math.sqrt(2), "sqrt(2)"
    yield 1 / math.sqrt(2), "1 / sqrt(2)"
