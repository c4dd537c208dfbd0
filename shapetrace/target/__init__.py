"""A model as it is named on the command line: a built-in, the user's own code, or one of Hugging Face's."""

from shapetrace.target.sources import build_on_meta, build_target, find_reference, find_source
from shapetrace.target.target import Source, Target

__all__ = ["Source", "Target", "build_on_meta", "build_target", "find_reference", "find_source"]
