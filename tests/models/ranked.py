"""Models that are not the same on every rank."""

import os

from torch import nn

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
