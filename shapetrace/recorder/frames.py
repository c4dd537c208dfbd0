"""Follow one run of a function of user code, and tell each tensor that a name is bound to.

Python calls a trace function before each line runs, so what has changed belongs to the line before; on return one looks
once more. A name is fresh when it holds another object than before, and changed in place when it holds the same object
with a higher version. An assignment that binds the very object its target already had is told when it is over.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from shapetrace.recorder.access import Place, look_up
from shapetrace.recorder.calls import CallStack
from shapetrace.recorder.leaves import OBJECTS, kind_of, walk_tensors
from shapetrace.recorder.source import NO_STATEMENT, Source, Statement, absolute
from shapetrace.recorder.tensors import UNCOUNTED, Identity, identity_of

TraceFunction = Callable[[FrameType, str, Any], Any]

_NOTHING: dict[str, Identity] = {}
_RESUMES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_NO_NAMES: frozenset[str] = frozenset()


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


class Function(NamedTuple):
    """What is decided once for each code object."""

    code: CodeType
    file: str  # absolute: a later recording may begin in another folder
    statements: dict[int, Statement]  # by line
    arguments: dict[str, Statement]  # by name, what the signature says of each
    is_lambda: bool
    yields: tuple[int, ...]  # where a generator or a coroutine is left and entered again; of any other nowhere


def describe_function(code: CodeType, source: Source) -> Function:
    """What the source says of the function."""
    flags = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + flags]
    described = source.arguments_of(code)
    return Function(
        code,
        absolute(code.co_filename),
        source.statements,
        {name: described.get(name, NO_STATEMENT) for name in arguments},
        code.co_name == "<lambda>",
        _yields_of(code) if code.co_flags & _RESUMES else (),
    )


def _yields_of(code: CodeType) -> tuple[int, ...]:
    # What Python is at when it leaves: the instruction itself, and from 3.13 on the one behind it.
    yields = [each.offset for each in dis.get_instructions(code) if each.opname == "YIELD_VALUE"]
    return tuple(place for offset in yields for place in (offset, offset + 2))


class WatchedFrame:
    """One run of one function; of a generator, from where it is entered to where it is left."""

    __slots__ = (
        *("_begun", "_fail", "_first", "_function", "_inside", "_interrupted", "_last", "_line", "_places"),
        *("_previous", "_seen", "_spectator", "_stack", "_statement", "_statements"),
    )

    def __init__(
        self,
        stack: CallStack,
        function: Function,
        frame: FrameType,
        previous: TraceFunction | None,
        fail: Callable[[Exception], None],
        spectator: Spectator | None = None,
    ):
        self._stack = stack
        self._function = function
        self._statements = function.statements
        self._previous = previous
        self._fail = fail
        self._spectator = spectator
        self._line = function.code.co_firstlineno  # the line that is running
        self._statement = NO_STATEMENT  # and the statement it belongs to
        self._first, self._last = 1, 0  # its lines, where they are several
        self._interrupted = False  # whether that raised
        self._begun = False  # whether anything ran at all
        self._seen: dict[str, Identity] = {}  # the tensors in the local names, before it
        self._inside: dict[str, dict[str, Identity]] = {}  # in each object, when a statement last spoke of it
        self._places = _NOTHING  # and in the other places that it binds or changes
        if function.yields and frame.f_lasti >= function.yields[0]:  # it goes on in the midst of a statement
            self._begun = True
            self._go_to(frame.f_lineno)
        try:
            if self._statement.has_places:
                self._places = self._identities_of_places(frame.f_locals)
            self._look_at_arguments(frame.f_locals)
            if spectator is not None:
                spectator.enter(frame, self._owners)
        except Exception as error:
            fail(error)

    def trace(self, frame: FrameType, event: str, arg: Any) -> None:
        """A trace function that returns None stays in place; so, here, does the one that was there before."""
        if self._previous is not None:
            self._previous = self._previous(frame, event, arg) or self._previous
        line = frame.f_lineno
        if self._first <= line <= self._last and event == "line":
            return  # a statement on many lines goes back and forth between them before it is over
        if event == "exception":
            self._interrupted = True
        elif event != "opcode" and self._stack.under_way:  # which a debugger asks for, in the midst of a line
            try:
                self._follow(frame, event, arg, line)
            except Exception as error:
                self._fail(error)

    def _follow(self, frame: FrameType, event: str, arg: Any, line: int) -> None:
        """The statement that was running is over, and perhaps the next begins."""
        if event == "return" and frame.f_lasti in self._function.yields:
            self._interrupted = True  # what is to be bound is not there before it goes on
        here, raised = frame.f_locals, self._interrupted
        if self._begun:
            self._look(here)
        self._begun = True
        statement = self._statements.get(line, NO_STATEMENT)
        if self._spectator is not None:
            self._let_watch(self._spectator, frame, event, arg, raised, statement)
        if event == "return":
            self._stack.note_return(frame.f_code, statement)
            return
        self._go_to(line)
        self._places = self._identities_of_places(here) if statement.has_places else _NOTHING

    def _go_to(self, line: int) -> None:
        statement = self._statements.get(line, NO_STATEMENT)
        self._line, self._statement = line, statement
        self._first, self._last = (statement.first, statement.last) if statement.is_long else (1, 0)

    def _let_watch(
        self, spectator: Spectator, frame: FrameType, event: str, arg: Any, raised: bool, statement: Statement
    ) -> None:
        if not raised:
            spectator.over(frame, self._statement, self._owners)
        if event == "return":
            spectator.leave(frame, statement, arg, self._owners)
        else:
            spectator.begin(frame, statement)

    @property
    def _owners(self) -> list[nn.Module]:
        return [module for module, _ in reversed(self._stack.callers())]

    def _look_at_arguments(self, here: dict[str, Any]) -> None:
        """A helper's argument that has no name yet in this call gets the helper's name for it."""
        for local, value in here.items():
            kind = kind_of(type(value))
            if kind == "tensor":
                self._seen[local] = identity_of(value)
                if local in self._function.arguments and not self._begun:
                    self._bind(local, value, self._function.arguments[local], if_unnamed=True)
            elif kind:
                seen = self._inside.setdefault(local, {}) if kind in OBJECTS else self._seen
                for name, tensor, shared in walk_tensors(local, value):
                    seen[name] = identity_of(tensor)
                    if local in self._function.arguments and not (shared or self._begun):
                        self._bind(name, tensor, self._function.arguments[local], if_unnamed=True)

    def _look(self, here: dict[str, Any]) -> None:
        """Tell what the statement that is over has bound and changed."""
        statement, before = self._statement, self._seen
        seen = self._seen = {}
        fresh: list[Change] = []
        for local, value in here.items():
            cls = type(value)
            if cls is Tensor or (kind := kind_of(cls)) == "tensor":
                try:
                    identity = id(value), value._version
                except RuntimeError:  # as in identity_of, which it would take as long again to call
                    identity = id(value), UNCOUNTED
                seen[local] = identity
                known = before.get(local)
                if known != identity:
                    fresh.append(Change(local, local, value, known is not None and known[0] == identity[0]))
            elif not kind:
                continue
            elif kind not in OBJECTS:
                fresh += _changes(local, value, before, seen)
            elif local in statement.mentions:
                inside: dict[str, Identity] = {}
                fresh += _changes(local, value, self._inside.get(local, _NOTHING), inside)
                self._inside[local] = inside
        interrupted, self._interrupted = self._interrupted, False
        if len(fresh) == 1 and fresh[0].name == statement.binds and not interrupted:  # as most are
            self._bind(statement.binds, fresh[0].tensor, statement, fresh[0].in_place)
            return
        told = self._tell(fresh) if fresh else _NO_NAMES
        targets = statement.targets if statement.assigns and not interrupted else ()
        if targets or statement.changes:
            self._look_at_places(targets, here, {change.local for change in fresh}, told)

    def _tell(self, fresh: list[Change]) -> set[str]:
        """Names in the order in which the statement binds them; of several names for a changed tensor the first.

        Returns those that have got a record.
        """
        told = set()
        order = self._statement.order
        if len(fresh) > 1:
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
                from_inside = local not in order and local in self._function.code.co_cellvars
                if self._bind(name, tensor, self._statement, if_unnamed=name != local or from_inside):
                    told.add(name)
        return told

    def _look_at_places(
        self, targets: tuple[Place, ...], here: dict[str, Any], fresh: set[str], told: set[str] | frozenset[str]
    ) -> None:
        """Attributes and items that were bound or changed, and names that were bound to the object they had."""
        statement = self._statement
        for place in targets:
            if place.text in (fresh if place.is_name else told):
                continue
            value = look_up(place, here)
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
            value = look_up(place, here)
            if isinstance(value, Tensor) and place.root not in fresh:
                identity, known = identity_of(value), self._places.get(place.text)
                if known is not None and known[0] == identity[0] and (known != identity or known[1] == UNCOUNTED):
                    self._bind(place.text, value, statement, in_place=True)

    def _identities_of_places(self, here: dict[str, Any]) -> dict[str, Identity]:
        """What is where the statement that begins will bind or change something, apart from plain local names."""
        statement = self._statement
        found = {place.text: look_up(place, here) for place in (*statement.targets, *statement.changes)}
        return {text: identity_of(value) for text, value in found.items() if isinstance(value, Tensor)}

    def _bind(
        self, name: str, tensor: Tensor, statement: Statement, in_place: bool = False, if_unnamed: bool = False
    ) -> bool:
        """Whether the tensor has got a record."""
        if if_unnamed and self._stack.under_way[-1].has_named(tensor):
            return False
        file, line = self._function.file, statement.first or self._line
        self._stack.bind(name, tensor, "local", statement, file, line, in_place)
        return True


def _changes(local: str, value: Any, before: dict[str, Identity], now: dict[str, Identity]) -> Iterator[Change]:
    """What is in a container that was not there before, or has other contents; `now` takes down what is there."""
    for name, tensor, shared in walk_tensors(local, value):
        identity = now[name] = identity_of(tensor)
        known = before.get(name)
        if known != identity:
            yield Change(local, name, tensor, known is not None and known[0] == identity[0], shared)
