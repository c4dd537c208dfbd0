"""What a hint can be read from."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import Tensor

from shapetrace.recorder.crash.expressions import Expressions
from shapetrace.recorder.crash.operation import Operation, Term
from shapetrace.recorder.crash.site import Site
from shapetrace.recorder.tensors import name_of

BATCH = ("b", "B", "batch", "bs", "bsz", "batch_size")  # what the first axis is usually called


@dataclass(frozen=True, slots=True)
class Evidence:
    """An exception's message and class, and what was to be computed."""

    message: str
    kind: type[BaseException]
    operation: Operation
    site: Site
    expressions: Expressions

    def says(self, pattern: str) -> re.Match[str] | None:
        """Whether the message matches."""
        return re.search(pattern, self.message)


def shape(term: Term) -> tuple[int, ...]:
    """The sizes of a term that is a tensor."""
    assert term.tensor is not None
    return tuple(term.tensor.shape)


def told(term: Term) -> str:
    """`x (1, 7, 64)`."""
    return f"{term.text} {shape(term)}"


def dtype(term: Term) -> str:
    """`float32`."""
    assert term.tensor is not None
    return name_of(term.tensor.dtype)


def is_float(term: Term) -> bool:
    """Whether it is a tensor of floating point numbers."""
    return term.tensor is not None and term.tensor.is_floating_point()


def is_real(tensor: Tensor) -> bool:
    """Whether there are values to look at."""
    return not tensor.is_meta and tensor.numel() > 0
