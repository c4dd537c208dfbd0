"""Where a model runs, and in which precision."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import chain

import torch
from torch import nn

from shapetrace.errors import ShapetraceError
from shapetrace.target.target import Target

_CASTS = {
    torch.float32: nn.Module.float,
    torch.float64: nn.Module.double,
    torch.bfloat16: nn.Module.bfloat16,
    torch.float16: nn.Module.half,
}


def find_device(name: str) -> torch.device:
    """`cpu`, `cuda`, `cuda:1`, `mps` and so on; raises ShapetraceError where this machine has no such device."""
    here = f"this machine has {', '.join(_devices_here())}"
    try:
        with warnings.catch_warnings(action="ignore"):  # of names that torch knew once
            device = torch.device(name)
    except RuntimeError:
        raise ShapetraceError(f"`{name}` is no device of torch's", here) from None
    if device.type == "meta":
        raise ShapetraceError("there are no values on the meta device", "`shapetrace run --meta` shows the shapes")
    if device.type == "cpu":
        return torch.device("cpu")
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None or accelerator.type != device.type:
        raise ShapetraceError(f"there is no {device.type} here", here)
    if device.index is not None and device.index >= torch.accelerator.device_count():
        raise ShapetraceError(f"there is no {name} here", here)
    return device


def _devices_here() -> list[str]:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    count = torch.accelerator.device_count() if accelerator else 0
    return ["cpu", *(f"{accelerator}:{index}" for index in range(count))]


def device_of(model: nn.Module) -> torch.device | None:
    """Where the model's first parameter is, or its first buffer; None where it has neither."""
    return next((each.device for each in chain(model.parameters(), model.buffers())), None)


def place(target: Target, device: torch.device | None, dtype: torch.dtype | None) -> Target:
    """The target's model, in place, on that device and with its floating-point parameters and buffers in that dtype.

    None leaves it as it is. One tensor after the other, so that no second copy stands beside the model.
    Raises ShapetraceError where torch cannot hold it there, such as float64 on mps.
    """
    model, weights = target.model, target.weights
    before = {each.dtype for each in model.parameters() if each.is_floating_point()}
    try:
        if dtype is not None:
            _CASTS[dtype](model)  # not `.to(dtype)`, which makes real numbers of complex ones
        if device is not None:
            model.to(device)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        raise _refused(target.name, device, dtype, error) from error
    has_values = not any(each.is_meta for each in model.parameters())
    if dtype is not None and before - {dtype} and has_values:
        weights = f"{weights}, in {str(dtype).removeprefix('torch.')}"
    return replace(target, weights=weights)


def _refused(name: str, device: torch.device | None, dtype: torch.dtype | None, error: Exception) -> ShapetraceError:
    wanted = " on ".join(str(each).removeprefix("torch.") for each in (dtype, device) if each is not None)
    reason = str(error).partition("\n")[0] or type(error).__name__
    return ShapetraceError(f"{name} cannot be {wanted}: {reason}", "take another `--device` or `--dtype`")
