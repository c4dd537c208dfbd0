"""Weights drawn from a seed, in which every parameter is random: a bug in a bias is invisible while it is 0."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from shapetrace.gpt2 import Config, Transformer

# GPT-2's initial 0.02 at its width of 768, and wider for narrower models, so that activations are of order 1 to 10 at
# every size; biases are drawn as wide as trained ones, for a bug in a bias that is small is hard to see.
_WEIGHT_STD, _AT_WIDTH = 0.02, 768
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
    """Fill every parameter in place; each depends on the seed, its own name and its sizes only.

    `advance` is told after each parameter how many entries were drawn. Lazy parameters wait for their first input.
    """
    d_model = model.cfg.d_model if isinstance(model, Transformer) else None
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter) or not (parameter.is_floating_point() or parameter.is_complex()):
            continue
        std = _WEIGHT_STD * math.sqrt(_AT_WIDTH / (d_model or _fan_in(parameter)))
        digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
        _draw(name.rpartition(".")[2], parameter, std, generator)
        advance(parameter.numel())


def _fan_in(weight: Tensor) -> int:
    """How many entries each output of a Linear or a convolution sums over; the width of an embedding."""
    return max(1, math.prod(weight.shape[1:]))


def seeded_state(
    config: Config, seed: int, dtype: torch.dtype = torch.float32, advance: Callable[[int], None] = lambda entries: None
) -> dict[str, Tensor]:
    """Random weights of the modular GPT-2 under TransformerLens names, drawn in float32 whatever the dtype."""
    with WithoutInitialising():
        model = Transformer(config)
    draw_weights(model, seed, advance)
    model.to(dtype)  # one after the other, so that no second copy stands beside them
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _draw(name: str, parameter: Tensor, weight_std: float, generator: torch.Generator) -> None:
    is_bias = parameter.ndim < 2 or name.startswith("b")
    parameter.normal_(std=_BIAS_STD if is_bias else weight_std, generator=generator)
    if parameter.ndim == 1 and name in _NORM_NAMES:
        parameter.add_(1)
