"""What the scripts print, and where README.md beside them keeps it: each has its block between two comments."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

README = Path(__file__).with_name("README.md")


def parser_of(documentation: str, rounds: int | None = None) -> argparse.ArgumentParser:
    """The options that every script has; rounds: how many, where nobody says."""
    parser = argparse.ArgumentParser(description=documentation.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=rounds, metavar="N", help="how often each is measured")
    parser.add_argument("--write", action="store_true", help="put what is printed into benchmarks/README.md")
    return parser


def describe_machine() -> str:
    """`2 cores of Intel Xeon, 23 GiB, Linux; Python 3.11.7, torch 2.13.0`"""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{processors} cores of {_processor()}, {memory:.0f} GiB, {platform.system()}; "
        f"Python {platform.python_version()}, torch {importlib.metadata.version('torch')}"
    )


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"model name\s*:\s*(.+)", text)
    return re.sub(r"\((R|TM)\)|Processor|CPU", "", found[1]).strip() if found else platform.processor()


def count(number: int, noun: str) -> str:
    """`1 round`, `21 rounds`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns at equal width: the first to the left, the last too where it holds words, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    words = [any(cell[:1].isalpha() for cell in column[1:]) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index == 0 or wordy else cell.rjust(width)
            for index, (cell, width, wordy) in enumerate(zip(row, widths, words, strict=True))
        ).rstrip()
        for row in rows
    ]


def publish(name: str, lines: Iterable[str], write: bool) -> None:
    """Print the lines, and replace the block of that name in README.md where that is wanted."""
    text = "\n".join([describe_machine(), *lines])
    print(text)
    if not write:
        return
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = README.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    README.write_text(f"{before}{begin}```text\n{text}\n```\n{end}{after}", encoding="utf-8")
