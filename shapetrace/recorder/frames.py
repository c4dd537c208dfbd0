"""Watch the frames of user code, and tell each tensor that a name is bound to.

Python calls a trace function before each line runs, so what has changed belongs to the line before; on return one looks
once more. A name is fresh when it holds another object than before, and changed in place when it holds the same object
with a higher version. An assignment that binds the very object its name already had is told when it is over.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from torch import Tensor

from shapetrace.recorder.calls import NO_STATEMENT, CallStack
from shapetrace.recorder.leaves import holds_many, walk_leaves
from shapetrace.recorder.source import Source, Statement, read_source
from shapetrace.recorder.tensors import Identity, identity_of

TraceFunction = Callable[[FrameType, str, Any], Any]

_ANONYMOUS_SCOPES = ("<module>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")


class FrameWatcher:
    """A trace function that writes into a CallStack; the one that was there before goes on seeing every event."""

    def __init__(self, stack: CallStack, is_watched: Callable[[str], bool]):
        self._stack = stack
        self._is_watched = is_watched
        # Decided once for each code object; by its id, for to hash a code object is to hash all that is in it.
        self._sources: dict[int, tuple[CodeType, Source | None]] = {}
        self._previous: Any = None

    def start(self) -> None:
        self._previous = sys.gettrace()
        sys.settrace(self)

    def stop(self) -> None:
        """Put the previous trace function back; one that a debugger has set meanwhile is left alone."""
        current: object = sys.gettrace()
        if current is self:
            sys.settrace(self._previous)

    def pause(self) -> bool:
        """Watch nothing until `resume`, which is due where this returns True.

        The recorder's own functions are many, and each would be asked whether it is user code.
        """
        current: object = sys.gettrace()
        if current is self:
            sys.settrace(self._previous)
        return current is self

    def resume(self) -> None:
        sys.settrace(self)

    def __call__(self, frame: FrameType, event: str, arg: Any) -> TraceFunction | None:
        previous = None
        if self._previous is not None:
            previous = self._previous(frame, event, arg)
            if sys.gettrace() is self._previous:  # coverage's tracer sets itself whenever it is called
                sys.settrace(self)
        if not self._stack.under_way:
            return previous
        code = frame.f_code
        known = self._sources.get(id(code))
        if known is None:
            known = self._sources[id(code)] = (code, self._source_of(code))
        source = known[1]
        return previous if source is None else WatchedFrame(self._stack, source, frame, previous).trace

    def _source_of(self, code: CodeType) -> Source | None:
        """The source of a function of user code, None for any other."""
        generated = code.co_filename.startswith("<") and code.co_name.startswith("__")  # a dataclass's methods
        watched = code.co_name not in _ANONYMOUS_SCOPES and not generated and self._is_watched(code.co_filename)
        return read_source(code.co_filename) if watched else None


class WatchedFrame:
    """One run of one function."""

    __slots__ = ("_file", "_interrupted", "_line", "_previous", "_seen", "_source", "_stack", "_statement")

    def __init__(self, stack: CallStack, source: Source, frame: FrameType, previous: TraceFunction | None):
        self._stack = stack
        self._source = source
        self._previous = previous
        self._file = os.path.basename(frame.f_code.co_filename)
        self._line = 0  # the line that is running
        self._statement = NO_STATEMENT  # and the statement it belongs to
        self._interrupted = False  # whether the running statement raised
        self._seen: dict[str, Identity] = {}
        self._look_at_arguments(frame)

    def trace(self, frame: FrameType, event: str, arg: Any) -> TraceFunction:
        if self._previous is not None:
            self._previous = self._previous(frame, event, arg)
        if event == "exception":
            self._interrupted = True
        elif not self._stack.under_way:
            pass
        elif event == "return":
            self._look(frame)
            self._stack.note_return(self._source.statements.get(frame.f_lineno, NO_STATEMENT))
        elif event == "line":
            running, line = self._statement, frame.f_lineno
            # A statement on many lines goes back and forth between them before it is over.
            if running.first == running.last or not running.first <= line <= running.last:
                self._look(frame)
                self._line = line
                self._statement = self._source.statements.get(line, NO_STATEMENT)
        return self.trace

    def _look_at_arguments(self, frame: FrameType) -> None:
        """A helper's argument that has no name yet in this call gets the helper's name for it."""
        code = frame.f_code
        flags = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)  # *args and **kwargs
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + flags]
        described = self._source.arguments_of(code)
        for name, tensor in _tensors_in(frame.f_locals):
            self._seen[name] = identity_of(tensor)
            base = _base(name)
            if base in arguments:
                statement = described.get(base, NO_STATEMENT)
                self._stack.bind_if_unnamed(name, tensor, statement, self._place(statement))

    def _look(self, frame: FrameType) -> None:
        """Tell what the statement that is over has bound."""
        statement = self._statement
        before, self._seen = self._seen, {}
        fresh = []
        for name, tensor in _tensors_in(frame.f_locals):
            identity = self._seen[name] = identity_of(tensor)
            known = before.get(name)
            if known != identity:
                fresh.append((name, tensor, known is not None and known[0] == identity[0]))
        if len(fresh) > 1 and statement.targets:
            order = {target: index for index, target in enumerate(statement.targets)}
            fresh.sort(key=lambda each: order.get(_base(each[0]), len(order)))
        for name, tensor, in_place in fresh:
            self._bind(name, tensor, statement, in_place)
        if statement.assigns and not self._interrupted:
            names = [name for name, _, _ in fresh]
            left = [target for target in statement.targets if target not in names]
            if left:
                self._look_at_targets(frame, statement, left)
        self._interrupted = False

    def _look_at_targets(self, frame: FrameType, statement: Statement, targets: list[str]) -> None:
        """Targets of a finished assignment that showed no change: attributes, items, and names bound to the same."""
        for target in targets:
            value = _look_up(target, frame)
            if isinstance(value, Tensor) or not target.isidentifier():
                for name, tensor in walk_leaves(target, value):
                    self._bind(name, tensor, statement, in_place=False)

    def _bind(self, name: str, tensor: Tensor, statement: Statement, in_place: bool) -> None:
        if name.endswith("]") or ("." in name and name not in statement.targets):  # an item of a container
            self._stack.bind_if_unnamed(name, tensor, statement, self._place(statement))
        else:
            self._stack.bind(name, tensor, "local", statement, self._place(statement), in_place)

    def _place(self, statement: Statement) -> str:
        line = statement.first or self._line
        return f"{self._file}:{line}" if line else self._file


def _tensors_in(local: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for name, value in local.items():
        if isinstance(value, Tensor):
            yield name, value
        elif holds_many(value):
            yield from walk_leaves(name, value)


def _base(name: str) -> str:
    """`outs.0` -> `outs`."""
    return name.partition(".")[0]


def _look_up(target: str, frame: FrameType) -> Any:
    """The value of `x`, `self.cached`, `self.cache["k"]` or `out[i]` in the frame; None where it has none."""
    import ast

    def value_of(node: ast.expr) -> Any:
        if isinstance(node, ast.Attribute):
            return getattr(value_of(node.value), node.attr)
        if isinstance(node, ast.Subscript):
            base = value_of(node.value)
            # An item of a tensor is a view that no one named; the tensor itself shows as changed in place.
            return None if isinstance(base, Tensor) else base[value_of(node.slice)]
        if isinstance(node, ast.Constant):
            return node.value
        assert isinstance(node, ast.Name)
        return frame.f_locals[node.id]

    try:
        return value_of(ast.parse(target, mode="eval").body)
    except (AttributeError, IndexError, KeyError, TypeError):
        return None
