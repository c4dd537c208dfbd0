"""Watch a model being built: constructors bind tensors too, and their comments speak of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from torch import nn

from shapetrace.packages import package_of
from shapetrace.recorder.crash.shadow import Outputs
from shapetrace.recorder.source import NO_STATEMENT, Source, read_source
from shapetrace.shape_comments.watching import Watcher


@contextmanager
def watching_construction() -> Iterator[Watcher]:
    """While the block runs every function of the user's files is watched; yields what the claims there are about."""
    tracer = _Tracer()
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        yield tracer.watcher
    finally:
        sys.settrace(before)
    if tracer.error is not None:
        raise tracer.error


class _Tracer:
    def __init__(self) -> None:
        self.watcher = Watcher(Outputs())
        self.error: Exception | None = None  # of ours: it must not come out of a line of the user's
        self._sources: dict[CodeType, Source | None] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> _Frame | None:
        code = frame.f_code
        if code not in self._sources:
            is_own = not (
                code.co_name.startswith("<") or code.co_filename.startswith("<") or package_of(code.co_filename)
            )
            self._sources[code] = read_source(code.co_filename) if is_own else None
        source = self._sources[code]
        return None if source is None else _Frame(self, source, frame)

    def fail(self, error: Exception) -> None:
        """Watch no more."""
        self.error = self.error or error
        sys.settrace(None)


class _Frame:
    """One run of one function."""

    def __init__(self, tracer: _Tracer, source: Source, frame: FrameType):
        owner = frame.f_locals.get("self")
        self._tracer = tracer
        self._watcher = tracer.watcher
        self._source = source
        self._owners = [owner] if isinstance(owner, nn.Module) else []
        self._statement = NO_STATEMENT
        self._raised = False
        try:
            self._watcher.enter(frame, self._owners)
        except Exception as error:
            tracer.fail(error)

    def __call__(self, frame: FrameType, event: str, arg: Any) -> _Frame | None:
        if self._tracer.error is not None:
            return None
        try:
            self._step(frame, event, arg)
        except Exception as error:
            self._tracer.fail(error)
            return None
        return self

    def _step(self, frame: FrameType, event: str, arg: Any) -> None:
        running, line = self._statement, frame.f_lineno
        if event == "exception":
            self._raised = True
        elif event == "return":
            if not self._raised:
                self._watcher.over(frame, running, self._owners)
            self._watcher.leave(frame, self._source.statement_at(line), arg, self._owners)
        elif running.first == running.last or not running.first <= line <= running.last:
            if not self._raised:
                self._watcher.over(frame, running, self._owners)
            self._raised = False
            self._statement = self._source.statement_at(line)
            self._watcher.begin(frame, self._statement)
