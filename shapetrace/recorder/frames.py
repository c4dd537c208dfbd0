"""Watch the frames of user code, and tell each tensor that a name is bound to.

Python calls a trace function before each line runs, so what has changed belongs to the line before; on return one looks
once more. A name is fresh when it holds another object than before, and changed in place when it holds the same object
with a higher version. An assignment that binds the very object its target already had is told when it is over.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn
from torch._C import _current_graph_task_id

from shapetrace.recorder.access import look_up
from shapetrace.recorder.calls import CallStack
from shapetrace.recorder.leaves import OBJECTS, kind_of, walk_tensors
from shapetrace.recorder.source import NO_STATEMENT, Source, Statement, read_source
from shapetrace.recorder.tensors import UNCOUNTED, Identity, identity_of

TraceFunction = Callable[[FrameType, str, Any], Any]

_NOTHING: dict[str, Identity] = {}
_ANONYMOUS_SCOPES = ("<module>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")


class Change(NamedTuple):
    """A tensor that was not at its place before, or has other contents."""

    local: str
    name: str  # the path to it, from the local name
    tensor: Tensor
    in_place: bool
    shared: bool = False  # inside an object, which is handed on and changed


class Spectator(Protocol):
    """Is told of every frame and statement of user code, beside the recorder; owners: modules, innermost first."""

    def enter(self, frame: FrameType, owners: list[nn.Module]) -> None: ...

    def begin(self, frame: FrameType, statement: Statement) -> None: ...

    def over(self, frame: FrameType, statement: Statement, owners: list[nn.Module]) -> None: ...

    def leave(self, frame: FrameType, statement: Statement, value: Any, owners: list[nn.Module]) -> None: ...


class FrameWatcher:
    """A trace function that writes into a CallStack; the one that was there before goes on seeing every event."""

    def __init__(self, stack: CallStack, is_watched: Callable[[str], bool], spectator: Spectator | None = None):
        self._stack = stack
        self._is_watched = is_watched
        self._spectator = spectator
        # Decided once for each code object; by its id, for to hash a code object is to hash all that is in it.
        self._sources: dict[int, tuple[CodeType, Source | None]] = {}
        self._previous: Any = None
        self._failure: Exception | None = None

    def start(self) -> None:
        self._previous = sys.gettrace()
        sys.settrace(self)

    def stop(self) -> None:
        """Put the previous trace function back; one that a debugger has set meanwhile is left alone."""
        current: object = sys.gettrace()
        if current is self:
            sys.settrace(self._previous)
        failure, self._failure = self._failure, None
        if failure is not None:
            warnings.warn(f"shapetrace lost sight of some tensors, by a bug of its own: {failure!r}", stacklevel=4)

    def pause(self) -> bool:
        """Watch nothing until `resume`, which is due where this returns True.

        The recorder's own functions are many, and each would be asked whether it is user code.
        """
        current: object = sys.gettrace()
        if current is self:
            sys.settrace(self._previous)
        return current is self or current is None  # None: a debugger that was started inside has been left again

    def resume(self) -> None:
        sys.settrace(self)

    def fail(self, error: Exception) -> None:
        """Note a mistake of ours, which must never reach the user's code."""
        if not isinstance(error, RecursionError):  # which is the user's: we only were the ones to touch the ground
            self._failure = self._failure or error

    def __call__(self, frame: FrameType, event: str, arg: Any) -> TraceFunction | None:
        code = frame.f_code
        known = self._sources.get(id(code))
        if known is not None and known[1] is None and self._previous is None:
            return None  # nine calls of ten are calls of library code: they have to cost next to nothing
        previous = None
        if self._previous is not None:
            previous = self._previous(frame, event, arg)
            if sys.gettrace() is self._previous:  # coverage's tracer sets itself whenever it is called
                sys.settrace(self)
        if not self._stack.under_way:
            return previous
        if known is None:
            known = self._sources[id(code)] = (code, self._source_of(code))
        source = known[1]
        if source is None or _current_graph_task_id() != -1:  # what backward runs is no forward
            return previous
        watched = WatchedFrame(self._stack, source, frame, previous, self.fail, self._spectator)
        return previous if code.co_name == "<lambda>" else watched.trace

    def _source_of(self, code: CodeType) -> Source | None:
        """The source of a function of user code, None for any other."""
        generated = code.co_filename.startswith("<") and code.co_name.startswith("__")  # a dataclass's methods
        watched = code.co_name not in _ANONYMOUS_SCOPES and not generated and self._is_watched(code.co_filename)
        return read_source(code.co_filename) if watched else None


class WatchedFrame:
    """One run of one function."""

    __slots__ = (
        *(
            "_fail",
            "_file",
            "_inside",
            "_interrupted",
            "_line",
            "_places",
            "_previous",
            "_seen",
            "_source",
            "_spectator",
        ),
        *("_stack", "_statement"),
    )

    def __init__(
        self,
        stack: CallStack,
        source: Source,
        frame: FrameType,
        previous: TraceFunction | None,
        fail: Callable[[Exception], None],
        spectator: Spectator | None = None,
    ):
        self._stack = stack
        self._spectator = spectator
        self._source = source
        self._previous = previous
        self._fail = fail
        self._file = frame.f_code.co_filename
        self._line = frame.f_code.co_firstlineno  # the line that is running
        self._statement = NO_STATEMENT  # and the statement it belongs to
        self._interrupted = False  # whether that raised
        self._seen: dict[str, Identity] = {}  # the tensors in the local names, before it
        self._inside: dict[str, dict[str, Identity]] = {}  # in each object, when a statement last spoke of it
        self._places: dict[str, Identity] = {}  # and in the other places that it binds or changes
        try:
            self._look_at_arguments(frame)
            if spectator is not None:
                spectator.enter(frame, self._owners)
        except Exception as error:
            fail(error)

    def trace(self, frame: FrameType, event: str, arg: Any) -> None:
        """A trace function that returns None stays in place; so, here, does the one that was there before."""
        if self._previous is not None:
            self._previous = self._previous(frame, event, arg) or self._previous
        running = self._statement
        if event == "line" and running.first < running.last and running.first <= frame.f_lineno <= running.last:
            return  # a statement on many lines goes back and forth between them before it is over
        try:
            self._follow(frame, event, arg)
        except Exception as error:
            self._fail(error)

    def _follow(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "exception":
            self._interrupted = True
        elif not self._stack.under_way:
            pass
        elif event == "return":
            raised = self._interrupted
            self._look(frame)
            if self._spectator is not None:
                statement = self._source.statement_at(frame.f_lineno)
                if not raised:
                    self._spectator.over(frame, self._statement, self._owners)
                self._spectator.leave(frame, statement, arg, self._owners)
            self._stack.note_return(frame.f_code, self._source.statement_at(frame.f_lineno))
        elif event == "line":
            raised = self._interrupted
            self._look(frame)
            if self._spectator is not None and not raised:
                self._spectator.over(frame, self._statement, self._owners)
            self._line = frame.f_lineno
            self._statement = self._source.statement_at(self._line)
            self._places = self._identities_of_places(frame)
            if self._spectator is not None:
                self._spectator.begin(frame, self._statement)

    @property
    def _owners(self) -> list[nn.Module]:
        return [module for module, _ in reversed(self._stack.callers)]

    def _look_at_arguments(self, frame: FrameType) -> None:
        """A helper's argument that has no name yet in this call gets the helper's name for it."""
        code = frame.f_code
        flags = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)  # *args and **kwargs
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + flags]
        described = self._source.arguments_of(code)
        for local, value in frame.f_locals.items():
            kind = kind_of(type(value))
            if not kind:
                continue
            seen = self._inside.setdefault(local, {}) if kind in OBJECTS else self._seen
            for name, tensor, shared in walk_tensors(local, value):
                seen[name] = identity_of(tensor)
                if local in arguments and not shared:
                    self._bind(name, tensor, described.get(local, NO_STATEMENT), if_unnamed=True)

    def _look(self, frame: FrameType) -> None:
        """Tell what the statement that is over has bound and changed."""
        statement, before, seen = self._statement, self._seen, {}
        fresh: list[Change] = []
        for local, value in frame.f_locals.items():
            kind = kind_of(type(value))
            if kind == "tensor":
                identity = seen[local] = identity_of(value)
                known = before.get(local)
                if known != identity:
                    fresh.append(Change(local, local, value, known is not None and known[0] == identity[0]))
            elif kind in OBJECTS:
                if local in statement.mentions:
                    inside: dict[str, Identity] = {}
                    fresh += _changes(local, value, self._inside.get(local, _NOTHING), inside)
                    self._inside[local] = inside
            elif kind:
                fresh += _changes(local, value, before, seen)
        self._seen = seen
        told = self._tell(frame, fresh) if fresh else set()
        if (statement.assigns and not self._interrupted) or statement.changes:
            self._look_at_places(frame, {change.local for change in fresh}, told)
        self._interrupted = False

    def _tell(self, frame: FrameType, fresh: list[Change]) -> set[str]:
        """Names in the order in which the statement binds them; of several names for a changed tensor the first.

        Returns those that have got a record.
        """
        told = set()
        order = {place.root: index for index, place in enumerate(self._statement.targets)}
        fresh.sort(key=lambda each: order.get(each.local, len(order)))
        changed: set[int] = set()
        for local, name, tensor, in_place, shared in fresh:
            if shared and self._stack.knows(tensor):
                continue
            if in_place:
                if id(tensor) not in changed and self._bind(name, tensor, self._statement, in_place=True):
                    told.add(name)
                changed.add(id(tensor))
            else:
                # An item is told where it has no other name; a variable of this function that an inner one has bound,
                # where that has not told it.
                from_inside = local not in order and local in frame.f_code.co_cellvars
                if self._bind(name, tensor, self._statement, if_unnamed=name != local or from_inside):
                    told.add(name)
        return told

    def _look_at_places(self, frame: FrameType, fresh: set[str], told: set[str]) -> None:
        """Attributes and items that were bound or changed, and names that were bound to the object they had."""
        statement = self._statement
        for place in statement.targets if statement.assigns and not self._interrupted else ():
            if place.text in (fresh if place.is_name else told):
                continue
            value = look_up(place, frame.f_locals)
            if isinstance(value, Tensor):
                same = self._places.get(place.text, (0, 0))[0] == id(value)
                in_place = statement.augments and (same or place.is_name)
                is_item = not place.is_name and place.steps[-1][0] != "attribute"
                if not (is_item and place.root in fresh):
                    self._bind(place.text, value, statement, in_place, if_unnamed=is_item and not in_place)
            elif not place.is_name:
                for name, tensor, shared in walk_tensors(place.text, value):
                    if not (shared and self._stack.knows(tensor)):
                        self._bind(name, tensor, statement, if_unnamed=True)
        for place in statement.changes:
            value = look_up(place, frame.f_locals)
            if isinstance(value, Tensor) and place.root not in fresh:
                identity, known = identity_of(value), self._places.get(place.text)
                if known is not None and known[0] == identity[0] and (known != identity or known[1] == UNCOUNTED):
                    self._bind(place.text, value, statement, in_place=True)

    def _identities_of_places(self, frame: FrameType) -> dict[str, Identity]:
        """What is where the statement that begins will bind or change something, apart from plain local names."""
        statement = self._statement
        if not statement.has_places:
            return _NOTHING
        found = {place.text: look_up(place, frame.f_locals) for place in (*statement.targets, *statement.changes)}
        return {text: identity_of(value) for text, value in found.items() if isinstance(value, Tensor)}

    def _bind(
        self, name: str, tensor: Tensor, statement: Statement, in_place: bool = False, if_unnamed: bool = False
    ) -> bool:
        """Whether the tensor has got a record."""
        if if_unnamed and self._stack.under_way[-1].has_named(tensor):
            return False
        self._stack.bind(name, tensor, "local", statement, self._file, statement.first or self._line, in_place)
        return True


def _changes(local: str, value: Any, before: dict[str, Identity], now: dict[str, Identity]) -> Iterator[Change]:
    """What is in a container that was not there before, or has other contents; `now` takes down what is there."""
    for name, tensor, shared in walk_tensors(local, value):
        identity = now[name] = identity_of(tensor)
        known = before.get(name)
        if known != identity:
            yield Change(local, name, tensor, known is not None and known[0] == identity[0], shared)
