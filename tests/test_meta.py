"""Shapes without memory, and without what torch would load for them."""

import subprocess
import sys

import torch
from torch import nn

from shapetrace.meta import on_meta, without_compiler

# torch's own functions for the shapes of these ask for its compiler, those of torch.nn.init among them.
SHAPES = """
import sys
import torch
from torch import nn
from shapetrace.meta import on_meta

with on_meta():
    model = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    x = torch.randn(2, 3, 8)
    print(*(model(x) + x.mean(-1, keepdim=True)).shape, *nn.Conv2d(3, 5, 3)(torch.rand(1, 3, 8, 8)).shape)
print([name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules])
"""


def test_the_compiler_is_not_loaded():
    ran = subprocess.run([sys.executable, "-c", SHAPES], capture_output=True, text=True)
    assert ran.stdout == "2 3 8 1 5 6 6\n[]\n", ran.stderr


def test_that_it_would_be():
    plain = SHAPES.replace("on_meta()", "torch.device('meta')")
    assert "torch._dynamo" in subprocess.run([sys.executable, "-c", plain], capture_output=True, text=True).stdout


def test_afterwards_torch_is_as_it_was(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    marked = torch._compile._disable_dynamo(lambda x: x + 1)
    before = dict(vars(marked.__wrapped__))
    with without_compiler():
        assert marked(1) == 2
        assert vars(marked.__wrapped__) != before
    assert vars(marked.__wrapped__) == before


def test_what_has_memory_is_filled():
    with on_meta():
        layer = nn.Linear(3, 2)
        held = nn.init.ones_(torch.empty(2, device="cpu"))
        drawn = nn.init.normal_(torch.empty(2, device="cpu").zero_())
    assert layer.weight.is_meta
    assert held.tolist() == [1, 1]
    assert drawn.count_nonzero() == 2
