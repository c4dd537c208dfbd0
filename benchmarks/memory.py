"""What memory a trace, a diff, random weights and a model without weights take, each in a process of its own.

usage: python benchmarks/memory.py [--only NAME ...] [--rounds N] [--write]

Peaks of resident memory in MB, medians over the rounds; no round comes before that is not counted. What torch and the
other packages take by themselves is told by the same command on a toy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import report
from processes import TOY, medians, output_of, shapetrace

SEVENTY_BILLION = ("n_layers=80", "d_model=8192", "n_heads=64", "d_head=128", "d_mlp=36864")
FORWARD = """
import sys, torch, shapetrace.recorder, shapetrace.gpt2
model, tokens = shapetrace.gpt2.Transformer(shapetrace.gpt2.Config()).eval(), torch.arange(int(sys.argv[1]))[None]
with torch.no_grad():
    {}(tokens)
"""
PLAIN, TRACED = FORWARD.format("model"), FORWARD.format("trace = shapetrace.record(model, tokens); _ = ")


def of_a_trace(rounds: int) -> Iterator[str]:
    """The plain forward of GPT-2 small and the traced one."""
    lengths = (7, 1024)
    commands = {("plain", each): ["-c", PLAIN, str(each)] for each in lengths}
    commands |= {("traced", each): ["-c", TRACED, str(each)] for each in lengths}
    peaks = {key: usage.peak for key, usage in medians(commands, rounds, uncounted=0).items()}
    rows = [("forward of gpt2-small", "plain", "traced", "added", "ratio")]
    for length in lengths:
        plain, traced = peaks["plain", length], peaks["traced", length]
        rows.append((f"{length:,} tokens", *map(megabytes, (plain, traced, traced - plain)), f"{traced / plain:.3f}"))
    yield from report.align(rows)


def in_weights(rounds: int) -> Iterator[str]:
    """How many copies of its weights a command holds: its peak beyond the toy's, over the weights beyond the toy's."""
    diff, run = "diff --weights random", "run --weights random"
    commands = {
        "diff, toy": shapetrace(diff, TOY),
        "diff, gpt2-small": shapetrace(diff),
        "run, toy": shapetrace(run, TOY),
        "run, gpt2-small": shapetrace(run),
        "run, gpt2-xl": shapetrace(f"{run} --model gpt2-xl"),
    }
    weights = {
        "toy": bytes_of(shapetrace("params --json", TOY)),
        "gpt2-small": bytes_of(shapetrace("params --json")),
        "gpt2-xl": bytes_of(shapetrace("params --json --model gpt2-xl")),
    }
    peaks = {name: usage.peak for name, usage in medians(commands, rounds, uncounted=0).items()}
    rows = [("--weights random", "peak", "weights", "copies, packages aside", "in all")]
    for name, peak in peaks.items():
        command, _, model = name.partition(", ")
        held, more = peak - peaks[f"{command}, toy"], weights[model] - weights["toy"]
        copies = (f"{held / more:.2f}", f"{peak / weights[model]:.2f}") if more else ("", "")
        rows.append((name, megabytes(peak), megabytes(weights[model]), *copies))
    yield from report.align(rows)


def without_weights(rounds: int) -> Iterator[str]:
    """`run --meta` and `params` of a GPT-2 of 70 billion parameters, beside the small one and torch alone."""
    commands = {"import torch": ["-c", "import torch"]}
    for command in ("run --meta", "params"):
        commands |= {
            f"{command}, gpt2-small": shapetrace(command),
            f"{command}, 70 billion": shapetrace(command, SEVENTY_BILLION),
        }
    usages = medians(commands, rounds, uncounted=0)
    rows = [("", "peak", "over torch", "CPU s", "over the small one")]
    for name, usage in usages.items():
        command, _, model = name.partition(", ")
        over_torch = megabytes(usage.peak - usages["import torch"].peak)
        over_small = f"{usage.cpu - usages[f'{command}, gpt2-small'].cpu:+.2f}" if model == "70 billion" else ""
        rows.append((name, megabytes(usage.peak), over_torch if model else "", f"{usage.cpu:.2f}", over_small))
    yield from report.align(rows)


def bytes_of(command: Sequence[str]) -> int:
    """What the weights take, as `shapetrace params --json` says it."""
    return int(json.loads(output_of(command))["bytes"])


def megabytes(peak: float) -> str:
    return f"{peak / 1e6:,.0f}"


PARTS = {"trace": of_a_trace, "weights": in_weights, "meta": without_weights}


def main() -> None:
    parser = report.parser_of(__doc__ or "", rounds=3)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME", help=", ".join(PARTS))
    options = parser.parse_args()
    lines = [f"{report.count(options.rounds, 'round')}; MB of resident memory at its peak"]
    for name in options.only:
        lines += ["", *PARTS[name](options.rounds)]
    report.publish("memory.py", lines, options.write)


if __name__ == "__main__":
    main()
