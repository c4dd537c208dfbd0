"""What is left of a module's output once it is gone: shapes, in the same tuples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from shapetrace.recorder.tensors import sort_of


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
        self._kept[id(module)] = caller, None if again else _sorts_of(output)

    def of(self, module: nn.Module) -> Any:
        """Shadows in the tuples of the output; None where it is not known which call is meant."""
        return _shadow_of(self._kept.get(id(module), (None, None))[1])


class _Sorts(tuple[Any, ...]):
    """What the items of a tuple are."""

    __slots__ = ()


def _sorts_of(output: Any) -> Any:
    """Of a tensor its sort, in the same tuples; None of anything else."""
    if isinstance(output, Tensor):
        return sort_of(output)
    return _Sorts(map(_sorts_of, output)) if type(output) in (tuple, list) else None


def _shadow_of(sorts: Any) -> Any:
    if isinstance(sorts, _Sorts):
        return tuple(map(_shadow_of, sorts))
    if sorts is None or sorts[3] not in (torch.strided, ""):
        return None
    return Shadow(*sorts[:3])
