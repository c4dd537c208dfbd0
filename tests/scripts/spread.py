"""What a user writes for torchrun: modules that are spread over the ranks already, traced as they are.

Each rank writes its traces into the folder that is given.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import shapetrace


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 5)
        self.down = nn.Linear(5, 4)

    def forward(self, x):  # (batch, d_model)
        hidden = self.up(x).relu()  # (batch, d_mlp)
        hidden += 1  # shifted
        return self.down(hidden)  # (batch, d_model)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.mlp = MLP()

    def forward(self, x):
        y = self.mlp(x)
        return y * self.scale


def in_tensor_parallel():
    net = Net()
    plan = {"up": ColwiseParallel(use_local_output=False), "down": RowwiseParallel()}
    parallelize_module(net.mlp, init_device_mesh("cpu", (2,), mesh_dim_names=("tensor",)), plan)
    return net


def fully_sharded():
    net = Net()
    fully_shard(net.mlp)
    return fully_shard(net)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(3, 4)
    models = {
        "tensor": in_tensor_parallel(),
        "fsdp": fully_sharded(),
        "ddp": nn.parallel.DistributedDataParallel(Net()),
        "fsdp1": FullyShardedDataParallel(Net(), device_id=torch.device("cpu"), use_orig_params=True),
        "plain": Net(),
    }
    for name, model in models.items():
        with shapetrace.recording(model, stats=name == "tensor") as trace:
            model(x)
        shapetrace.save(trace, Path(sys.argv[1]) / f"{name}{dist.get_rank()}.yaml")
    dist.destroy_process_group()
