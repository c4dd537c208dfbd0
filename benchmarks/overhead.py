"""What a trace costs: the traced forward beside the plain one, interleaved in one run, as a ratio of medians.

usage: python benchmarks/overhead.py [REPEATS]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch

from shapetrace import record, recording
from shapetrace.gpt2 import Config, Transformer

TOY = Config(n_layers=2, d_model=64, n_heads=4, d_head=16, d_mlp=256, d_vocab=101, n_ctx=32)


def seconds_of(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def traced_forward(model: Transformer, tokens: torch.Tensor) -> float:
    """The forward alone; to describe the model before and after it is not counted."""
    with recording(model):
        return seconds_of(lambda: model(tokens))


@torch.no_grad()
def measure(model: Transformer, tokens: torch.Tensor, repeats: int) -> str:
    """One row: medians of the plain forward, of the traced one, and of all that `record` does."""
    plain, forward, whole = [], [], []
    for _ in range(repeats):
        plain.append(seconds_of(lambda: model(tokens)))
        forward.append(traced_forward(model, tokens))
        whole.append(seconds_of(lambda: record(model, tokens)))
    base, traced, all_of_it = (statistics.median(each) for each in (plain, forward, whole))
    added = f"x{traced / base:.2f} (+{(traced - base) * 1e3:.1f} ms)"
    return f"{base * 1e3:8.1f} ms  {added:>17}  x{all_of_it / base:.2f}"


def main(repeats: int = 25) -> None:
    print(f"{torch.get_num_threads()} threads\nmodel       tokens        plain     traced forward  whole record()")
    for name, config, lengths in (("toy", TOY, (7,)), ("gpt2-small", Config(), (7, 128, 512))):
        model = Transformer(config).eval()
        for length in lengths:
            print(f"{name:<10}  {length:>6}  {measure(model, torch.arange(length)[None], repeats)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
