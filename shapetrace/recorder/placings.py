"""How the parameters and buffers of a model are spread over a device mesh."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from shapetrace.recorder.tensors import placing_of
from shapetrace.sharding import is_distributed
from shapetrace.trace import Shape

Placing = tuple[tuple[str, ...], Shape | None]
NOWHERE: Placing = ((), None)


@dataclass(frozen=True, slots=True)
class Placings:
    """Where each DTensor of a model stood before it ran: FSDP puts whole parameters in their place while it runs."""

    mesh: str = ""  # `tensor=2, rank 0`; "" where nothing is spread
    known: dict[str, Placing] = field(default_factory=dict)  # by full name

    def of(self, name: str, tensor: Tensor) -> Placing:
        """As it is now, else as it was."""
        return placing_of(tensor) if is_distributed(tensor) else self.known.get(name, NOWHERE)


def placings_of(modules: Mapping[str, nn.Module]) -> Placings:
    """Of every parameter and buffer that is a DTensor, in the modules by their paths."""
    found = dict(_distributed_in(modules)) if "torch.distributed.tensor" in sys.modules else {}
    if not found:
        return Placings()
    meshes = [tensor.device_mesh for tensor in found.values()]
    largest = max(meshes, key=lambda mesh: (mesh.ndim, mesh.size()))
    return Placings(_write_mesh(largest), {name: placing_of(tensor) for name, tensor in found.items()})


def _distributed_in(modules: Mapping[str, nn.Module]) -> Iterator[tuple[str, Any]]:
    for path, module in modules.items():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and is_distributed(tensor):
                yield f"{path}.{name}" if path else name, tensor


def _write_mesh(mesh: Any) -> str:
    """`fsdp=2 tensor=2, rank 0`; without names the sizes: `2 x 2, rank 0`."""
    sizes = tuple(mesh.shape)
    names = mesh.mesh_dim_names
    told = " ".join(map("{}={}".format, names, sizes)) if names else " x ".join(map(str, sizes))
    return f"{told}, rank {mesh.get_rank()}"
