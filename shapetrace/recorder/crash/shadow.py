"""What is left of a module's output once it is gone: shapes, in the same tuples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Shadow:
    """A tensor that was."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


class Outputs:
    """What each module returned to its caller, without the tensors; not known where it returned several times."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[object, Any]] = {}

    def keep(self, module: nn.Module, caller: object, output: Any) -> None:
        """Remember what the module returned to this call of another."""
        known = self._kept.get(id(module))
        again = known is not None and known[0] is caller
        self._kept[id(module)] = caller, None if again else _shadow_of(output)

    def of(self, module: nn.Module) -> Any:
        """Shadows in the tuples of the output; None where it is not known which call is meant."""
        return self._kept.get(id(module), (None, None))[1]


def _shadow_of(output: Any) -> Any:
    if isinstance(output, Tensor):
        strided = output.layout == torch.strided and not output.is_nested
        return Shadow(output.shape, output.dtype, output.device) if strided else None
    if type(output) in (tuple, list):
        return tuple(map(_shadow_of, output))
    return None
