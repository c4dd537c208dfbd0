"""What a tensor is at this moment, as plain data that does not keep it alive."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from shapetrace.sharding import is_distributed, whole_of
from shapetrace.trace import Shape, TensorStats

_SAMPLES = 4
Identity = tuple[int, int]
_PLAIN = ("torch.nn.parameter", "torch.distributed.tensor", "torch.distributed._functional_collectives")
UNCOUNTED = -1  # the version of a tensor whose changes torch does not count


def shape_of(tensor: Tensor) -> Shape:
    """The sizes; of a nested tensor the number of its parts and -1 for each ragged axis."""
    try:
        return tuple(map(_size_of, tensor.shape))
    except (RuntimeError, NotImplementedError):  # a strided nested tensor has no shape
        axes = zip(*(part.shape for part in tensor.unbind()), strict=True)
        return (tensor.size(0), *(sizes[0] if len(set(sizes)) == 1 else -1 for sizes in axes))


# What a record tells of a tensor but its names and contents, as torch has it: the shape, the dtype, the device, and the
# layout of a plain tensor or the form of another, with its placing.
Sort = tuple[Any, ...]
_sort_of_plain: Callable[[Tensor], Sort] = attrgetter("shape", "dtype", "device", "layout")


def sort_of(tensor: Tensor) -> Sort:
    """What the tensor is, apart from its contents; quick to have, to hash and to compare."""
    cls = type(tensor)
    if cls is Tensor or cls is nn.Parameter:
        try:
            return _sort_of_plain(tensor)
        except RuntimeError:  # a strided nested tensor has no shape
            pass
    return shape_of(tensor), tensor.dtype, tensor.device, form_of(tensor), placing_of(tensor)


class Told(NamedTuple):
    """The same as a record has it."""

    shape: Shape
    dtype: str
    device: str
    kind: str
    placements: tuple[str, ...]
    local_shape: Shape | None


def tell_sort(sort: Sort) -> Told:
    """What a record tells of tensors of this sort."""
    shape, dtype, device, form, *placing = sort
    kind = form if isinstance(form, str) else form_of_layout(form)
    placements, local_shape = placing[0] if placing else ((), None)
    return Told(tuple(shape), name_of(dtype), device.type, kind, placements, local_shape)


def _size_of(size: int | torch.SymInt) -> int:
    try:
        return int(size)
    except (AttributeError, RuntimeError, TypeError):  # the ragged axis of a nested tensor
        return -1


def shape_of_parameter(parameter: Tensor) -> Shape | None:
    """The sizes; None while a lazy parameter waits for its first input."""
    return None if nn.parameter.is_lazy(parameter) else shape_of(parameter)


def dtype_of(tensor: Tensor) -> str:
    """`float32`, `int64`, ..."""
    return name_of(tensor.dtype)


def name_of(dtype: torch.dtype) -> str:
    """`float32`, `int64`, ..."""
    return str(dtype).removeprefix("torch.")


def form_of(tensor: Tensor) -> str:
    """`sparse_csr`, `nested`, the class of another subclass; "" of a plain dense tensor or parameter, and of a DTensor.

    What a collective has yet to bring, an AsyncCollectiveTensor, is that tensor.
    """
    cls = type(tensor)
    if tensor.is_nested:
        return "nested"
    if cls is not Tensor and cls.__module__ not in _PLAIN:
        return cls.__name__
    return form_of_layout(tensor.layout)


def form_of_layout(layout: torch.layout) -> str:
    """`sparse_csr`; "" of a dense tensor."""
    return "" if layout is torch.strided else str(layout).removeprefix("torch.")


def placing_of(tensor: Tensor) -> tuple[tuple[str, ...], Shape | None]:
    """Of a DTensor, its placement by mesh dimension, and the local shape; of any other () and None."""
    if not is_distributed(tensor):
        return (), None
    distributed: Any = tensor
    # By the attribute: `to_local` would be one more operation of the forward's.
    return tuple(map(_write_placement, distributed.placements)), shape_of(distributed._local_tensor)


def _write_placement(placement: Any) -> str:
    """`Shard(2)`, `Replicate`, `Partial(sum)`."""
    name = type(placement).__name__.lstrip("_")
    what = getattr(placement, "dim", getattr(placement, "reduce_op", None))
    return name if what is None else f"{name}({what})"


def device_of(tensor: Tensor) -> str:
    """The kind of device and not its number: a trace of one machine is compared on another."""
    return tensor.device.type


def identity_of(tensor: Tensor) -> Identity:
    """Which object, and how often its contents were changed."""
    try:
        return id(tensor), tensor._version
    except RuntimeError:  # made under torch.inference_mode()
        return id(tensor), UNCOUNTED


@torch.no_grad()
def stats_of(tensor: Tensor) -> TensorStats | None:
    """The figures of the finite entries; None where there are no values to look at."""
    if tensor.is_meta or tensor.is_nested or tensor.is_quantized or tensor.layout != torch.strided:
        return None
    try:
        values = whole_of(tensor.detach())
        values = (values.abs() if values.is_complex() else values).double()
        return _figures_of(values)
    except (NotImplementedError, RuntimeError, TypeError):  # less than a byte each, no float64 there, or no values
        return None


def _figures_of(values: Tensor) -> TensorStats:
    finite = values[values.isfinite()]
    nan, inf = int(values.isnan().sum()), int(values.isinf().sum())
    samples = _samples_of(values.flatten())
    if not finite.numel():
        return TensorStats(None, None, None, None, nan, inf, samples)
    figures = (finite.min(), finite.max(), finite.mean(), finite.square().mean().sqrt())
    low, high, mean, rms = (_rounded(figure.item()) for figure in figures)
    return TensorStats(low, high, mean, rms, nan, inf, samples)


def _samples_of(values: Tensor) -> tuple[float | None, ...]:
    """Entries at equal distances, the first and the last among them."""
    last = values.numel() - 1
    places = sorted({last * part // (_SAMPLES - 1) for part in range(_SAMPLES)}) if last >= 0 else []
    return tuple(_rounded(entry) if math.isfinite(entry) else None for entry in values[places].tolist())


def _rounded(figure: float) -> float:
    return float(f"{figure:.6g}")
