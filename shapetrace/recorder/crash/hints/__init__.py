"""Why a statement raised, where that is certain. Each file knows one family of operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shapetrace.recorder.crash.expressions import Expressions
from shapetrace.recorder.crash.hints import calls, einsum, elementwise, indexing, matmul, places, reshaping
from shapetrace.recorder.crash.hints.evidence import Evidence
from shapetrace.recorder.crash.operation import Operation
from shapetrace.recorder.crash.site import Site

# The first that finds something is believed: what says that two things cannot meet at all comes first.
_FAMILIES: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    *(places.explain, calls.explain, einsum.explain, matmul.explain, indexing.explain, reshaping.explain),
    *(elementwise.explain,),
)


def find_hint(error: BaseException, message: str, operation: Operation, site: Site, expressions: Expressions) -> str:
    """What is wrong, in a sentence with names and numbers; "" where nothing is certain."""
    evidence = Evidence(message, type(error), operation, site, expressions)
    for explain in _FAMILIES:
        try:
            found = next(explain(evidence), "")
        except Exception:  # evidence that is not what it seems explains nothing
            continue
        if found:
            return found
    return ""
