"""The comments of a file, without what speaks to tools."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from shapetrace.recorder.source import FOR_TOOLS


@dataclass(frozen=True, slots=True)
class Comment:
    """Where it begins, its line from 1 and its column from 0."""

    line: int
    column: int
    text: str  # from the `#`
    stands_alone: bool


def comments_in(text: str) -> Iterator[Comment]:
    """Those of a source text, in order. Raises tokenize.TokenError for one that is no Python."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            yield Comment(token.start[0], token.start[1], _blank_tools(token.string), alone)


def _blank_tools(comment: str) -> str:
    """The comment without what speaks to tools; what comes after that stays in its column."""
    return FOR_TOOLS.sub(lambda found: " " * len(found[0]), comment).rstrip()
