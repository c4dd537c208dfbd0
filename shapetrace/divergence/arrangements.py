"""One tensor's axes in the order of another's: permuted, merged and split, as long as each axis stays whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import permutations

from torch import Tensor

Shape = tuple[int, ...]


def arrangements(yours: Tensor, shape: Shape) -> Iterator[Tensor]:
    """The tensor in this shape, in each way in which its own shape is these axes in some order, some of them merged.

    (7, 64) as (1, 7, 4, 16): heads may lie one after the other or interleaved, and both are given. Where it lacks axes
    along which everything is alike, as positions the same for each sequence, it is repeated along them.
    """
    for sizes, back in _orders(tuple(yours.shape), tuple(shape)):
        yield yours.reshape(sizes).permute(back)
    if yours.numel() and len(shape) - 1 <= yours.ndim <= len(shape) and tuple(yours.shape) != tuple(shape):
        trailing = shape[len(shape) - yours.ndim :]
        alike = all(size in (1, other) for size, other in zip(yours.shape, trailing, strict=True))
        if alike and yours.shape[-1:] == trailing[-1:]:
            yield yours.expand(shape)


@lru_cache(maxsize=4096)
def _orders(own: Shape, shape: Shape) -> list[tuple[Shape, Shape]]:
    """The sizes to view a tensor of shape `own` in, and the order of axes that makes it one of `shape`."""
    found = []
    for order in permutations(range(len(shape))):
        sizes = tuple(shape[axis] for axis in order)
        if _merges_to(sizes, own):
            found.append((sizes, tuple(order.index(axis) for axis in range(len(shape)))))
    # Where two axes are of one size, several orders give the same view: it is looked at once.
    return list(dict.fromkeys(found))


def _merges_to(sizes: Sequence[int], own: Sequence[int]) -> bool:
    """Whether `own` comes of merging neighbours of `sizes`; axes of size 1 come and go."""
    wanted = [size for size in own if size != 1]
    product = 1
    for size in sizes:
        product *= size
        if wanted and product == wanted[0]:
            wanted.pop(0)
            product = 1
        elif product != 1 and (not wanted or wanted[0] % product):
            return False
    return not wanted and product == 1


def at_last_position(reference: Tensor, axes: str) -> Tensor:
    """The reference's values at the last position only: what a model that predicts one token computes."""
    return reference.narrow(axes.split().index("p"), -1, 1)
