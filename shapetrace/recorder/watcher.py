"""A trace function that follows user code, and stays out of the way of everything else."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from torch._C import _current_graph_task_id

from shapetrace.recorder.calls import CallStack
from shapetrace.recorder.frames import Function, Spectator, TraceFunction, WatchedFrame, describe_function
from shapetrace.recorder.source import Source

_ANONYMOUS_SCOPES = ("<module>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")


class FrameWatcher:
    """A trace function that writes into a CallStack; the one that was there before goes on seeing every event."""

    def __init__(
        self,
        stack: CallStack,
        is_watched: Callable[[str], bool],
        read: Callable[[str], Source],
        spectator: Spectator | None = None,
    ):
        self._stack = stack
        self._read = read
        self._is_watched = is_watched
        self._spectator = spectator
        # Decided once for each code object; by its id, for to hash a code object is to hash all that is in it.
        self._functions: dict[int, Function | None] = {}
        self._codes: list[CodeType] = []  # held, so that no other gets the id
        self._previous: Any = None
        self._failure: Exception | None = None

    def start(self) -> None:
        self._previous = sys.gettrace()
        sys.settrace(self._see_call)

    def stop(self) -> None:
        """Put the previous trace function back; one that a debugger has set meanwhile is left alone."""
        if self._is_set():
            sys.settrace(self._previous)
        failure, self._failure = self._failure, None
        if failure is not None:
            warnings.warn(f"shapetrace lost sight of some tensors, by a bug of its own: {failure!r}", stacklevel=4)

    def pause(self) -> bool:
        """Watch nothing until `resume`, which is due where this returns True.

        The recorder's own functions are many, and each would be asked whether it is user code.
        """
        if self._is_set():
            sys.settrace(self._previous)
            return True
        return sys.gettrace() is None  # a debugger that was started inside has been left again

    def resume(self) -> None:
        sys.settrace(self._see_call)

    def _is_set(self) -> bool:
        """Equal, not the same: a bound method is another each time, and one that is kept would keep the model too."""
        current: object = sys.gettrace()
        return current == self._see_call

    def fail(self, error: Exception) -> None:
        """Note a mistake of ours, which must never reach the user's code."""
        if not isinstance(error, RecursionError):  # which is the user's: we only were the ones to touch the ground
            self._failure = self._failure or error

    def _see_call(self, frame: FrameType, event: str, arg: Any) -> TraceFunction | None:
        try:
            function = self._functions[id(frame.f_code)]
        except KeyError:
            function = self._decide(frame.f_code)
        previous: TraceFunction | None = self._previous
        if function is None and previous is None:
            return None  # nine calls of ten are calls of library code: they have to cost next to nothing
        if previous is not None:
            previous = previous(frame, event, arg)
            if sys.gettrace() is self._previous:  # coverage's tracer sets itself whenever it is called
                sys.settrace(self._see_call)
        if function is None or not self._stack.under_way or _current_graph_task_id() != -1:
            return previous  # what backward runs is no forward
        watched = WatchedFrame(self._stack, function, frame, previous, self.fail, self._spectator)
        return previous if function.is_lambda else watched.trace

    def _decide(self, code: CodeType) -> Function | None:
        """What is known of a function of user code, None for any other."""
        generated = code.co_filename.startswith("<") and code.co_name.startswith("__")  # a dataclass's methods
        watched = code.co_name not in _ANONYMOUS_SCOPES and not generated and self._is_watched(code.co_filename)
        self._codes.append(code)
        function = self._functions[id(code)] = (
            describe_function(code, self._read(code.co_filename)) if watched else None
        )
        return function
