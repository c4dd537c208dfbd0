"""Room for calls within calls, beside those of the user's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def headroom(frames: int) -> Iterator[None]:
    """Inside, Python lets that many more calls stand within each other before it raises RecursionError."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + frames)
    try:
        yield
    finally:
        if sys.getrecursionlimit() == before + frames:  # else somebody has set it meanwhile
            sys.setrecursionlimit(before)
