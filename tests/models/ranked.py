"""Models that are not the same on every rank."""

import os

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

RANK = int(os.environ.get("RANK", "0"))


class Shorter(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 4)

    def forward(self, x):
        y = self.up(x)
        z = y[RANK:]
        return z


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.pairs = nn.ModuleList([nn.ModuleList([nn.Linear(4, 4)])])

    def forward(self, x):
        mixed = self.experts[0](x) + self.experts[1](x)
        return self.pairs[0][0](mixed)


class Lists(nn.Module):
    """Lists within lists, and a layer that is there twice."""

    def __init__(self):
        super().__init__()
        layer = Layer()
        self.layers = nn.ModuleList([layer, layer])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def built():
    if RANK:
        raise ValueError("not on this one")
    return Shorter()


class MLP(nn.Module):
    def __init__(self, width=4, hidden=6):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(self.up(self.norm(x)).relu())


def columns():
    """Spread by its user, who takes whole tensors from it."""
    dist.init_process_group("gloo")
    styles = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    return parallelize_module(MLP(), init_device_mesh("cpu", (dist.get_world_size(),)), styles)


def sharded():
    dist.init_process_group("gloo")
    model = MLP()
    fully_shard(model)
    return model


def wider():
    return MLP(hidden=6 + RANK)


class Late(nn.Module):
    """In which one rank waits for the others, and these do not come."""

    def forward(self, x):
        if RANK:
            dist.barrier()
        return x + 1


class Failing(nn.Module):
    def forward(self, x):
        y = x + 1
        return y @ y if RANK else y
