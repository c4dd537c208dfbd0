"""Signatures in messages: readable, and the same in every run."""

import inspect

import torch
from torch import nn

from shapetrace.signatures import write_signature

RELU, HUGE = nn.ReLU(), torch.ones(99)


def test_only_what_has_a_source_is_written():
    def function(
        x: torch.Tensor,
        n: int = 2,
        name="a",
        *args,
        size=(2, [3, None]),
        act=RELU,
        f=len,
        odd: object() = 1,
        **more,
    ) -> int:
        pass

    assert write_signature(inspect.signature(function)) == (
        "(x: torch.Tensor, n: int = 2, name='a', *args, size=(2, [3, None]), act=..., f=..., odd=1, **more)"
    )
    assert write_signature(inspect.signature(lambda x, huge=HUGE: x)) == "(x, huge=...)"
