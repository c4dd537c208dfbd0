"""Run any torch module once and return a trace of every tensor that got a name."""

from shapetrace.recorder.hooks import record, recording

__all__ = ["record", "recording"]
