"""What a source file says about the tensors it binds: which statement, which names, which comment, which axes."""

from __future__ import annotations

import ast
import io
import linecache
import os
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import CodeType

from shapetrace.axes import Axes, axes_in_annotation, axes_in_comment, axes_in_docstring, axes_in_pattern
from shapetrace.recorder.access import Place, read_place

# Comments, or ends of comments, that speak to a tool and not to a reader.
FOR_TOOLS = re.compile(
    r"\s*#\s*(?:(?:noqa|nosec|Copied from)\b|(?:type|fmt|pragma|pylint|pyright|mypy|isort|ruff|yapf):)[^#]*", re.I
)


@dataclass(frozen=True, slots=True, eq=False)  # each is itself: by which it is found quickly
class Statement:
    """One statement, or the head of one that has a body; statements that share a line are one."""

    first: int
    last: int
    comment: str = ""
    targets: tuple[Place, ...] = ()  # what it binds, from left to right
    changes: tuple[Place, ...] = ()  # what it may change in place: `self.k` in `self.k[0] = x` and `self.k.add_(1)`
    assigns: bool = False  # an assignment: once over, it has bound its targets, be it to what they held before
    augments: bool = False  # `+=` and its like
    mentions: frozenset[str] = frozenset()  # every name in it: only of these the insides may change
    has_places: bool = False  # whether it binds or changes anything that is no plain name
    readings: tuple[Axes, ...] = ()  # what its comment, annotation and patterns say of the result, in this order
    # Of what is above, for each line that runs.
    is_long: bool = field(init=False, compare=False, repr=False)  # on several lines
    order: dict[str, int] = field(init=False, compare=False, repr=False)  # by local name, which target it roots
    binds: str = field(init=False, compare=False, repr=False)  # the local name, of an assignment to just one

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_long", self.first < self.last)
        order = {place.root: index for index, place in enumerate(self.targets)}
        object.__setattr__(self, "order", order)
        simple = self.assigns and not self.has_places and len(order) == 1
        object.__setattr__(self, "binds", next(iter(order)) if simple else "")


_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

NO_STATEMENT = Statement(0, 0)


@dataclass(frozen=True, slots=True)
class Source:
    """One file, read once. A file that cannot be read or parsed is an empty one: names without comments."""

    statements: dict[int, Statement] = field(default_factory=dict)  # by line
    arguments: dict[tuple[str, int], dict[str, Statement]] = field(default_factory=dict)  # by function name and line
    classes: list[tuple[int, int, dict[str, Statement]]] = field(default_factory=list)  # first, last line, attributes

    def statement_at(self, line: int) -> Statement:
        return self.statements.get(line, NO_STATEMENT)

    def arguments_of(self, code: CodeType) -> dict[str, Statement]:
        """What the signature of this function says of each argument."""
        return self.arguments.get((code.co_name, code.co_firstlineno), {})

    def class_around(self, line: int) -> dict[str, Statement]:
        """By attribute, where the innermost class around the line first binds it."""
        around = [(last - first, attributes) for first, last, attributes in self.classes if first <= line <= last]
        return min(around, key=lambda each: each[0], default=(0, {}))[1]


_EMPTY = Source()


def locate(filename: str, line: int) -> str:
    """What a record holds as its `source`: `/home/ann/attention.py:31`; nothing where the line is not known."""
    return f"{absolute(filename)}:{line}" if filename and line else ""


def absolute(filename: str) -> str:
    """A code object may know its file by a relative path; `<string>` and its like are no files."""
    return filename if filename.startswith("<") else os.path.abspath(filename)


def read_source(filename: str) -> Source:
    """What the file says, as it is now; a notebook cell counts as a file."""
    linecache.checkcache(filename)
    lines = linecache.getlines(filename)
    known = _READ.get(filename)
    if known is None or known[0] is not lines:  # linecache has the same list as long as the file is the same
        known = _READ[filename] = lines, _parse_source("".join(lines))
    return known[1]


_READ: dict[str, tuple[list[str], Source]] = {}


@lru_cache(maxsize=256)
def _parse_source(text: str) -> Source:
    try:
        tree = ast.parse(text)
        comments, alone = _comments_by_line(text), _columns_of_lone_comments(text)
    except (SyntaxError, ValueError, RecursionError, tokenize.TokenError):
        return _EMPTY
    source = Source()
    for node in ast.walk(tree):  # outer before inner, so that the smallest statement has the last word
        if isinstance(node, ast.stmt):
            _add_statement(source, node, _read_statement(node, comments, alone))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # A function's first line, for Python, is that of its first decorator.
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            source.arguments[node.name, first] = _read_arguments(node, comments)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            attributes = _read_attributes(node, source, comments)
            source.classes.append((node.lineno, node.end_lineno or node.lineno, attributes))
    return source


def _add_statement(source: Source, node: ast.stmt, statement: Statement) -> None:
    before = source.statement_at(statement.first)
    if before.first == before.last == statement.first == statement.last:
        # `a = 1; b = 2`, or `for x in xs: y = x`: which of them has run, the line alone does not tell.
        simple = before.assigns and statement.assigns
        targets = (*before.targets, *statement.targets)
        changes = before.changes + statement.changes
        has_places = before.has_places or statement.has_places
        mentions = before.mentions | statement.mentions
        statement = replace(
            statement, targets=targets, changes=changes, assigns=simple, mentions=mentions, has_places=has_places
        )
    for line in range(statement.first, statement.last + 1):
        source.statements[line] = statement


def _comments_by_line(text: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.start[0]: _for_readers(token.string) for token in tokens if token.type == tokenize.COMMENT}


def _columns_of_lone_comments(text: str) -> dict[int, int]:
    """By row, where a comment begins that has the row to itself."""
    rows = enumerate(text.split("\n"), 1)
    return {number: len(row) - len(row.lstrip()) for number, row in rows if row.lstrip().startswith("#")}


def _for_readers(comment: str) -> str:
    """`# (B, T)  # noqa: E501` -> `(B, T)`."""
    return FOR_TOOLS.sub("", comment).lstrip("#").strip()


def _read_statement(node: ast.stmt, comments: dict[int, str], alone: dict[int, int]) -> Statement:
    first, last = node.lineno, _last_line_of_head(node)
    # On the last line a comment follows the whole statement; on the first it stands above the rest of it.
    comment = comments.get(last) or comments.get(first) or ""
    annotation = axes_in_annotation(ast.unparse(node.annotation)) if isinstance(node, ast.AnnAssign) else ()
    value = getattr(node, "value", None)
    pattern = _axes_in_call(value) if isinstance(value, ast.expr) else ()
    own = list(_own_nodes(node))
    stored = [each for each in own if isinstance(getattr(each, "ctx", None), ast.Store)]
    targets = tuple(place for place in map(read_place, stored) if place is not None)
    changes = tuple(place for each in own for place in _changed_places(each))
    above = [] if comment else _axes_above(node, comments, alone)
    return Statement(
        first,
        last,
        comment,
        targets,
        changes,
        isinstance(node, ast.Assign | ast.AugAssign) or (isinstance(node, ast.AnnAssign) and node.value is not None),
        isinstance(node, ast.AugAssign),
        frozenset(each.id for each in _within(own) if isinstance(each, ast.Name)),
        bool(changes) or not all(place.is_name for place in targets),
        tuple(axes for axes in (*axes_in_comment(comment), annotation, *above, pattern) if axes),
    )


def _axes_above(node: ast.stmt, comments: dict[int, str], alone: dict[int, int]) -> list[Axes]:
    """What a comment says that has the row above to itself."""
    row = node.lineno - 1
    is_above = alone.get(row) == node.col_offset and isinstance(node, ast.Assign | ast.Return)
    return axes_in_comment(comments.get(row, "")) if is_above else []


def _last_line_of_head(node: ast.stmt) -> int:
    """The line on which the statement ends, or what stands before its body does."""
    if not getattr(node, "body", None) and not getattr(node, "cases", None):
        return node.end_lineno or node.lineno
    head = [
        each
        for each in ast.iter_child_nodes(node)
        if not isinstance(each, ast.stmt | ast.ExceptHandler | ast.match_case)
    ]
    return max([node.lineno, *(getattr(each, "end_lineno", None) or 0 for each in head)])


def _own_nodes(node: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of the statement itself, in the order of the source: not its body's, nor another scope's."""
    queue: list[ast.AST] = [node]
    while queue:
        each = queue.pop(0)
        yield each
        if not isinstance(each, _SCOPES):
            inner = ast.iter_child_nodes(each)
            queue = [
                child for child in inner if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case)
            ] + queue


def _within(own: list[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a statement, and those of the lambdas and comprehensions in it."""
    for each in own:
        yield from ast.walk(each) if isinstance(each, _SCOPES) else (each,)


def _changed_places(node: ast.AST) -> Iterator[Place]:
    """`x` where the node is `x[...] = ...` or `x.add_(...)`; of `x[0].add_(...)` both: either may be the tensor."""
    inner: ast.AST | None = None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        inner = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        inner = node.func.value if name.endswith("_") and not name.endswith("__") else None
    while inner is not None:
        place = read_place(inner)
        if place is not None:
            yield place
        inner = inner.value if isinstance(inner, ast.Subscript) else None


def _axes_in_call(value: ast.expr) -> Axes:
    """The result axes of an einops or einsum call, alone or in arithmetic: `einsum(x, w, "b d, d h -> b h") + b`."""
    if isinstance(value, ast.BinOp):
        return _axes_in_call(value.left) or _axes_in_call(value.right)
    if not isinstance(value, ast.Call):
        return ()
    for index, each in enumerate(value.args):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and "->" in each.value:
            # torch.einsum has its pattern first, a letter an axis; einops has it last, a word an axis.
            return axes_in_pattern(each.value, letters=index == 0)
    return ()


def _read_arguments(node: ast.FunctionDef | ast.AsyncFunctionDef, comments: dict[int, str]) -> dict[str, Statement]:
    given = node.args
    every = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    arguments = [each for each in every if each is not None]
    lines = [each.lineno for each in arguments if each.arg not in ("self", "cls")]
    described = axes_in_docstring(ast.get_docstring(node) or "", [each.arg for each in arguments])
    found = {}
    for argument in arguments:
        line = argument.lineno
        alone = lines.count(line) == 1  # with two arguments on it, whose is the line's comment?
        comment = comments.get(line, "") if alone and line < node.body[0].lineno else ""
        annotation = axes_in_annotation(ast.unparse(argument.annotation)) if argument.annotation else ()
        told = described.get(argument.arg, [])
        readings = tuple(axes for axes in (*axes_in_comment(comment), annotation, *told) if axes)
        found[argument.arg] = Statement(line, line, comment, readings=readings)
    return found


def _read_attributes(node: ast.ClassDef, source: Source, comments: dict[int, str]) -> dict[str, Statement]:
    """The statement that first binds each attribute; without a comment there, the line that comments on its use."""
    found: dict[str, Statement] = {}
    inside = [each for each in ast.walk(node) if isinstance(each, ast.expr)]
    for each in sorted(inside, key=lambda node: (node.lineno, node.col_offset)):
        statement = source.statement_at(each.lineno)
        if isinstance(each, ast.Call):
            name = _registered_name(each)
            if name:
                found.setdefault(name, statement)
        elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
            if isinstance(each.ctx, ast.Store):
                found.setdefault(each.attr, statement)
            elif statement.first < each.lineno < statement.last and each.lineno in comments:
                # `self.W_Q,  # (n_heads, d_model, d_head)` among the arguments of a call
                used = comments[each.lineno]
                if not found.get(each.attr, NO_STATEMENT).comment:
                    readings = tuple(axes_in_comment(used))
                    found[each.attr] = Statement(each.lineno, each.lineno, used, readings=readings)
    return found


def _registered_name(call: ast.Call) -> str:
    """The name in `self.register_buffer("name", ...)` or `self.register_parameter("name", ...)`."""
    registers = isinstance(call.func, ast.Attribute) and call.func.attr in ("register_buffer", "register_parameter")
    values = [*call.args, *(each.value for each in call.keywords if each.arg == "name")]
    name = values[0].value if registers and values and isinstance(values[0], ast.Constant) else ""
    return name if isinstance(name, str) else ""
