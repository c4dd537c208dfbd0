"""Random numbers that depend on a seed, and on nothing that was drawn before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """While the block runs torch draws from the seed; then it goes on where it was."""
    # To ask for the state of a GPU would start it up, which takes seconds: one that is not in use has none to lose.
    in_use = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=list(in_use)):
        torch.manual_seed(seed)
        yield
