"""What shapetrace says when it cannot go on; every message is for the person who typed the command."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class ShapetraceError(Exception):
    """Bad input: what happened, with names and numbers, and the next step as `hint`."""

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n\nhint: {self.hint}" if self.hint else self.message


class TraceFileError(ShapetraceError):
    """A file that is not a trace, or not one that this version reads."""


class WeightsError(ShapetraceError):
    """Weights that cannot be had, or do not fit the model."""


def suggest(name: str, known: Iterable[str]) -> str:
    """`did you mean ...?` with the nearest of the known names, or the known names themselves if none is near."""
    known = list(known)
    if not known:
        return "there is none at all"
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return "did you mean " + " or ".join(f"`{match}`" for match in near) + "?"
    shown = ", ".join(f"`{each}`" for each in known[:12])
    return f"there is {shown}" + (", ..." if len(known) > 12 else "")
