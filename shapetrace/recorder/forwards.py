"""What a module's forward calls its arguments, and what its source says of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from torch import nn

from shapetrace.recorder.source import Statement, locate, read_source


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward, underneath its decorators."""

    code: CodeType | None  # None where it is written in C
    positional: tuple[str, ...]
    rest: str  # the name of `*rest`
    arguments: dict[str, Statement]
    file: str = ""  # of user code, "" for a library's
    source: str = ""  # full path and line

    def name_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
        """Each input under the name that the forward has for it."""
        beyond = tuple(f"{self.rest}.{index}" for index in range(len(args) - len(self.positional)))
        return [*zip(self.positional + beyond, args, strict=False), *kwargs.items()]


def code_of(forward: Any) -> CodeType | None:
    """The code object underneath the decorators."""
    code = getattr(inspect.unwrap(getattr(forward, "__func__", forward)), "__code__", None)
    return code if isinstance(code, CodeType) else None


def describe_forward(module: nn.Module, is_watched: Callable[[str], bool]) -> Forward:
    """The forward of the module; of library code no source is read."""
    code = code_of(module.forward)
    positional, rest = _positional_names(module.forward)
    if code is None or not is_watched(code.co_filename):
        return Forward(code, positional, rest, {})
    file = code.co_filename
    return Forward(
        code, positional, rest, read_source(file).arguments_of(code), file, locate(file, code.co_firstlineno)
    )


def _positional_names(forward: Callable[..., Any]) -> tuple[tuple[str, ...], str]:
    """`forward(self, x, mask=None, *rest)` -> ("x", "mask"), "rest"."""
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):  # written in C
        return (), "input"
    names = tuple(each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD))
    rest = [each.name for each in parameters if each.kind is each.VAR_POSITIONAL]
    return names, (rest or ["input"])[0]
