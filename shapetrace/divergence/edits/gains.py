"""A LayerNorm's gain and bias: combined in another way, or applied before the norm."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from shapetrace.divergence.definitions import Definition, apply_gain, normalise, spread
from shapetrace.divergence.edits.edit import Edit, Site, fixed, short

_OTHERS: tuple[tuple[Callable[..., Tensor], str], ...] = (
    (lambda x, gain, bias: (x + bias) * gain, "{bias} is added before the product with {gain}, and belongs after it"),
    (lambda x, gain, bias: x + gain * bias, "{gain} multiplies {bias}, and not the normalised stream"),
    (lambda x, gain, bias: x * (gain + bias), "{bias} is added to {gain}, and not to the product with it"),
    (lambda x, gain, bias: x + gain + bias, "{gain} is added to the normalised stream, and not multiplied by it"),
    (lambda x, gain, bias: x * gain * bias, "the product is multiplied by {bias}, which is to be added"),
    (lambda x, gain, bias: x / gain + bias, "the normalised stream is divided by {gain}, and not multiplied by it"),
)


def edit_gain(site: Site) -> Iterator[Edit]:
    """Gain and bias in another order, or before the norm."""
    definition, operands = site.definition, site.definition.operands
    if definition.function is normalise:
        yield from _early_gain(site)
    if definition.function is not apply_gain:
        return
    gain, bias = short(operands["gain"].name), short(operands["bias"].name)
    for function, words in _OTHERS:
        changed = Definition(definition.name, definition.axes, function, operands)
        words = words.format(gain=gain, bias=bias)
        yield fixed("normalisation", changed, f"{words}: it is x * w + b.", 2)
    swapped = Definition(definition.name, definition.axes, lambda x, gain, bias: x * bias + gain, operands)
    words = f"{gain} and {bias} stand in each other's place: it is x * w + b."
    yield fixed("wrong-operand", swapped, words, 2, operands["bias"].name)
    stream = {"x": site.values.definitions[operands["x"].name].operands["x"]}
    for norm in _norms(site.config.layer_norm_eps):
        changed = Definition(definition.name, definition.axes, _with_both(norm), {**operands, **stream})
        words = f"{gain} and {bias} are applied to the stream before it is normalised: they belong after it."
        yield fixed("normalisation", changed, words, 2)


def _early_gain(site: Site) -> Iterator[Edit]:
    definition = site.definition
    gain = definition.name.replace("hook_normalized", "w")
    for norm in _norms(site.config.layer_norm_eps):
        changed = Definition(definition.name, definition.axes, _with_gain(norm, site.values(gain)), definition.operands)
        words = f"{short(gain)} is applied to the stream before it is normalised: it belongs after it."
        yield fixed("normalisation", changed, words, 2)


Norm = Callable[[Tensor, Tensor], Tensor]  # of the stream as it was, and as it became


def _norms(eps: float) -> tuple[Norm, Norm]:
    """With mean and spread of the stream as it became, or as it was."""
    return (
        lambda x, wide: normalise(wide, spread(wide, eps=eps)),
        lambda x, wide: (wide - x.mean(-1, keepdim=True)) / spread(x, eps=eps),
    )


def _with_both(norm: Norm) -> Callable[..., Tensor]:
    return lambda x, gain, bias: norm(x, x * gain + bias)


def _with_gain(norm: Norm, gain: Tensor) -> Callable[..., Tensor]:
    return lambda x, scale: norm(x, x * gain)
