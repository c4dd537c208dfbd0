"""A process that holds a model and runs the tools of one package on it: started by overhead.py.

Reads the name of a tool a line; writes a line of JSON: the seconds of the plain forward and of the tool, and how many
tensors the tool named, or `error`.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from collections.abc import Callable

import torch
from settings import SETTINGS
from tools import TOOLS, Tool

from shapetrace.gpt2 import Transformer


@torch.no_grad()
def work(setting_name: str, threads: int, clock: Callable[[], float]) -> None:
    """Until nobody asks."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a tool prints is no answer
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    setting = SETTINGS[setting_name]
    model = Transformer(setting.config).eval()
    tokens = torch.arange(setting.tokens)[None]
    kinds = {kind.name: kind for kind in TOOLS}
    prepared: dict[str, Tool] = {}
    for line in sys.stdin:
        name = line.rstrip("\n")
        try:
            tool = prepared.get(name) or prepared.setdefault(name, kinds[name](model, tokens))
            answer = take_turn(tool, lambda: model(tokens), clock)
        except Exception as error:  # whatever a tool raises is told in its row
            answer = {"error": f"{type(error).__name__}: {error}".partition("\n")[0]}
        print(json.dumps(answer), file=answers)


def take_turn(tool: Tool, plain: Callable[[], object], clock: Callable[[], float]) -> dict[str, float]:
    """The plain forward comes first or last, as the coin falls."""
    gc.collect()
    plain()  # what the processor had at hand was another process's
    before = seconds_of(plain, clock)[0] if random.random() < 0.5 else None
    tool.enter()
    try:
        seconds, result = seconds_of(tool.run, clock)
    finally:
        tool.leave()
    return {"plain": before or seconds_of(plain, clock)[0], "tool": seconds, "tensors": tool.count(result)}


def seconds_of(call: Callable[[], object], clock: Callable[[], float]) -> tuple[float, object]:
    start = clock()
    result = call()
    return clock() - start, result


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]), getattr(time, sys.argv[3]))
