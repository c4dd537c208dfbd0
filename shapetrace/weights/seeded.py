"""Weights drawn from a seed, in which every parameter is random: a bug in a bias is invisible while it is 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from shapetrace.gpt2 import Config, Transformer
from shapetrace.meta import on_meta
from shapetrace.sharding import fill, is_distributed
from shapetrace.weights.drawing import Drawing, draw

# GPT-2's initial 0.02 at its width of 768, and wider for narrower models, so that activations are of order 1 to 10 at
# every size; biases are drawn as wide as trained ones, for a bug in a bias that is small is hard to see.
_WEIGHT_STD, _AT_WIDTH = 0.02, 768
_BIAS_STD = 0.1
_NORM_NAMES = ("w", "weight", "scale", "gamma")  # of a vector: the gain of a normalisation, which sits around 1


def draw_weights(model: nn.Module, seed: int, advance: Callable[[int], None] = lambda entries: None) -> None:
    """Fill every parameter in place; each depends on the seed, its own name and its sizes only.

    `advance` is told now and then how many entries were drawn. Lazy parameters wait for their first input.
    """
    d_model = model.cfg.d_model if isinstance(model, Transformer) else None
    drawn = [(name, each.detach()) for name, each in model.named_parameters() if not nn.parameter.is_lazy(each)]
    _draw(drawn, d_model, seed, advance)


def seeded_state(
    config: Config, seed: int, dtype: torch.dtype = torch.float32, advance: Callable[[int], None] = lambda entries: None
) -> dict[str, Tensor]:
    """Random weights of the modular GPT-2 under TransformerLens names, drawn in float32 whatever the dtype."""
    with on_meta():
        shapes = {name: each.shape for name, each in Transformer(config).named_parameters()}
    state = {name: torch.empty(shape, dtype=dtype) for name, shape in shapes.items()}
    _draw(state.items(), config.d_model, seed, advance)
    return state


def _draw(named: Iterable[tuple[str, Tensor]], d_model: int | None, seed: int, advance: Callable[[int], None]) -> None:
    drawings, gains = [], []
    for name, tensor in named:
        if tensor.is_meta or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        weight_std = _WEIGHT_STD * math.sqrt(_AT_WIDTH / (d_model or _fan_in(tensor)))
        last = name.rpartition(".")[2]
        is_bias = tensor.ndim < 2 or last.startswith("b")
        std = _BIAS_STD if is_bias else weight_std
        in_place = tensor.is_contiguous() and not is_distributed(tensor)
        whole = tensor if in_place else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        parts = torch.view_as_real(whole) if whole.is_complex() else whole
        drawing = Drawing(parts, f"{seed}/{name}", std / math.sqrt(2) if whole.is_complex() else std)
        if in_place:
            drawings.append(drawing)
        else:  # one after the other, so that no second model stands beside this one
            draw([drawing], advance)
            fill(tensor, whole)
        if tensor.ndim == 1 and last in _NORM_NAMES:
            gains.append(tensor)
    draw(drawings, advance)
    for gain in gains:
        gain.add_(1)


def _fan_in(weight: Tensor) -> int:
    """How many entries each output of a Linear or a convolution sums over; the width of an embedding."""
    return max(1, math.prod(weight.shape[1:]))
