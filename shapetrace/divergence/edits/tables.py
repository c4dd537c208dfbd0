"""Rows of the embeddings: other positions, other tokens."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from shapetrace.divergence.definitions import POSITIONS, TOKENS, Change, look_up
from shapetrace.divergence.edits.edit import Edit, Site, fixed

_SHIFTS = (1, 2, -1, -2, 3, 4, 5)


def edit_rows(site: Site) -> Iterator[Edit]:
    """Positions that start elsewhere, run backwards or stand still; ids that are not those given."""
    if site.definition.function is not look_up:
        return
    yield from _positions(site) if site.definition.operands["index"].name == POSITIONS else _tokens(site)
    rows = _read_rows(site)
    if rows is not None:
        told = ", ".join(map(str, rows[0].tolist()[:8]))
        is_position = site.definition.operands["index"].name == POSITIONS
        words = f"rows {told} are read: other {'positions' if is_position else 'token ids'}."
        yield _edit(site, lambda each: rows, words, "shift" if is_position else "wrong-operand", 2)


def _read_rows(site: Site) -> Tensor | None:
    """Which row of the table each position of yours is; None where one is none."""
    yours, table = site.yours, site.values(site.definition.operands["table"].name)
    if yours is None or not site.is_target or yours.shape[-1] != table.shape[-1]:
        return None
    flat = yours.reshape(-1, yours.shape[-1]).to(table.dtype)
    nearest = torch.cdist(flat, table).argmin(-1)
    is_row = torch.allclose(table[nearest], flat, rtol=1e-4, atol=1e-5)
    return nearest.reshape(yours.shape[:-1]) if is_row else None


def _positions(site: Site) -> Iterator[Edit]:
    size = site.values.shape(site.definition.operands["table"].name)[0]
    for by in _SHIFTS:
        if site.values(POSITIONS).shape[1] + by <= size:
            before = f"positions are {-by} too small: position 0 has row 0."
            words = f"`W_pos` is read from row {by}: position 0 has row 0." if by > 0 else before
            yield _edit(site, _added(by, size), words)
    backwards = "positions are counted backwards: the first token has the last row of those used."
    yield _edit(site, lambda each: each.flip(-1), backwards)
    yield _edit(site, lambda each: size - 1 - each, "rows are taken from the end of `W_pos`, backwards.")
    last = "the last rows of `W_pos` are read; the first token has the first one."
    yield _edit(site, lambda each: each + size - each.shape[1], last)
    one = "every position has row 0 of `W_pos`: one row for each position is needed."
    yield _edit(site, torch.zeros_like, one)
    along = "rows of `W_pos` are counted along the batch, and not along positions."
    yield _edit(site, lambda each: torch.arange(len(each))[:, None].expand_as(each), along, cost=2)
    for lay_out in (_interleaved, _halves):
        changed = site.definition.with_operand("table", change=lay_out)
        words = (
            "positions are sines and cosines, as in the first transformer; GPT-2 has a table that is learned, `W_pos`."
        )
        yield fixed("wrong-operand", changed, words, 2)
    changed = site.definition.with_operand("index", TOKENS, change=lambda each: each % size)
    yield fixed("wrong-operand", changed, "`W_pos` is read at the token ids instead of at the positions.")


def _interleaved(table: Tensor) -> Tensor:
    angles = _angles(table)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def _halves(table: Tensor) -> Tensor:
    angles = _angles(table)
    return torch.cat([angles.sin(), angles.cos()], -1)


def _angles(table: Tensor) -> Tensor:
    """Of a table (posn, width), as in Vaswani et al. (2017), section 3.5: (posn, width / 2), in radians."""
    positions, halves = (torch.arange(size, dtype=table.dtype) for size in (table.shape[0], table.shape[1] // 2))
    return positions[:, None] / 10000 ** (2 * halves / table.shape[1])


def _tokens(site: Site) -> Iterator[Edit]:
    size = site.values.shape(site.definition.operands["table"].name)[0]
    for by in _SHIFTS[:4]:
        yield _edit(site, _rolled(by), f"token ids are moved by {abs(by)} {'forwards' if by > 0 else 'back'}.")
        yield _edit(site, _added(by, size), f"each token id is {abs(by)} too {'large' if by > 0 else 'small'}.")
    yield _edit(site, lambda each: each.flip(-1), "token ids are in reversed order.")
    changed = site.definition.with_operand("index", POSITIONS)
    yield fixed("wrong-operand", changed, "`W_E` is read at the positions instead of at the token ids.")


def _edit(site: Site, change: Change, words: str, kind: str = "shift", cost: int = 1) -> Edit:
    return fixed(kind, site.definition.with_operand("index", change=change), words, cost)


def _added(by: int, size: int) -> Change:
    return lambda each: (each + by) % size


def _rolled(by: int) -> Change:
    return lambda each: each.roll(by, -1)
