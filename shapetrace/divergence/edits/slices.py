"""Slices of an axis taken in another order, or several times: read off your own tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import permutations

import torch
from torch import Tensor

from shapetrace.divergence.definitions import Change, Definition, Operand, project_heads
from shapetrace.divergence.edits.edit import Edit, Site, fixed
from shapetrace.divergence.values import KNOWN

_AXES = {"p": "positions", "n": "heads", "q": "queries", "k": "keys"}
_CLOSE = 1e-4


def edit_slices(site: Site) -> Iterator[Edit]:
    """Each position or head of yours is one of the reference's, but not that one."""
    if site.yours is None or not site.is_target or site.definition.tensor == "attn_scores":
        return
    reference = site.values(site.definition.name)
    for axis, letter in enumerate(site.definition.axes.split()):
        if letter in _AXES and reference.shape[axis] > 1:
            taken = _slices(site.yours, reference, axis)
            if taken is not None:
                told = ", ".join(map(str, taken.tolist()[:12]))
                kind = "permutation" if letter == "n" else "shift"
                words = f"yours takes {_AXES[letter]} {told} of the reference, one after the other."
                yield fixed(kind, site.definition.followed_by(_taking(taken, axis)), words, 3)


def edit_fused_order(site: Site) -> Iterator[Edit]:
    """A fused projection cut along another axis: q, k and v of each head side by side, say."""
    owner, _, tensor = site.definition.name.rpartition(".hook_")
    if site.definition.function is not project_heads or tensor != "q":
        return
    # The parts are those before any of them was cut anew.
    operands = {each: Operand(f"{KNOWN}{owner}.hook_{each}") for each in "qkv"}
    sizes, names = (3, site.config.n_heads, site.config.d_head), ("q k v", "head", "d_head")
    for order in permutations(range(3)):
        if order != (0, 1, 2):
            cut = [
                Definition(f"{owner}.hook_{each}", "b p n h", _cutting(part, sizes, order), operands)
                for part, each in enumerate("qkv")
            ]
            told = ", ".join(names[axis] for axis in order)
            words = f"the fused projection is cut as ({told}); it is (q k v, head, d_head)."
            yield fixed("permutation", cut[0], words, 2, besides=(cut[1], cut[2]))


def _cutting(part: int, sizes: tuple[int, int, int], order: tuple[int, ...]) -> Callable[..., Tensor]:
    """One part of q, k and v laid side by side and cut along axes in that order."""
    view = [sizes[axis] for axis in order]
    back = [2 + order.index(axis) for axis in range(3)]

    def cut(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        fused = torch.stack([q, k, v], dim=2).flatten(2)
        return fused.reshape(*fused.shape[:2], *view).permute(0, 1, *back)[:, :, part]

    return cut


def _slices(yours: Tensor, reference: Tensor, axis: int) -> Tensor | None:
    """For each slice of yours the one of the reference that it is; None where one is none, or each is its own."""
    mine, theirs = yours.movedim(axis, 0).flatten(1), reference.movedim(axis, 0).flatten(1)
    if mine.shape != theirs.shape or not (mine.isfinite().all() and theirs.isfinite().all()):
        return None
    nearest = torch.cdist(mine, theirs).argmin(-1)
    scale = float(theirs.abs().max()) or math.inf
    is_slice = float((theirs[nearest] - mine).abs().max()) <= _CLOSE * scale
    return nearest if is_slice and not torch.equal(nearest, torch.arange(len(nearest))) else None


def _taking(slices: Tensor, axis: int) -> Change:
    return lambda each: each.index_select(axis, slices)
