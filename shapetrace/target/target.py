"""What a model's name on the command line stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import nn

Note = Callable[[str], None]  # is told what the reader of the result should know
Advance = Callable[[int], None]  # is told how many entries were drawn since the last time


@dataclass(frozen=True, slots=True)
class Target:
    """A model, and where its weights came from."""

    name: str
    model: nn.Module
    weights: str  # in words
    are_trained: bool = False  # whether its predictions mean anything


class Source(Protocol):
    """Where a model comes from. To build it takes two steps, so that bad input costs no time."""

    def outline(self, seed: int = 0, meta: bool = False) -> Target:
        """The model with its shapes; its weights may be still on the meta device, and are with `meta`."""

    def complete(self, outline: Target, weights: str, seed: int, note: Note, advance: Advance) -> Target:
        """The outlined model with its weights.

        weights: `auto`, `pretrained`, `random` or the path of a safetensors file.
        """


def ignore_note(text: str) -> None:
    """For who has no reader to tell."""


def ignore_advance(entries: int) -> None:
    """For who shows no progress."""
