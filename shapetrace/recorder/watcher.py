"""A trace function that follows user code, and stays out of the way of everything else."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from sys import gettrace, settrace
from threading import get_ident
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
        self._previous = gettrace()
        settrace(self._see_call)

    def restore(self) -> None:
        """Put the previous trace function back; one that a debugger has set meanwhile is left alone."""
        current: object = gettrace()
        if current == self._see_call:  # equal, not the same: a bound method is another each time
            settrace(self._previous)

    def stop(self) -> None:
        """The same for good, with a warning where something of ours went wrong."""
        self.restore()
        failure, self._failure = self._failure, None
        if failure is not None:
            warnings.warn(f"shapetrace lost sight of some tensors, by a bug of its own: {failure!r}", stacklevel=4)

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
            if gettrace() is self._previous:  # coverage's tracer sets itself whenever it is called
                settrace(self._see_call)
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


class Unwatched:
    """A hook of the recorded thread, in which nothing is watched; of its mistakes none gets into the forward.

    The recorder's own functions are many, and each would be asked whether it is user code.
    A copy of the module does not have the hook: one that is copied or pickled does nothing.
    """

    __slots__ = ("_function", "_thread", "_watcher")

    def __init__(self, watcher: FrameWatcher, function: Callable[..., None]):
        self._watcher = watcher
        self._function = function
        self._thread = get_ident()

    def __call__(self, *args: Any) -> None:
        if get_ident() != self._thread or _current_graph_task_id() != -1:
            return  # what backward runs is a forward that was told already, which activation checkpointing repeats
        watcher, current = self._watcher, gettrace()
        is_set = getattr(current, "__self__", None) is watcher
        if is_set:
            settrace(watcher._previous)
        try:
            self._function(*args)
        except Exception as error:
            watcher.fail(error)
        finally:
            if is_set or current is None:  # a debugger that was started inside has been left again
                settrace(watcher._see_call)

    def __deepcopy__(self, memo: Any) -> Callable[..., None]:
        return _do_nothing

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        return _make_idle, ()


def _do_nothing(*args: Any) -> None:
    """What is left of a hook elsewhere."""


def _make_idle() -> Callable[..., None]:
    return _do_nothing
