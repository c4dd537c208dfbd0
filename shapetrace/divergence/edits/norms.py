"""LayerNorms that are not quite: another N, another eps, another axis, no mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from shapetrace.divergence.definitions import Change, Definition, add, apply_gain, normalise, spread
from shapetrace.divergence.edits.edit import Edit, Site, fixed, layer_of, named, short

_OTHER_MEASURES: dict[str, Change] = {
    "the stream is divided by its length": lambda x: x.norm(dim=-1, keepdim=True),
    "the stream is divided by the length of what is left without the mean": lambda x: (
        x - x.mean(-1, keepdim=True)
    ).norm(dim=-1, keepdim=True),
    "the stream is divided by sqrt(std + eps), a root too many": lambda x: (
        x.std(-1, keepdim=True, correction=0) + 1e-5
    ).sqrt(),
    "the stream is divided by sqrt(std + eps), a root too many and with N - 1": lambda x: (
        x.std(-1, keepdim=True) + 1e-5
    ).sqrt(),
    "the stream is divided by its mean absolute deviation": lambda x: (
        (x - x.mean(-1, keepdim=True)).abs().mean(-1, keepdim=True)
    ),
    "the stream is divided by its range": lambda x: x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True),
}
_SEVERAL_AXES = (((-2, -1), "positions"), ((-3, -2, -1), "positions and the batch"))
_OUTSIDE = "outside the root"
_OTHER_QUOTIENTS: tuple[tuple[Callable[..., Tensor], str], ...] = (
    (lambda x, scale: x - _mean(x) / scale, "the mean is divided by the spread, and not what is left without it"),
    (lambda x, scale: x / scale - _mean(x), "the stream is divided by the spread before the mean is taken off"),
    (lambda x, scale: (x + _mean(x)) / scale, "the mean is added, and not taken off"),
    (lambda x, scale: (_mean(x) - x) / scale, "the stream is taken from its mean"),
    (lambda x, scale: (x - _mean(x)) * scale, "the stream is multiplied by its spread, and not divided by it"),
    (lambda x, scale: (x - _mean(x)) / scale.square(), "the stream is divided by its spread twice"),
    (lambda x, scale: (x - _mean(x)) / scale.sqrt(), "a root too many is taken of the spread"),
)


def edit_norm(site: Site) -> Iterator[Edit]:
    """The denominator and the numerator."""
    if site.definition.function is spread:
        yield from _spreads(site)
    elif site.definition.function is normalise:
        yield from _quotients(site)


def edit_extra_norm(site: Site) -> Iterator[Edit]:
    """A LayerNorm where none belongs."""
    definition = site.definition
    if definition.axes != "b p m" or definition.function is normalise:
        return
    for gain in site.values.names():
        bias = gain[:-1] + "b"
        if gain.endswith(".w") and bias in site.values and layer_of(gain) in (site.layer, "ln_final"):
            norm = short(gain).strip("`").removesuffix(".w")
            change = _through(site, gain, bias)
            words = f"{short(definition.name)} goes through `{norm}`, which does not belong there."
            if definition.name == gain.replace(".w", ".hook_out"):
                words = f"`{norm}` is applied twice: its output goes through it once more."
            yield fixed("normalisation", definition.followed_by(change), words, 3)
            for role, operand in definition.operands.items() if definition.function is add else ():
                term = named(operand.name, definition.name)
                words = f"{term} goes through `{norm}` before it is added, which does not belong there."
                yield fixed("normalisation", definition.with_operand(role, change=change), words, 3, operand.name)


def _through(site: Site, gain: str, bias: str) -> Change:
    def norm(x: Tensor) -> Tensor:
        scale = spread(x, eps=site.config.layer_norm_eps)
        return apply_gain(normalise(x, scale), site.values(gain), site.values(bias))

    return norm


def _spreads(site: Site) -> Iterator[Edit]:
    definition, eps = site.definition, site.definition.settings["eps"]
    size = site.config.d_model
    told = f"the variance is divided by N - 1 = {size - 1}; LayerNorm divides by N: use `unbiased=False`"
    yield fixed("normalisation", definition.with_settings(correction=1), f"{told}.")
    yield fixed(
        "normalisation",
        definition.with_settings(place=_OUTSIDE),
        f"eps is added to the standard deviation; it belongs under the root, sqrt(var + {eps:g}).",
    )
    yield fixed(
        "normalisation",
        definition.with_settings(place=_OUTSIDE, correction=1),
        f"{told}; and eps belongs under the root, sqrt(var + {eps:g}).",
        2,
    )
    for other in (0.0, 1e-6, 1e-12, 1e-8, 1e-5, 1e-3):
        if other != eps:
            yield fixed("normalisation", definition.with_settings(eps=other), _eps(other, eps), 2)
    yield Edit("normalisation", lambda c: definition.with_settings(eps=c), lambda c: _eps(c, eps), 3, (eps, 1e-2))
    yield Edit(
        "normalisation",
        lambda c: definition.with_settings(eps=c, place=_OUTSIDE),
        lambda c: f"{_round(c):g} is added to the standard deviation; eps belongs under the root, sqrt(var + {eps:g}).",
        4,
        (eps, 1e-2),
    )
    yield Edit(
        "normalisation",
        lambda c: definition.with_settings(eps=c, correction=1),
        lambda c: f"{told}; and eps is {_round(c):g} instead of {eps:g}.",
        4,
        (eps, 1e-2),
    )
    yield fixed(
        "normalisation",
        definition.with_settings(centred=False),
        "the spread is that of the stream itself, as in RMSNorm; LayerNorm takes the mean off first.",
    )
    yield fixed(
        "normalisation",
        definition.with_settings(place="without a root"),
        "the stream is divided by its variance; LayerNorm divides by the root of it.",
    )
    quotient = site.values.definitions[definition.name.replace("hook_scale", "hook_normalized")]
    for words, measure in _OTHER_MEASURES.items():
        changed = Definition(definition.name, definition.axes, measure, definition.operands)
        yield fixed("normalisation", changed, f"{words}; LayerNorm divides by the root of the variance.", 2)
    for axis, word in ((1, "positions"), (0, "the batch")):
        changed = definition.with_settings(axis=axis)
        yield fixed("axis", changed, f"the variance is taken over axis {axis} ({word}) instead of axis -1 (d_model).")
        both = (quotient.with_settings(axis=axis),)
        words = f"mean and variance are taken over axis {axis} ({word}) instead of axis -1 (d_model)."
        yield fixed("axis", changed, words, besides=both)
    for axes, word in _SEVERAL_AXES:
        changed = Definition(definition.name, definition.axes, _spread_over(axes, eps), definition.operands)
        yield fixed("axis", changed, f"the variance is taken over {word} too; LayerNorm takes each position alone.")
    yield from _root_mean_squares(site)


def _root_mean_squares(site: Site) -> Iterator[Edit]:
    """RMSNorm, which has no mean; torch's has no bias either, and an eps of its own."""
    definition, eps = site.definition, site.definition.settings["eps"]
    quotient, out = (
        site.values.definitions[definition.name.replace("hook_scale", f"hook_{each}")] for each in ("normalized", "out")
    )
    changed, rest = definition.with_settings(centred=False), quotient.with_settings(centred=False)
    words = "this is RMSNorm, without the mean; LayerNorm takes the mean off first."
    yield fixed("normalisation", changed, words, besides=(rest,))
    unbiased = out.with_operand("bias", change=torch.zeros_like)
    for other in (eps, torch.finfo(torch.float32).eps, 1e-6, 1e-8):
        told = f", and with an eps of {other:.3g} where GPT-2 has {eps:g}" if other != eps else ""
        words = (
            f"this is RMSNorm{told}; LayerNorm takes the mean off first, and adds {short(out.operands['bias'].name)}."
        )
        yield fixed("normalisation", changed.with_settings(eps=other), words, 2, besides=(rest, unbiased))


def _quotients(site: Site) -> Iterator[Edit]:
    definition = site.definition
    yield fixed(
        "normalisation",
        definition.with_settings(centred=False),
        "the mean is not taken off before dividing by the spread.",
    )
    undivided = Definition(
        definition.name, definition.axes, lambda x: x - x.mean(-1, keepdim=True), {"x": definition.operands["x"]}
    )
    yield fixed("normalisation", undivided, "the stream is not divided by its spread.")
    for function, words in _OTHER_QUOTIENTS:
        changed = Definition(definition.name, definition.axes, function, definition.operands)
        yield fixed("normalisation", changed, f"{words}: it is (x - mean) / sqrt(var + eps).", 2)
    yield fixed(
        "axis",
        definition.with_settings(axis=1),
        "the mean is taken over axis 1 (positions) instead of axis -1 (d_model).",
    )

    for axes, word in _SEVERAL_AXES:
        changed = Definition(definition.name, definition.axes, _quotient_over(axes), definition.operands)
        yield fixed("axis", changed, f"the mean is taken over {word} too; LayerNorm takes each position alone.")


def _spread_over(axes: tuple[int, ...], eps: float) -> Change:
    return lambda x: (x.var(axes, keepdim=True, correction=0) + eps).sqrt()


def _quotient_over(axes: tuple[int, ...]) -> Callable[..., Tensor]:
    return lambda x, scale: (x - x.mean(axes, keepdim=True)) / scale


def edit_whole(site: Site) -> Iterator[Edit]:
    """One mean and one variance for all positions."""
    if site.definition.function is not normalise:
        return
    definition, eps = site.definition, site.config.layer_norm_eps
    changed = Definition(
        definition.name,
        definition.axes,
        lambda x: (x - x.mean((-2, -1), keepdim=True)) / (x.var((-2, -1), keepdim=True, unbiased=False) + eps).sqrt(),
        {"x": definition.operands["x"]},
    )
    yield fixed(
        "axis", changed, "mean and variance are taken over positions too; LayerNorm takes each position alone.", 2
    )


def _mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


def _eps(found: float, eps: float) -> str:
    if found == 0:
        return f"eps is missing, or as good as 0: sqrt(var + {eps:g})."
    return f"eps is {_round(found):.3g}; GPT-2 has {eps:g}."


def _round(number: float) -> float:
    """To two digits, where that is what a person would have written."""
    if number == 0 or not math.isfinite(number):
        return number
    near = float(f"{number:.1g}")
    return near if math.isclose(near, number, rel_tol=0.02) else number
