"""Run python in a process of its own, as in a terminal, and say what that took."""

from __future__ import annotations

import os
import pty
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# The tree that the benchmarks lie in is what is measured, and the hub is not asked.
ROOT = str(Path(__file__).resolve().parent.parent)
SETTINGS = {"PYTHONPATH": ROOT, "COLUMNS": "80", "HF_HUB_OFFLINE": "1"}
TOY = ("n_layers=2", "d_model=64", "n_heads=4", "d_head=16", "d_mlp=256", "n_ctx=32")


class Usage(NamedTuple):
    first_line: float  # seconds until the first line of its standard output was there, 0 where it wrote none
    seconds: float
    cpu: float  # seconds, of all its threads
    peak: float  # of its resident memory, in bytes


def shapetrace(command: str, sizes: Sequence[str] = ()) -> list[str]:
    """The arguments of python that run a command of shapetrace's, with these sizes of its model."""
    return ["-m", "shapetrace", *command.split(), *(word for size in sizes for word in ("--set", size))]


def run_python(arguments: Sequence[str]) -> Usage:
    """Run python with these arguments; its standard output is a terminal of 80 columns.

    The process that calls this has to be small: Linux counts what a parent held at the start as the child's peak.
    Raises RuntimeError, with what was written, where python fails.
    """
    ours, theirs = pty.openpty()
    with tempfile.TemporaryFile() as complaints:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=theirs, stderr=complaints, env=os.environ | SETTINGS
        )
        os.close(theirs)
        first_line = read_to_the_end(ours, start)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            complaints.seek(0)
            raise RuntimeError(f"python {' '.join(arguments)} ended with {process.returncode}: {complaints.read()!r}")
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Usage(first_line, seconds, usage.ru_utime + usage.ru_stime, peak)


def read_to_the_end(terminal: int, start: float) -> float:
    """Read until nobody writes any more; the seconds from start until a line was whole."""
    first_line = 0.0
    while True:
        try:
            written = os.read(terminal, 65536)
        except OSError:  # what Linux raises at the end of a terminal
            written = b""
        if b"\n" in written and not first_line:
            first_line = time.perf_counter() - start
        if not written:
            os.close(terminal)
            return first_line


def output_of(arguments: Sequence[str]) -> str:
    """What python prints with these arguments."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | SETTINGS).stdout


def medians(commands: Mapping[str, Sequence[str]], rounds: int, uncounted: int = 1) -> dict[str, Usage]:
    """Each command once a round, in random order; of each quantity the median. Uncounted rounds come before."""
    taken: dict[str, list[Usage]] = {name: [] for name in commands}
    for _ in range(uncounted + rounds):
        for name in random.sample(list(commands), len(commands)):
            taken[name].append(run_python(commands[name]))
    counted = {name: usages[uncounted:] for name, usages in taken.items()}
    return {name: Usage(*map(statistics.median, zip(*usages, strict=True))) for name, usages in counted.items()}
