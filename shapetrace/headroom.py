"""Room for calls within calls, beside those of the user's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

# For modules within modules, as deep as libyaml reads them (1,000 levels of YAML), with some calls for each.
DEEP = 10_000
_LOCK = Lock()
_limit = 0  # what it was raised to last


@contextmanager
def headroom(frames: int) -> Iterator[None]:
    """Inside, Python lets that many more calls stand within each other before it raises RecursionError."""
    _raise_by(frames)
    try:
        yield
    finally:
        _raise_by(-frames)


def _raise_by(frames: int) -> None:
    global _limit
    with _LOCK:
        now = sys.getrecursionlimit()
        if frames > 0 or now == _limit:  # else somebody has set it meanwhile
            _limit = now + frames
            sys.setrecursionlimit(_limit)
