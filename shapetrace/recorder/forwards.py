"""What a module's forward calls its arguments, and what its source says of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from shapetrace.recorder.source import Source, Statement, absolute, locate

_MOST_DECORATORS = 8


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward, underneath its decorators."""

    code: CodeType | None  # None where it is written in C
    positional: tuple[str, ...]
    rest: str  # the name of `*rest`
    arguments: dict[str, Statement]
    file: str = ""  # of user code, "" for a library's
    source: str = ""  # full path and line

    def name_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[tuple[str, Any]]:
        """Each input under the name that the forward has for it."""
        if not kwargs and len(args) <= len(self.positional):  # as most are
            return zip(self.positional, args)  # noqa: B905 (each call of which has its price)
        beyond = tuple(f"{self.rest}.{index}" for index in range(len(args) - len(self.positional)))
        return [*zip(self.positional + beyond, args, strict=False), *kwargs.items()]


# By function, weakly, and with the code that they are of: an editor's reload gives a function another.
_NAMES: WeakKeyDictionary[FunctionType, tuple[CodeType | None, tuple[tuple[str, ...], str]]] = WeakKeyDictionary()


def code_of(forward: Any) -> CodeType | None:
    """The code object underneath the decorators."""
    function = look_through(forward)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if isinstance(code, CodeType) else None


def look_through(forward: Any) -> Any:
    """The function underneath the decorators, also those that do not say what they wrap.

    A decorator without functools.wraps leaves a function that takes `*args` and has the wrapped one in its closure,
    which is taken for it where it is the only function there, or the only one called forward.
    """
    for _ in range(_MOST_DECORATORS):
        forward = inspect.unwrap(forward)
        function = getattr(forward, "__func__", forward)
        code = getattr(function, "__code__", None)
        if not isinstance(code, CodeType) or not code.co_flags & inspect.CO_VARARGS:
            break
        around = [each.cell_contents for each in function.__closure__ or () if _is_filled(each)]
        inside = [each for each in around if inspect.isfunction(each) or inspect.ismethod(each)]
        named = [each for each in inside if each.__name__ == "forward"]
        found = inside if len(inside) == 1 else named
        if len(found) != 1:
            break
        forward = found[0]
    return forward


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # of a name that is not bound yet
        return False


def describe_forward(module: nn.Module, is_watched: Callable[[str], bool], read: Callable[[str], Source]) -> Forward:
    """The forward of the module; of library code no source is read."""
    code = code_of(module.forward)
    positional, rest = _positional_names(module, code)
    if code is None or not is_watched(code.co_filename):
        return Forward(code, positional, rest, {})
    file = code.co_filename
    described = read(file).arguments_of(code)
    return Forward(code, positional, rest, described, absolute(file), locate(file, code.co_firstlineno))


def _positional_names(module: nn.Module, code: CodeType | None) -> tuple[tuple[str, ...], str]:
    """`forward(self, x, mask=None, *rest)` -> ("x", "mask"), "rest"; code: of the forward."""
    plain = getattr(module.forward, "__func__", None)
    if type(plain) is not FunctionType:
        return _read_names(module.forward)
    known = _NAMES.get(plain)
    if known is None or known[0] is not code:
        known = _NAMES[plain] = code, _read_names(module.forward)
    return known[1]


def _read_names(forward: Any) -> tuple[tuple[str, ...], str]:
    if isinstance(forward, torch.ScriptMethod):
        return tuple(each.name for each in forward.schema.arguments[1:]), "input"
    inside = look_through(forward)
    try:
        parameters = list(inspect.signature(inside).parameters.values())
    except (TypeError, ValueError):  # written in C
        return (), "input"
    names = tuple(each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD))
    if inside is not forward and inspect.isfunction(inside) and names[:1] == ("self",):
        names = names[1:]  # no longer bound, underneath
    rest = [each.name for each in parameters if each.kind is each.VAR_POSITIONAL]
    return names, (rest or ["input"])[0]
