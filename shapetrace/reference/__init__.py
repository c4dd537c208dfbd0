"""What a model is compared with, and transformer_lens, whichever generation is installed, as one such."""

from shapetrace.reference.lens import build_reference
from shapetrace.reference.reference import Reference, ReferenceRun

__all__ = ["Reference", "ReferenceRun", "build_reference"]
