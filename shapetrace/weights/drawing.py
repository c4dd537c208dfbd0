"""Random numbers into memory that is there, in several threads, and the same in any number of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

_BLOCK = 2**20  # entries that have a generator of their own, so that several threads can draw one tensor


@dataclass(frozen=True, slots=True)
class Drawing:
    """A tensor to fill with normally distributed numbers, and the key that they depend on beside their places in it."""

    tensor: Tensor  # contiguous and real, of any floating-point dtype
    key: str
    std: float


def draw(drawings: Sequence[Drawing], advance: Callable[[int], None] = lambda entries: None) -> None:
    """Fill each tensor where it lies; what is not float32 on the CPU is rounded from that, a block at a time.

    `advance` is told now and then how many entries were drawn.
    """
    blocks = [block for each in drawings for block in _split(each)]
    threads = min(torch.get_num_threads(), len(blocks))
    if threads < 2:
        for block in blocks:
            advance(_fill(block))
        return
    with ThreadPoolExecutor(threads) as pool:
        for entries in pool.map(_fill, blocks):
            advance(entries)


def _split(drawing: Drawing) -> Iterator[Drawing]:
    for at, block in enumerate(torch.split(drawing.tensor.detach().view(-1), _BLOCK)):
        yield Drawing(block, f"{drawing.key}/{at}" if at else drawing.key, drawing.std)


def _fill(block: Drawing) -> int:
    digest = hashlib.sha256(block.key.encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
    into = block.tensor
    if into.dtype == torch.float32 and into.device.type == "cpu":
        into.normal_(std=block.std, generator=generator)
    else:
        into.copy_(torch.empty(len(into)).normal_(std=block.std, generator=generator))
    return len(into)
