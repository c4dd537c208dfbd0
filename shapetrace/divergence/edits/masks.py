"""Attention scores: what they are divided by, and which keys each query sees."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from shapetrace.divergence.definitions import Definition, score
from shapetrace.divergence.edits.edit import Edit, Site, fixed
from shapetrace.divergence.edits.numbers import name_of, write


def edit_divisor(site: Site) -> Iterator[Edit]:
    """The scores times a number."""
    definition = site.definition
    if definition.function is not score:
        return
    factor = definition.settings["factor"]
    starts = (1.5, 4.0, 0.3)
    yield Edit("scale", lambda c: definition.with_settings(factor=c * factor), lambda c: _divisor(site, c), 1, starts)


def edit_mask(site: Site) -> Iterator[Edit]:
    """Another set of visible keys: a common mistake's, or what is read off your own tensor."""
    definition = site.definition
    if definition.function is not score:
        return
    right = definition.settings["visible"]
    n_posn = right.shape[-1]
    everything = torch.ones_like(right)
    for visible, words in (
        (everything, "no future key is hidden"),
        (right.tril(-1), "the diagonal is hidden too: a position sees itself"),
        (everything.tril(1), "each query sees the key after it"),
        (everything.tril(2), "each query sees two keys after it"),
        (~right, "the mask is inverted: what should be hidden is seen, and what should be seen is hidden"),
        (right.T, "the mask is transposed: each query sees the keys from its own onwards"),
        (right.tril(-2), "the diagonal and the key before it are hidden too"),
        (torch.eye(n_posn, dtype=torch.bool), "each query sees itself only"),
        (right & everything.triu(-1), "each query sees itself and one key before it"),
    ):
        words = f"{words}{_counts(visible, right)}."
        yield fixed("mask", definition.with_settings(visible=visible), words)
        if not visible.any(-1).all():  # a row that sees nothing is nan, but where hidden is a finite number
            yield fixed("mask", definition.with_settings(visible=visible, hidden=-1e9), words)
    seen = _read_visible(site)
    if seen is not None:
        yield fixed("mask", definition.with_settings(visible=seen), _describe(seen, right), 2)
    fill = _read_fill(site, right)
    if fill is not None and abs(fill) > 1e6:  # further away than a number is looked for
        words = f"future cells hold {fill:g} instead of -inf, and so they still receive attention."
        if fill == math.inf:
            words = "future cells hold inf instead of -inf: the softmax makes nan of their rows."
        yield fixed("mask", definition.with_settings(hidden=fill), words)
    yield Edit(
        "mask",
        lambda c: definition.with_settings(hidden=c),
        lambda c: f"future cells hold {_plain(c)} instead of -inf, and so they still receive attention.",
        2,
        (0.0, -1.0),
    )
    yield Edit(
        "mask",
        lambda c: _adding(definition, right, c),
        lambda c: _describe_sum(site, c),
        2,
        (1.0, -1.0),
    )
    if site.is_target:
        yield Edit(
            "mask",
            lambda c: _adding(definition, ~right, c),
            lambda c: f"{_plain(c)} is added where a key is visible, as by a mask of 0 and 1: fill the rest with -inf.",
            2,
            (1.0, -1.0),
        )


def _read_visible(site: Site) -> Tensor | None:
    """Which cells your own scores or pattern leave open; None for another tensor."""
    yours = site.yours
    if yours is not None and site.target.endswith("hook_pattern"):
        return torch.gt(yours, 0)
    if yours is not None and site.is_target:
        finite = yours.masked_fill(~yours.isfinite(), -math.inf)
        return torch.gt(finite, finite.amax((-1, -2), keepdim=True).clamp_min(-1e3) - 1e3)
    return None


def _read_fill(site: Site, right: Tensor) -> float | None:
    """The one number, other than -inf, that your own scores hold where nothing should be seen."""
    if site.yours is None or not site.is_target or right.all():
        return None
    cells = site.yours[~right.expand_as(site.yours)]
    return float(cells[0]) if (cells == cells[0]).all() and cells[0] > -math.inf else None


def _adding(definition: Definition, right: Tensor, number: float) -> Definition:
    """The mask added to the scores as a number, in place of filling with -inf."""
    factor = definition.settings["factor"]

    def add_mask(q: Tensor, k: Tensor) -> Tensor:
        return score(q, k, factor=factor, visible=torch.ones_like(right)) + (~right).double() * number

    return Definition(definition.name, definition.axes, add_mask, definition.operands)


def _divisor(site: Site, c: float) -> str:
    config = site.config
    root, told = math.sqrt(config.d_head), f"yours is {write(c)} times the reference"
    layer = site.layer.rpartition(".")[2]
    if layer.isdigit() and int(layer) and math.isclose(1 / c, int(layer) + 1, rel_tol=2e-5):
        return f"{told}: the scores are also divided by {write(1 / c)}, the number of the layer plus one."
    if math.isclose(c, root, rel_tol=2e-5):
        return f"{told}, and {write(c)} is sqrt(d_head): divide the scores by it."
    if math.isclose(c, config.d_head, rel_tol=2e-5):
        return f"{told}: the scores are multiplied by sqrt(d_head), and not divided by it."
    divisor = name_of(root / c, config, also_simple=True)
    if " and " in divisor:
        return f"{told}: the scores are divided by {write(root / c)}, which is {divisor}, instead of sqrt(d_head)."
    if divisor:
        return f"{told}: the scores are divided by {divisor} instead of sqrt(d_head)."
    return f"{told}; the scores are divided by {write(root / c)} where sqrt(d_head) = {write(root)} belongs."


def _counts(visible: Tensor, right: Tensor) -> str:
    future = int((~right).sum())
    masked = int((~visible & ~right).sum())
    return f" ({masked} of {future} future cells are masked)"


def _describe(visible: Tensor, right: Tensor) -> str:
    right = right.expand_as(visible)
    shown, hidden = int((visible & ~right).sum()), int((~visible & right).sum())
    parts = [f"{shown} of {int((~right).sum())} future cells are visible that should not be"] if shown else []
    parts += [f"{hidden} of {int(right.sum())} cells are hidden that should be visible"] if hidden else []
    return f"{' and '.join(parts) or 'the mask is right'}: query i sees the keys up to i."


def _describe_sum(site: Site, c: float) -> str:
    """What the softmax makes of scores tells only how much they differ."""
    if site.is_target or c > 0:
        return f"future cells hold the raw score {'+' if c > 0 else '-'} {_plain(abs(c))}: fill them with -inf instead."
    return f"the mask lowers future scores by no more than {_plain(-c)}: fill them with -inf instead."


def _plain(number: float) -> str:
    return "0" if abs(number) < 1e-6 else write(number)
