"""The lines of a source file as Python reads them, and as they stand in the file, byte for byte."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from shapetrace.errors import ShapetraceError

_NO_CODE = (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE, tokenize.ENDMARKER)


@dataclass(frozen=True, slots=True)
class LogicalLine:
    """What Python reads as one line: a statement, several with `;` between them, or the head of one with a body."""

    first: int  # rows, from 1
    last: int
    is_def: bool


@dataclass(frozen=True, slots=True)
class Function:
    """A function with its decorators."""

    name: str  # as `Attention.forward`
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A source file. Rows are counted from 1, and end where Python's do: at \\n, \\r\\n or \\r."""

    encoding: str
    rows: tuple[str, ...]  # without their ends
    ends: tuple[str, ...]
    logical: dict[int, LogicalLine]  # by row
    functions: tuple[Function, ...]
    arguments: dict[int, int]  # by row, how many arguments are named there, `self` aside
    commented: frozenset[int]  # rows that have a comment
    open: frozenset[int]  # rows that end within a string or with a backslash: nothing can be appended to them

    def row(self, number: int) -> str:
        return self.rows[number - 1]

    def text(self, line: LogicalLine) -> str:
        return "\n".join(self.rows[line.first - 1 : line.last])

    def append(self, comments: dict[int, str]) -> bytes:
        """The file with a comment at the end of each of these rows, and not one byte else changed."""
        text = "".join(
            row + (f"  # {comments[number]}" if number in comments else "") + end
            for number, (row, end) in enumerate(zip(self.rows, self.ends, strict=True), 1)
        )
        return text.encode(self.encoding)

    def can_write(self, text: str) -> bool:
        """Whether the text can stand in a comment of this file."""
        try:
            return text.isprintable() and text.encode(self.encoding).decode(self.encoding) == text
        except UnicodeError:
            return False


def read_layout(content: bytes) -> Layout:
    """Raises ShapetraceError for what Python would not read either."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
        pieces = re.split(r"(\r\n|\n|\r)", text)
        rows, ends = tuple(pieces[::2]), (*pieces[1::2], "")
        plain = "\n".join(rows)
        tree = _parse(plain)
        tokens = list(tokenize.generate_tokens(io.StringIO(plain).readline))
    except (SyntaxError, ValueError, RecursionError, tokenize.TokenError, LookupError) as error:
        raise ShapetraceError(f"not readable as Python: {error}") from None
    if text.encode(encoding) != content:
        raise ShapetraceError(f"its bytes are not all {encoding}")
    commented = frozenset(token.start[0] for token in tokens if token.type == tokenize.COMMENT)
    broken = {number for number, row in enumerate(rows, 1) if row.endswith("\\") and number not in commented}
    return Layout(
        encoding,
        rows,
        ends,
        {row: line for line in _logical_lines(tokens) for row in range(line.first, line.last + 1)},
        tuple(_functions(tree, "")),
        _arguments(tree),
        commented,
        frozenset({*_rows_within_strings(tokens), *broken}),
    )


def same_meaning(content: bytes, other: bytes) -> bool:
    """Whether both are the same program, each part of it at the same place."""
    try:
        return ast.dump(_parse(content), include_attributes=True) == ast.dump(_parse(other), include_attributes=True)
    except (SyntaxError, ValueError, RecursionError):
        return False


def _parse(source: str | bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes such as "\\d": that is for its author, when it is run
        return ast.parse(source)


def _logical_lines(tokens: list[tokenize.TokenInfo]) -> Iterator[LogicalLine]:
    begun: list[tokenize.TokenInfo] = []
    for token in tokens:
        if token.type == tokenize.NEWLINE and begun:
            words = [each.string for each in begun[:2]]
            yield LogicalLine(begun[0].start[0], token.start[0], words[0] == "def" or words == ["async", "def"])
            begun = []
        elif token.type not in _NO_CODE:
            begun.append(token)


def _rows_within_strings(tokens: list[tokenize.TokenInfo]) -> Iterator[int]:
    """The rows on which a string goes on to the next."""
    opened: list[int] = []  # f-strings are several tokens from Python 3.12 on
    for token in tokens:
        kind = tokenize.tok_name[token.type]
        if kind.endswith("STRING_START"):
            opened.append(token.start[0])
        elif kind.endswith("STRING_END"):
            yield from range(opened.pop(), token.end[0])
        elif token.type == tokenize.STRING:
            yield from range(token.start[0], token.end[0])


def _functions(node: ast.AST, around: str) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        inside = around
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = f"{around}.{child.name}" if around else child.name
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
            yield Function(inside, first, child.end_lineno or child.lineno)
        yield from _functions(child, inside)


def _arguments(tree: ast.AST) -> dict[int, int]:
    counts: dict[int, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            for each in (*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg):
                if each is not None and each.arg not in ("self", "cls"):
                    counts[each.lineno] = counts.get(each.lineno, 0) + 1
    return counts
