"""Which tensor goes wrong first beside a reference, and why."""

from shapetrace.divergence.diffing import diff

__all__ = ["diff"]
