"""A model of few digits with more of them, for as long as it is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn

from shapetrace.divergence.tolerance import NARROW


@contextmanager
def widened(model: nn.Module) -> Iterator[None]:
    """Inside, what of its parameters and buffers is bfloat16 or float16 is float32, with the same values."""
    tensors = {id(each): each for each in chain(model.parameters(), model.buffers()) if each.dtype in NARROW}
    lent = [(each, each.data) for each in tensors.values()]
    # The objects stay: the model may know them by other names than its own.
    for tensor, own in lent:
        tensor.data = own.to(torch.float32)
    try:
        yield
    finally:
        for tensor, own in lent:
            tensor.data = own
