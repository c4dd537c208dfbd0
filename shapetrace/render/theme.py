"""The colours, and the few ways in which names and numbers are written everywhere."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.theme import Theme

THEME = Theme(
    {
        "path": "bold",
        "class": "cyan",
        "role": "dim",
        "name": "default",
        "shape": "green",
        "axes": "blue",
        "comment": "dim",
        "count": "magenta",
        "times": "yellow",
        "flag": "yellow",
        "bad": "bold red",
        "good": "green",
        "note": "dim",
    }
)


def printable(text: str) -> str:
    """The text with each character that would steer a terminal, or end the line, written as its escape."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def printable_text(text: str) -> str:
    """The same for a text of several lines: these, spaces of any width, and what joins two signs to one stay."""
    kept = "\n\t\u200c\u200d"
    return "".join(each if each in kept or unicodedata.category(each) == "Zs" else printable(each) for each in text)


def quoted(token: str) -> str:
    """A token with its spaces to be seen: `' cat'`."""
    return f"'{printable(token)}'"


def write_bytes(count: float) -> str:
    """`652.3 MB`, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def count_of(count: int, noun: str) -> str:
    """`1 tensor`, `2 tensors`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def separated(parts: Sequence[RenderableType]) -> Group:
    """The parts with an empty line between each two."""
    return Group(*[each for part in parts for each in ("", part)][1:])
