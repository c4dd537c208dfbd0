"""Trace every architecture that transformers can build, small, each in a process of its own.

usage: python benchmarks/sweep_architectures.py [--only NAME ...] [--jobs N] [--write FILE.md]

A line for each that is not traced as it has to be, or that does not run without us either; then the totals.
Exit code 1 where one that runs is not traced.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import multiprocessing
import resource
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

if TYPE_CHECKING:
    from architectures import Architecture
    from recorder_checks import Outcome

SECONDS, MEMORY = 120, 12 * 2**30  # for each architecture
TITLES = {
    "causal": "causal language models",
    "masked": "masked language models",
    "seq2seq": "encoder-decoders of text",
    "speech": "encoder-decoders of speech",
    "base": "other models",
}
PRELOADED = ["recorder_checks", "transformers.modeling_layers", "transformers.generation"]


def work(connection: Connection, architecture: Architecture) -> None:
    """In a process of its own: examine one architecture and send what came of it."""
    import torch
    import transformers
    from recorder_checks import examine

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    connection.send(examine(architecture))


def examine_apart(context: ForkServerContext, architecture: Architecture) -> Outcome:
    """What came of it; of one that crashes or takes too long, that."""
    from recorder_checks import Outcome

    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(sending, architecture))
    process.start()
    sending.close()
    lost = f"takes longer than {SECONDS} s"
    try:
        if receiving.poll(SECONDS):
            outcome: Outcome = receiving.recv()
            return outcome
    except EOFError:
        process.join()
        lost = f"its process ended with code {process.exitcode}"
    finally:
        process.kill()
        process.join()
    return Outcome(str(architecture), architecture.class_name, "lost", lost)


def describe(outcomes: Sequence[Outcome]) -> str:
    """The result as Markdown."""
    traced = [each for each in outcomes if each.verdict == "traced"]
    idle = [each for each in outcomes if each.verdict == "does not run"]
    faulty = [each for each in outcomes if each.verdict in ("wrong", "lost")]
    tensors = statistics.median(each.tensors for each in traced)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("transformers", "torch"))
    lines = [
        "# The architectures of transformers",
        "",
        f"**{len(traced)} of {len(outcomes) - len(idle)}** that run are traced as they have to be: the output is the",
        "same bit by bit with the recorder and without, every module call and every named output is in the trace, its",
        "parameters are counted right, no hook is left, a second trace equals the first, and so does a stored one.",
        "",
        f"{versions}; small, with random weights. Made by `python benchmarks/sweep_architectures.py --write FILE`.",
        "",
        "| | tried | run | traced |",
        "| --- | ---: | ---: | ---: |",
    ]
    for kind, title in TITLES.items():
        of_kind = [each for each in outcomes if each.architecture.startswith(f"{kind}:")]
        run = [each for each in of_kind if each.verdict != "does not run"]
        lines.append(f"| {title} | {len(of_kind)} | {len(run)} | {sum(each.verdict == 'traced' for each in run)} |")
    largest = sorted(traced, key=lambda each: -each.tensors)[:5]
    lines += [
        "",
        f"A trace has {tensors:.0f} tensors in the median; the most have "
        + ", ".join(f"{each.architecture} ({each.tensors:,})" for each in largest)
        + ".",
    ]
    noisy = [each.architecture for each in traced if not each.reproducible]
    if noisy:
        lines += ["", f"Not the same in two runs without us, so that shapes alone are compared: {', '.join(noisy)}."]
    lines += ["", "## Not traced as they have to be", "", *map(_row, faulty)] if faulty else []
    lines += ["", "## Do not run without shapetrace either", "", "with a configuration made small by rule:", ""]
    return "\n".join([*lines, *map(_row, idle), ""])


def _row(outcome: Outcome) -> str:
    reason = outcome.reason.partition("; ")[0].replace("|", " ")
    return f"- {outcome.architecture}: {reason if len(reason) < 110 else reason[:110].rstrip() + ' ...'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="such as `bert` or `masked:bert`")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (1)")
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="where to write the result")
    options = parser.parse_args()
    from architectures import list_architectures

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    wanted = [each for each in list_architectures() if not options.only or {each.name, str(each)} & set(options.only)]
    outcomes = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(lambda each: examine_apart(context, each), wanted):
            outcomes.append(outcome)
            if outcome.verdict != "traced":
                print(f"{outcome.verdict}  {outcome.architecture}  {outcome.reason}", flush=True)
            elif len(outcomes) % 50 == 0:
                print(f"{len(outcomes)} of {len(wanted)}", file=sys.stderr, flush=True)
    counted = Counter(each.verdict for each in outcomes)
    print(", ".join(f"{number} {verdict}" for verdict, number in counted.most_common()))
    if options.write:
        options.write.write_text(describe(outcomes), encoding="utf-8")
    return int(counted["wrong"] + counted["lost"] > 0)


if __name__ == "__main__":
    sys.exit(main())
