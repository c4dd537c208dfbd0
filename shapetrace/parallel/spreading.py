"""Spread a model over a device mesh, by torch's own means."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_module
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.attention import SDPBackend, sdpa_kernel

from shapetrace.errors import ShapetraceError
from shapetrace.parallel.plans import Plan, plan_tensor_parallel
from shapetrace.parallel.scheme import FSDP, TENSOR, Scheme

_CONTAINERS = (nn.ModuleList, nn.ModuleDict)


def spread(model: nn.Module, name: str, scheme: Scheme, note: Callable[[str], None]) -> nn.Module:
    """The model with its parameters on the mesh, in place; the process group is there.

    Tensor parallel keeps every activation a DTensor, so that a trace tells of each what is where; what no plan shards
    is replicated. FSDP shards each layer and the root, and gathers them while they run.
    Raises ShapetraceError where the model has no tensor parallel plan, or is distributed already.
    """
    already = next((key for key, each in model.named_parameters() if isinstance(each, DTensor)), None)
    if already is not None:
        raise ShapetraceError(f"{name} is distributed already: {already} is a DTensor", "run it without --parallel")
    sizes = scheme.over(dist.get_world_size())
    plan = plan_tensor_parallel(model, name, sizes[TENSOR], note) if TENSOR in sizes else {}
    mesh = init_device_mesh(device_type_of(model), tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    if TENSOR in sizes:
        _do_without_cache(model)
        with _ties_kept(model):
            _parallelize(model, plan, mesh[TENSOR])
    if FSDP in sizes:
        _shard_fully(model, mesh[FSDP])
    return model


@contextmanager
def running_spread() -> Iterator[None]:
    """Inside, a forward may mix DTensors with what it makes itself, such as a mask, which each rank makes whole."""
    # The fused attention kernel of CPUs has no sharding rule; its steps, one by one, have.
    with implicit_replication(), sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        # That is what implicit replication is for; torch warns of it where what is replicated has one entry.
        warnings.filterwarnings("ignore", "Found a non-scalar tensor with numel=1")
        yield


def _do_without_cache(model: nn.Module) -> None:
    """A cache of transformers begins as an empty tensor of one axis, which torch does not join to a DTensor."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "use_cache", False):
        config.use_cache = False


def device_type_of(model: nn.Module) -> str:
    """Where its first parameter is: `cpu`, `cuda`."""
    return next((each.device.type for each in model.parameters()), "cpu")


def _parallelize(model: nn.Module, plan: Plan, mesh: DeviceMesh) -> None:
    for path, style in plan.items():
        parallelize_module(model.get_submodule(path), mesh, style)
    distribute_module(model, mesh)  # what is left, replicated


def _shard_fully(model: nn.Module, mesh: DeviceMesh) -> None:
    """Each layer by itself and the rest with the root; all of it sharded again when it has run."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    # Inner ones first, each once: experts before the layer that they are in. A list itself has no forward.
    layers = dict.fromkeys(layer for each in reversed(lists) for layer in each if not isinstance(layer, _CONTAINERS))
    for layer in (*layers, model):
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)


@contextmanager
def _ties_kept(model: nn.Module) -> Iterator[None]:
    """A parameter with several names is one tensor afterwards too."""
    first: dict[int, tuple[nn.Module, str]] = {}
    ties = []
    for module in model.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                owner, name = first.setdefault(id(parameter), (module, key))
                ties.append((module, key, owner, name))
    yield
    for module, key, owner, name in ties:
        module._parameters[key] = owner._parameters[name]
