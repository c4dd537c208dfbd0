"""Parts of a trace by module path: `blocks.0.attn`, `blocks.*.mlp`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from shapetrace.errors import ShapetraceError, suggest
from shapetrace.parameters import is_within
from shapetrace.trace import ModuleCall, Trace, walk_modules


def select_modules(trace: Trace, pattern: str) -> Trace:
    """The trace with the calls of the matching modules as its roots; what stands within a match goes with it.

    Raises ShapetraceError where nothing matches.
    """
    matching = set(match_paths(pattern, [each.module for each in walk_modules(trace)]))
    calls = tuple(found for call in trace.calls for found in _outermost(call, matching))
    inside = tuple(each for each in trace.uncalled if any(is_within(each.module, path) for path in matching))
    return replace(trace, calls=calls, uncalled=inside)


def match_paths(pattern: str, paths: Iterable[str]) -> list[str]:
    """The paths that are the pattern or match it as a glob, else those below it, as a ModuleList itself never runs.

    Raises ShapetraceError where there are none.
    """
    known = list(dict.fromkeys(paths))
    found = [path for path in known if path == pattern or fnmatchcase(path, pattern)]
    found = found or [path for path in known if is_within(path, pattern)]
    if not found:
        raise ShapetraceError(
            f"no module `{pattern}` in this model", suggest(pattern, [path for path in known if path])
        )
    return found


def find_path(path: str, paths: Iterable[str]) -> str:
    """The path itself, where it is one of them; raises ShapetraceError where it is not."""
    known = list(paths)
    if path not in known:
        raise ShapetraceError(f"no module `{path}` in this model", suggest(path, known))
    return path


def outermost(paths: Iterable[str]) -> list[str]:
    """The paths without those that are below another of them."""
    found: list[str] = []
    for path in paths:
        if not any(is_within(path, each) for each in found):
            found.append(path)
    return found


def _outermost(call: ModuleCall, matching: set[str]) -> Iterator[ModuleCall]:
    if call.module in matching:
        yield call
        return
    for step in call.steps:
        if isinstance(step, ModuleCall):
            yield from _outermost(step, matching)
