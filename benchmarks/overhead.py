"""What it costs to see the tensors of a forward: shapetrace beside other tools, in one run.

usage: python benchmarks/overhead.py [--only NAME ...] [--tools PACKAGE ...] [--rounds N] [--threads N] [--cpu]
                                     [--write]

Each package has a process of its own, for some wrap torch or the model for good; one process runs at a time. In each
round every tool runs once, in random order, and right before or after it the plain forward in the same process: `ratio`
is the median over these pairs. The first run of a tool, which pays for what it does once, is not in the medians; its
time is the column `first`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import report
import torch
from settings import SETTINGS
from tools import TOOLS, Tool

from shapetrace.gpt2 import Transformer


class Turn(NamedTuple):
    """One run of a tool, in seconds, and of the plain forward beside it."""

    plain: float
    tool: float
    tensors: int


class Worker:
    """A process that runs the tools of one package when it is told to."""

    def __init__(self, *arguments: str):
        command = [sys.executable, str(Path(__file__).with_name("worker.py")), *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdin
        assert self.process.stdout
        self.questions, self.answers = self.process.stdin, self.process.stdout

    def take_turn(self, name: str) -> Turn | str:
        """The turn, or in words why there is none."""
        try:
            print(name, file=self.questions, flush=True)
        except BrokenPipeError:
            answer = ""
        else:
            answer = self.answers.readline()
        if not answer:
            return f"its process ended with code {self.process.wait()}"
        values = json.loads(answer)
        return values["error"] if "error" in values else Turn(**values)

    def close(self) -> None:
        self.process.communicate()


def measure(worker: Sequence[str], tools: Sequence[type[Tool]], rounds: int) -> dict[type[Tool], list[Turn] | str]:
    """Of each tool its turns, the uncounted first one in front, or why there are none; worker: its arguments."""
    workers = {package: Worker(*worker) for package in {tool.package for tool in tools}}
    turns: dict[type[Tool], list[Turn] | str] = {tool: [] for tool in tools}
    for _ in range(1 + rounds):
        for tool in random.sample(tools, len(tools)):
            taken = turns[tool]
            if isinstance(taken, list):
                turn = workers[tool.package].take_turn(tool.name)
                turns[tool] = turn if isinstance(turn, str) else [*taken, turn]
    for each in workers.values():
        each.close()
    return turns


def tabulate(measured: dict[type[Tool], list[Turn] | str]) -> Iterator[str]:
    """A row for each tool; below the table those that were not measured."""
    rows = [("", "ms", "ratio", "tensors", "µs/tensor", "first ms", "names")]
    for tool, turns in measured.items():
        if isinstance(turns, str):
            continue
        first, *others = turns
        added = statistics.median(turn.tool - turn.plain for turn in others)
        rows.append(
            (
                tool.name,
                f"{statistics.median(turn.tool for turn in others) * 1e3:,.1f}",
                f"{statistics.median(turn.tool / turn.plain for turn in others):.3f}",
                f"{first.tensors:,}",
                f"{added / first.tensors * 1e6:,.1f}",
                f"{first.tool * 1e3:,.0f}",
                tool.names,
            )
        )
    yield from report.align(rows)
    for tool, reason in measured.items():
        if isinstance(reason, str):
            yield f"{tool.name.strip()}: not measured: {reason}"


def head(name: str, measured: dict[type[Tool], list[Turn] | str], threads: int, rounds: int) -> str:
    """The setting in one line, with the plain forward's median over all processes."""
    setting = SETTINGS[name]
    with torch.device("meta"):
        parameters = sum(each.numel() for each in Transformer(setting.config).parameters())
    plain = [turn.plain for turns in measured.values() if isinstance(turns, list) for turn in turns[1:]]
    return (
        f"{name}: {parameters:,} parameters, {setting.tokens:,} tokens, torch on {report.count(threads, 'thread')}, "
        f"{report.count(rounds, 'round')}; the plain forward takes {statistics.median(plain) * 1e3:,.1f} ms"
    )


def main() -> None:
    parser = report.parser_of(__doc__ or "")
    packages = list(dict.fromkeys(tool.package for tool in TOOLS))
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="NAME", help="settings")
    parser.add_argument("--tools", nargs="+", choices=packages, default=packages, metavar="PACKAGE", help="packages")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), metavar="N", help="torch's (as it is)")
    parser.add_argument("--cpu", action="store_true", help="CPU time, where a machine is busy; with --threads 1")
    options = parser.parse_args()
    wanted = [tool for tool in TOOLS if tool.package in options.tools]
    installed = [tool for tool in wanted if importlib.util.find_spec(tool.package)]
    missing = {tool: f"{tool.package} is not installed" for tool in wanted if tool not in installed}
    versions = {tool.package: importlib.metadata.version(tool.package) for tool in installed}
    lines = [", ".join(f"{package} {version}" for package, version in versions.items())]
    lines += ["CPU time"] if options.cpu else []
    for name in options.only:
        rounds = options.rounds or SETTINGS[name].rounds
        clock = "process_time" if options.cpu else "perf_counter"
        measured = measure((name, str(options.threads), clock), installed, rounds)
        lines += ["", head(name, measured, options.threads, rounds), *tabulate(measured | missing)]
        print(f"{name}: done", file=sys.stderr)
    report.publish("overhead.py", lines, options.write)


if __name__ == "__main__":
    main()
