"""Tensors of which each rank holds a part: torch's DTensors."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor


def is_distributed(tensor: Tensor) -> bool:
    """Whether it is a DTensor; before anyone has imported these, which takes long, there is none."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def whole_of(tensor: Tensor) -> Tensor:
    """The tensor itself; of a DTensor the values of all ranks, which all of them have to ask for."""
    if is_distributed(tensor):
        distributed: Any = tensor
        whole: Tensor = distributed.full_tensor()
        return whole
    return tensor


@torch.no_grad()
def fill(tensor: Tensor, value: Tensor) -> None:
    """Write the value into the tensor; into a DTensor each rank its part, of a value that all of them have."""
    if is_distributed(tensor) and not is_distributed(value):
        from torch.distributed.tensor import distribute_tensor

        spread: Any = tensor
        value = value.detach().to(spread.device, spread.dtype)
        # What each rank has already is not exchanged.
        value = distribute_tensor(value, spread.device_mesh, spread.placements, src_data_rank=None)
    tensor.copy_(value)
