"""A claim: one axis list in a source file, and which tensors it is about."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from shapetrace.axes.axis import Axis
from shapetrace.axes.lists import AxisList
from shapetrace.recorder.access import Place

FunctionKey = tuple[str, int]  # the name and the first line of a code object


@dataclass(frozen=True, slots=True)
class About:
    """What a claim is about: of `places` and `nodes` each or one; of `lenient` one will do as well."""

    places: tuple[Place, ...] = ()  # as they are when the statement is over
    nodes: tuple[ast.expr, ...] = ()  # as they are before it runs
    lenient: tuple[ast.expr, ...] = ()
    roots: tuple[ast.expr, ...] = ()  # the first of these that is a tensor is what the statement starts from
    is_returned: bool = False
    item: int | None = None  # of the returned tuple
    each: bool = False
    fallback: tuple[Place, ...] = ()  # where none of the places is a tensor


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """One axis list of a comment, a docstring, an annotation or a pattern."""

    file: str
    line: int
    column: int  # of the list in its row; -1 where it goes over several
    kind: str  # comment, docstring, annotation, pattern
    said: AxisList
    about: About = About()
    others: tuple[Claim, ...] = ()  # of the same comment: where one of these is true, this one is
    partners: tuple[AxisList, ...] = ()  # on the other side of its arrow

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for axis in self.said.axes for name in axis.names))


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a function binds a name: `B, T, C = x.size()`."""

    name: str
    line: int
    text: str  # of what is bound to it
    origin: str  # shape, argument, loop, other


@dataclass(slots=True)
class ClaimedFile:
    """Every claim of a file, by the moment at which it can be judged."""

    path: str
    claims: list[Claim] = field(default_factory=list)
    at_statement: dict[int, list[Claim]] = field(default_factory=dict)  # by its first line
    in_paragraph: dict[int, list[Claim]] = field(default_factory=dict)  # claims that a later statement may fulfil
    at_entry: dict[FunctionKey, list[tuple[str, Claim]]] = field(default_factory=dict)
    at_return: dict[FunctionKey, list[Claim]] = field(default_factory=dict)
    of_attribute: list[tuple[int, int, str, Claim]] = field(default_factory=list)  # first, last line of the class, name
    patterns: dict[int, tuple[Axis, ...]] = field(default_factory=dict)  # what an einops call says of its result
    bindings: dict[FunctionKey, list[Binding]] = field(default_factory=dict)
    spoken: dict[FunctionKey, frozenset[str]] = field(default_factory=dict)  # the words of its code, or of its class's
    names: frozenset[str] = frozenset()  # every symbol of every claim
    globals: dict[str, int] = field(default_factory=dict)  # lines on which the file itself binds names

    def is_bound_once(self, function: FunctionKey, name: str) -> bool:
        """Whether the name means the same throughout the function."""
        return sum(each.name == name for each in self.bindings.get(function, ())) == 1

    def binding_of(self, function: FunctionKey, name: str, line: int) -> Binding | None:
        """The last binding of the name above the line, or else the first."""
        every = [each for each in self.bindings.get(function, ()) if each.name == name]
        above = [each for each in every if each.line < line]
        return next(iter(above[-1:] or every[:1]), None)
