"""Where a class first binds an attribute, and what its source says there."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import unwrap
from types import CodeType, FunctionType
from weakref import WeakKeyDictionary

from shapetrace.recorder.source import Statement, read_source

# By class, weakly: a class is forgotten with whatever made it.
_NAMES: WeakKeyDictionary[type, frozenset[str]] = WeakKeyDictionary()
_ATTRIBUTES: WeakKeyDictionary[type, dict[str, Statement]] = WeakKeyDictionary()


def statement_of_attribute(cls: type, name: str) -> Statement | None:
    """Where `self.name` is first bound, in the source of the class or else of those it inherits from."""
    for each in cls.__mro__:
        # A base class may be a file of thousands of lines: it is read only if it has the name.
        if each.__module__.partition(".")[0] not in ("torch", "builtins") and name in _names_in(each):
            statement = _own_attributes(each).get(name)
            if statement is not None:
                return statement
    return None


def _names_in(cls: type) -> frozenset[str]:
    """The names and strings in the functions of the class."""
    if cls not in _NAMES:
        _NAMES[cls] = frozenset(name for code in _codes_of(cls) for name in _names_in_code(code))
    return _NAMES[cls]


def _names_in_code(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, str):
            yield each
        elif isinstance(each, CodeType):
            yield from _names_in_code(each)


def _own_attributes(cls: type) -> dict[str, Statement]:
    if cls not in _ATTRIBUTES:
        # A class does not know its line, but its functions do, and names alone would mix up local classes.
        around = (read_source(code.co_filename).class_around(code.co_firstlineno) for code in _codes_of(cls))
        _ATTRIBUTES[cls] = next((attributes for attributes in around if attributes), {})
    return _ATTRIBUTES[cls]


def _codes_of(cls: type) -> list[CodeType]:
    """The code of its functions, underneath their decorators."""
    functions = [unwrap(each) for each in vars(cls).values() if isinstance(each, FunctionType)]
    return [each.__code__ for each in functions if isinstance(each, FunctionType)]
