"""A forward that raised: which statement, from which tensors, and why."""

from shapetrace.recorder.crash.failure import describe_failure, message_of, summarise

__all__ = ["describe_failure", "message_of", "summarise"]
