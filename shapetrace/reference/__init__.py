"""transformer_lens, whichever generation is installed, as one Reference."""

from shapetrace.reference.lens import build_reference
from shapetrace.reference.reference import Reference, ReferenceRun

__all__ = ["Reference", "ReferenceRun", "build_reference"]
