"""What is left of a module's output once it is gone: shapes, in the same tuples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Shadow:
    """A tensor that was."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


def shadow_of(output: Any) -> Any:
    """The output with a shadow for each tensor; what holds none of its own is left out."""
    if isinstance(output, Tensor):
        return Shadow(output.shape, output.dtype, output.device) if output.layout == torch.strided else None
    if type(output) in (tuple, list):
        return tuple(map(shadow_of, output))
    return None
