"""Modules without memory behind their weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def move_to_meta(model: nn.Module) -> nn.Module:
    """Put every parameter and buffer on the meta device, in place; unlike `model.to("meta")`, ties stay ties."""
    moved: dict[int, Tensor] = {}
    for module in model.modules():
        for owned in (module._parameters, module._buffers):
            name: str
            tensor: Tensor | None
            for name, tensor in list(owned.items()):
                if tensor is None or tensor.is_meta or nn.parameter.is_lazy(tensor):
                    continue
                if id(tensor) not in moved:
                    empty = torch.empty_like(tensor, device="meta")
                    is_parameter = isinstance(tensor, nn.Parameter)
                    moved[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty
                owned[name] = moved[id(tensor)]  # type: ignore[assignment] # each kind in its own
    return model
