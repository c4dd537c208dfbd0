"""Positions that are told otherwise than by W_pos: q and k rotated, or scores lowered by the distance."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from shapetrace.divergence.definitions import Change, Definition, project_heads, score
from shapetrace.divergence.edits.edit import Edit, Site, fixed

_BASE = 10_000.0
_INSTEAD = "GPT-2 tells positions by `W_pos` alone."


def edit_rotary(site: Site) -> Iterator[Edit]:
    """Rotary positions, with halves or neighbours for a pair, and ALiBi's slopes."""
    definition = site.definition
    if definition.function is score:
        yield fixed("extra-term", _lowered(site), f"scores are lowered by the distance, as in ALiBi: {_INSTEAD}", 3)
    if definition.function is not project_heads or definition.tensor != "q" or site.config.d_head % 2:
        return
    keys = site.values.definitions[definition.name[:-1] + "k"]
    for pairs in ("halves", "neighbours"):
        change = _rotating(pairs)
        words = f"`q` and `k` are rotated by their positions, as in RoPE: {_INSTEAD}"
        yield fixed("extra-term", definition.followed_by(change), words, 3, besides=(keys.followed_by(change),))
        words = f"`q` is rotated by its positions, as in RoPE, and `k` is not: {_INSTEAD}"
        yield fixed("extra-term", definition.followed_by(change), words, 3)


def _rotating(pairs: str) -> Change:
    """Su et al. 2021: pair i of position p is turned by p * 10000**(-2 i / d_head); x is (b, p, n, h)."""

    def rotate(x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        rates = _BASE ** -(torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None, None] * rates
        sin, cos = angles.sin(), angles.cos()
        if pairs == "halves":
            one, two = x[..., :half], x[..., half:]
            return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)
        one, two = x[..., ::2], x[..., 1::2]
        return torch.stack([one * cos - two * sin, two * cos + one * sin], -1).flatten(-2)

    return rotate


def _lowered(site: Site) -> Definition:
    """Press et al. 2022: head n of N has the slope 2**(-8 (n + 1) / N)."""
    definition, heads = site.definition, site.config.n_heads
    slopes = 2.0 ** (-8 * torch.arange(1, heads + 1, dtype=torch.float64) / heads)

    def lower(scores: Tensor) -> Tensor:
        places = torch.arange(scores.shape[-1], dtype=torch.float64)
        return scores - slopes[:, None, None] * (places[:, None] - places)

    return definition.followed_by(lower)
