"""Weights drawn from a seed, in which every parameter is random: a bug in a bias is invisible while it is 0."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# Near GPT-2's own: its embeddings and projections spread by 0.05 to 0.15, its biases by 0.05 to 0.5.
_WEIGHT_STD = 0.05
_BIAS_STD = 0.1
_NORM_NAMES = ("w", "weight", "scale", "gamma")  # of a vector: the gain of a normalisation, which sits around 1


class WithoutInitialising(TorchFunctionMode):
    """Inside, torch.nn.init does nothing: memory that is about to be filled is not filled twice."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@torch.no_grad()
def draw_weights(model: nn.Module, seed: int, advance: Callable[[int], None] = lambda entries: None) -> None:
    """Fill every parameter in place; each depends on the seed and its own name only.

    `advance` is told after each parameter how many entries were drawn.
    """
    for name, parameter in model.named_parameters():
        digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
        _draw(name.rpartition(".")[2], parameter, generator)
        advance(parameter.numel())


def _draw(name: str, parameter: Tensor, generator: torch.Generator) -> None:
    is_bias = parameter.ndim < 2 or name.startswith("b")
    parameter.normal_(std=_BIAS_STD if is_bias else _WEIGHT_STD, generator=generator)
    if parameter.ndim == 1 and name in _NORM_NAMES:
        parameter.add_(1)
