"""Why a statement raised, where that is certain. Each file knows one family of operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import nn

from shapetrace.recorder.crash.expressions import Expressions, Unknown
from shapetrace.recorder.crash.hints import calls, einsum, elementwise, indexing, matmul, places, reshaping
from shapetrace.recorder.crash.hints.evidence import Evidence
from shapetrace.recorder.crash.operation import Operation
from shapetrace.recorder.crash.site import Site

# The first that finds something is believed: what says that two things cannot meet at all comes first.
_FAMILIES: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    *(places.explain, calls.explain, einsum.explain, matmul.explain, indexing.explain, reshaping.explain),
    *(elementwise.explain,),
)


def find_hint(
    error: BaseException, operation: Operation, site: Site, expressions: Expressions, module: nn.Module
) -> str:
    """What is wrong, in a sentence with names and numbers; "" where nothing is certain."""
    evidence = Evidence(str(error), type(error), operation, site, expressions, module)
    for explain in _FAMILIES:
        try:
            found = next(explain(evidence), "")
        except (Unknown, IndexError, ValueError, TypeError, RuntimeError, AttributeError):
            continue  # evidence that is not what it seems explains nothing
        if found:
            return found
    return ""
