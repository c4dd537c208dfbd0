"""Where an exception was raised in the user's code: the frame, the statement, and the part of it that failed."""

from __future__ import annotations

import ast
import itertools
import linecache
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType, TracebackType

from torch import nn

_MODULE_FILE = nn.Module.__call__.__code__.co_filename
_Position = tuple[int, int]  # line and column


@dataclass(frozen=True, slots=True)
class Site:
    """A statement of the user's that raised."""

    frame: FrameType
    source: str  # file and line, for a reader
    statement: str  # its text, without what is indented below it
    node: ast.AST | None  # the part that failed; None where the source cannot be read
    around: ast.stmt | None = None  # the statement it belongs to
    text: str = ""  # of the whole file
    tree: ast.Module | None = None

    def write(self, node: ast.AST) -> str:
        """The node as the source has it, on one line."""
        found = ast.get_source_segment(self.text, node) if self.text else None
        return " ".join((found or ast.unparse(node)).split())

    def value_bound_to(self, name: str) -> ast.expr | None:
        """What the function has last assigned to this name before it failed; None where that is not a plain one."""
        if self.tree is None or self.around is None:
            return None
        first, last = self.frame.f_code.co_firstlineno, self.around.lineno
        bound = [
            each
            for each in ast.walk(self.tree)
            if isinstance(each, ast.Assign) and first <= each.lineno < last and _names(each) == [name]
        ]
        return max(bound, key=lambda each: each.lineno).value if bound else None


def find_site(error: BaseException, is_watched: Callable[[str], bool]) -> Site | None:
    """The innermost statement of user code that was running below a module's call; None where there is none."""
    inside = itertools.dropwhile(lambda each: not _is_module_call(each.tb_frame), _walk(error.__traceback__))
    own = [each for each in inside if is_watched(each.tb_frame.f_code.co_filename)]
    if (
        isinstance(error, RecursionError)
        and len(own) > 1
        and own[-1].tb_lineno == own[-1].tb_frame.f_code.co_firstlineno
    ):
        own.pop()  # a function that was not let in: what called it is the statement
    return _describe(own[-1]) if own else None


def find_raising_module(error: BaseException) -> nn.Module | None:
    """The innermost module that was running when the exception was raised."""
    frames = [each.tb_frame for each in _walk(error.__traceback__) if _is_module_call(each.tb_frame)]
    module = frames[-1].f_locals.get("self") if frames else None
    return module if isinstance(module, nn.Module) else None


def find_frame_of(error: BaseException, module: nn.Module, below: FrameType | None) -> FrameType | None:
    """The frame of the module's own forward, where it runs below the given one; the given one itself is not meant."""
    frames = [each.tb_frame for each in _walk(error.__traceback__)]
    if below is not None and below in frames:
        frames = frames[frames.index(below) + 1 :]
    own = [each for each in frames if each.f_locals.get("self") is module and each.f_code.co_filename != _MODULE_FILE]
    return own[0] if own else None


def _names(statement: ast.Assign) -> list[str]:
    return [ast.unparse(each) for each in statement.targets]


def _walk(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _is_module_call(frame: FrameType) -> bool:
    return frame.f_code.co_filename == _MODULE_FILE and frame.f_code.co_name.endswith("_call_impl")


def _describe(traceback: TracebackType) -> Site:
    frame, line = traceback.tb_frame, traceback.tb_lineno
    file = frame.f_code.co_filename
    source = f"{os.path.basename(file)}:{line}"
    text = "".join(linecache.getlines(file))
    begin, end = _failing_span(traceback) or ((line, -1), (line, -1))
    try:
        tree = ast.parse(text)
        around = _statement_at(tree, begin if begin[1] >= 0 else (line, -1))
    except (SyntaxError, ValueError, RecursionError):
        around = None
    if around is None:
        return Site(frame, source, linecache.getline(file, line).strip(), None)
    node = (_part_at(around, begin, end) if begin[1] >= 0 else None) or around
    return Site(frame, source, _write_head(text, around), node, around, text, tree)


def _failing_span(traceback: TracebackType) -> tuple[_Position, _Position] | None:
    """Where what failed begins and ends (PEP 657); None where Python does not tell."""
    positions = list(traceback.tb_frame.f_code.co_positions())
    index = traceback.tb_lasti // 2
    first, last, begin, end = positions[index] if index < len(positions) else (None,) * 4
    if first is None or last is None or begin is None or end is None:  # run with -X no_debug_ranges
        return None
    return (first, begin), (last, end)


def _part_at(around: ast.stmt, begin: _Position, end: _Position) -> ast.AST | None:
    """The smallest expression that holds all that failed."""
    nodes = [each for each in ast.walk(around) if isinstance(each, ast.expr | ast.stmt)]
    exact = [each for each in nodes if _span(each) == (begin, end)]
    if exact:
        return exact[-1]
    holding = [each for each in nodes if _span(each)[0] <= begin and end <= _span(each)[1]]
    return min(holding, key=lambda each: len(ast.dump(each)), default=None)


def _span(node: ast.expr | ast.stmt) -> tuple[_Position, _Position]:
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0)


def _statement_at(tree: ast.Module, place: _Position) -> ast.stmt | None:
    """The innermost statement around the place; where only the line is known, the first on it."""
    line, column = place
    statements = [each for each in ast.walk(tree) if isinstance(each, ast.stmt)]
    around = [each for each in statements if each.lineno <= line <= (each.end_lineno or each.lineno)]
    exact = [each for each in around if column >= 0 and _span(each)[0] <= place < _span(each)[1]]
    return min(exact or around, key=lambda each: (each.end_lineno or each.lineno) - each.lineno, default=None)


def _write_head(text: str, statement: ast.stmt) -> str:
    """The statement without its body, its lines shifted to the left together."""
    body = getattr(statement, "body", None)
    last = max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno or statement.lineno
    # Not splitlines: a form feed ends no line of Python's.
    lines = text.split("\n")[statement.lineno - 1 : last]
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    return "\n".join(line[indent:] if not line[:indent].strip() else line.lstrip() for line in lines).strip("\n\f ")
