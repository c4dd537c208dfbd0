"""How long one waits: CPU time of the commands that need no torch, and the first line of those that do.

usage: python benchmarks/startup.py [--only NAME ...] [--rounds N] [--write]

Fresh processes, interleaved, medians over the rounds; what they print goes to a terminal, line by line.
"""

from __future__ import annotations

from collections.abc import Iterator

import report
from processes import ROOT, TOY, medians, shapetrace

TRACE = f"{ROOT}/traces/test_goldens/gpt2_small.yaml"
FORWARD = """
import torch
from shapetrace.gpt2 import Config, Transformer
with torch.device("{device}"):
    model, tokens = Transformer(Config({sizes})).eval(), torch.arange(7)[None]
with torch.no_grad():
    model(tokens)
print()
"""


def without_torch(rounds: int) -> Iterator[str]:
    """What is typed between two thoughts, in CPU time."""
    commands = {"python -c pass": ["-c", "pass"]}
    for command in ("--version", "--help", f"show {TRACE}", f"compare {TRACE} {TRACE}"):
        name = command.replace(TRACE, "gpt2_small.yaml")
        commands[name] = shapetrace(command)
    rows = [("", "CPU s", "seconds")]
    for name, usage in medians(commands, rounds).items():
        rows.append((name, f"{usage.cpu:.2f}", f"{usage.seconds:.2f}"))
    yield from report.align(rows)


def with_torch(rounds: int) -> Iterator[str]:
    """Until the first line is there, beside what nobody can avoid: to import torch, or that and the model's forward."""
    commands = {
        "python -c 'import torch'": ["-c", "import torch; print()"],
        "params": shapetrace("params"),
        "torch, gpt2-small's forward on meta": ["-c", FORWARD.format(device="meta", sizes="")],
        "run --meta": shapetrace("run --meta"),
        "torch, the toy, its forward": ["-c", FORWARD.format(device="cpu", sizes=", ".join(TOY))],
        "run, the toy": shapetrace("run --weights random", TOY),
        "torch, gpt2-small, its forward": ["-c", FORWARD.format(device="cpu", sizes="")],
        "run, gpt2-small": shapetrace("run --weights random"),
    }
    rows = [("", "first line s", "ratio", "CPU s", "ratio")]
    for name, usage in medians(commands, rounds).items():
        if name.startswith(("python", "torch")):
            base = usage
        waited, worked = usage.first_line / base.first_line, usage.cpu / base.cpu
        rows.append((name, f"{usage.first_line:.2f}", f"{waited:.2f}", f"{usage.cpu:.2f}", f"{worked:.2f}"))
    yield from report.align(rows)


PARTS = {"light": without_torch, "torch": with_torch}


def main() -> None:
    parser = report.parser_of(__doc__ or "", rounds=7)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME", help=", ".join(PARTS))
    options = parser.parse_args()
    lines = [report.count(options.rounds, "round")]
    for name in options.only:
        lines += ["", *PARTS[name](options.rounds)]
    report.publish("startup.py", lines, options.write)


if __name__ == "__main__":
    main()
