"""What a source file says about the tensors it binds: which statement, which names, which comment, which axes."""

from __future__ import annotations

import ast
import io
import linecache
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FunctionType
from weakref import WeakKeyDictionary

from shapetrace.axes import Axes, axes_in_annotation, axes_in_comment, axes_in_pattern

# Comments that speak to a tool and not to a reader.
_FOR_TOOLS = re.compile(r"(noqa|type:|fmt:|pragma:|pylint:|pyright:|mypy:|isort:|ruff:|yapf:|nosec|Copied from)", re.I)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, or the head of one that has a body."""

    first: int
    last: int
    comment: str = ""
    targets: tuple[str, ...] = ()  # what it binds, from left to right, as written: `q`, `self.cached`
    assigns: bool = False  # an assignment: it has bound its targets when it is over
    readings: tuple[Axes, ...] = ()  # what its comment, annotation and patterns say of the result, in this order


@dataclass(frozen=True, slots=True)
class Source:
    """One file, read once. A file that cannot be read or parsed is an empty one: names without comments."""

    statements: dict[int, Statement] = field(default_factory=dict)  # by line
    arguments: dict[tuple[str, int], dict[str, Statement]] = field(default_factory=dict)  # by function name and line
    classes: list[tuple[int, int, dict[str, Statement]]] = field(
        default_factory=list
    )  # first and last line, attributes

    def arguments_of(self, code: CodeType) -> dict[str, Statement]:
        """What the signature of this function says of each argument."""
        return self.arguments.get((code.co_name, code.co_firstlineno), {})

    def class_around(self, line: int) -> dict[str, Statement]:
        """By attribute, where the innermost class around the line first binds it."""
        around = [(last - first, attributes) for first, last, attributes in self.classes if first <= line <= last]
        return min(around, key=lambda each: each[0], default=(0, {}))[1]


_EMPTY = Source()


def read_source(filename: str) -> Source:
    """What the file says, as it is now; a notebook cell counts as a file."""
    return _parse_source("".join(linecache.getlines(filename)))


def attributes_of(cls: type) -> dict[str, Statement]:
    """Where each `self.name` is first bound, in the source of the class or else of those it inherits from."""
    if cls not in _ATTRIBUTES:
        _ATTRIBUTES[cls] = {}
        for each in reversed(cls.__mro__):
            _ATTRIBUTES[cls].update(_own_attributes(each))
    return _ATTRIBUTES[cls]


_ATTRIBUTES: WeakKeyDictionary[type, dict[str, Statement]] = WeakKeyDictionary()


def _own_attributes(cls: type) -> dict[str, Statement]:
    if cls.__module__.partition(".")[0] in ("torch", "builtins"):
        return {}
    codes = [each.__code__ for each in vars(cls).values() if isinstance(each, FunctionType)]
    # A class does not know its line, but its functions do, and names alone would mix up local classes.
    around = [read_source(code.co_filename).class_around(code.co_firstlineno) for code in codes]
    return next((attributes for attributes in around if attributes), {})


@lru_cache(maxsize=256)
def _parse_source(text: str) -> Source:
    try:
        tree = ast.parse(text)
        comments = _comments_by_line(text)
    except (SyntaxError, ValueError, RecursionError, tokenize.TokenError):
        return _EMPTY
    source = Source()
    for node in ast.walk(tree):  # outer before inner, so that the smallest statement has the last word
        if isinstance(node, ast.stmt):
            statement = _read_statement(node, comments)
            for line in range(statement.first, statement.last + 1):
                source.statements[line] = statement
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # A function's first line, for Python, is that of its first decorator.
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            source.arguments[node.name, first] = _read_arguments(node, comments)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            attributes = _read_attributes(node, source, comments)
            source.classes.append((node.lineno, node.end_lineno or node.lineno, attributes))
    return source


def _comments_by_line(text: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.start[0]: _for_readers(token.string) for token in tokens if token.type == tokenize.COMMENT}


def _for_readers(comment: str) -> str:
    """`# (B, T)  # noqa: E501` -> `(B, T)`."""
    parts = re.split(r"\s*#+\s*", comment)
    return " # ".join(part.strip() for part in parts if part.strip() and not _FOR_TOOLS.match(part))


def _read_statement(node: ast.stmt, comments: dict[int, str]) -> Statement:
    first, last = node.lineno, _last_line_of_head(node)
    # On the last line a comment follows the whole statement; on the first it stands above the rest of it.
    comment = comments.get(last) or comments.get(first) or ""
    annotation = axes_in_annotation(ast.unparse(node.annotation)) if isinstance(node, ast.AnnAssign) else ()
    value = getattr(node, "value", None)
    pattern = _axes_in_call(value) if isinstance(value, ast.expr) else ()
    return Statement(
        first,
        last,
        comment,
        tuple(_targets(node)),
        isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign),
        tuple(axes for axes in (*axes_in_comment(comment), annotation, pattern) if axes),
    )


def _last_line_of_head(node: ast.stmt) -> int:
    """The line on which the statement ends, or the last one before its body."""
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if not body:
        return node.end_lineno or node.lineno
    inner: int = body[0].pattern.lineno if isinstance(body[0], ast.match_case) else body[0].lineno
    return max(node.lineno, inner - 1)


def _targets(node: ast.stmt) -> Iterator[str]:
    """Names, attributes and items that the statement itself binds; those in its body are their own statements'."""
    inner = {id(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)}
    queue: list[ast.AST] = [node]
    while queue:
        each = queue.pop(0)
        if isinstance(each, ast.Name | ast.Attribute | ast.Subscript) and isinstance(each.ctx, ast.Store):
            if _is_plain(each):
                yield ast.unparse(each)
        elif not isinstance(each, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            queue = [child for child in ast.iter_child_nodes(each) if id(child) not in inner] + queue


def _is_plain(node: ast.expr) -> bool:
    """A chain that can be looked up again without running any code: `x`, `self.a.b`, `self.cache["k"]`, `out[i]`."""
    if isinstance(node, ast.Attribute):
        return _is_plain(node.value)
    if isinstance(node, ast.Subscript):
        return _is_plain(node.value) and isinstance(node.slice, ast.Constant | ast.Name)
    return isinstance(node, ast.Name)


def _axes_in_call(value: ast.expr) -> Axes:
    """The result axes of an einops or einsum call, alone or in arithmetic: `einsum(x, w, "b d, d h -> b h") + b`."""
    if isinstance(value, ast.BinOp):
        return _axes_in_call(value.left) or _axes_in_call(value.right)
    if not isinstance(value, ast.Call):
        return ()
    texts = [each.value for each in value.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return next((axes for axes in map(axes_in_pattern, texts) if axes), ())


def _read_arguments(node: ast.FunctionDef | ast.AsyncFunctionDef, comments: dict[int, str]) -> dict[str, Statement]:
    found = {}
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    lines = [argument.lineno for argument in every]
    body = node.body[0].lineno
    for argument in every:
        alone = lines.count(argument.lineno) == 1 or (len(every) == 2 and every[0].arg == "self")
        comment = comments.get(argument.lineno, "") if alone and argument.lineno < body else ""
        annotation = axes_in_annotation(ast.unparse(argument.annotation)) if argument.annotation else ()
        readings = tuple(axes for axes in (*axes_in_comment(comment), annotation) if axes)
        found[argument.arg] = Statement(argument.lineno, argument.lineno, comment, (argument.arg,), False, readings)
    return found


def _read_attributes(node: ast.ClassDef, source: Source, comments: dict[int, str]) -> dict[str, Statement]:
    """The statement that first binds each attribute; without a comment there, the line that comments on its use."""
    found: dict[str, Statement] = {}
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            name = _registered_name(each)
            if name:
                found.setdefault(name, source.statements[each.lineno])
        elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
            statement = source.statements[each.lineno]
            if isinstance(each.ctx, ast.Store):
                found.setdefault(each.attr, statement)
            elif statement.first < each.lineno < statement.last and each.lineno in comments:
                # `self.W_Q,  # (n_heads, d_model, d_head)` among the arguments of a call
                used = comments[each.lineno]
                known = found.get(each.attr)
                if known is None or not known.comment:
                    readings = tuple(axes_in_comment(used))
                    found[each.attr] = Statement(each.lineno, each.lineno, used, (), False, readings)
    return found


def _registered_name(call: ast.Call) -> str:
    """The name in `self.register_buffer("name", ...)` or `self.register_parameter("name", ...)`."""
    registers = isinstance(call.func, ast.Attribute) and call.func.attr in ("register_buffer", "register_parameter")
    values = [*call.args, *(each.value for each in call.keywords if each.arg == "name")]
    name = values[0].value if registers and values and isinstance(values[0], ast.Constant) else ""
    return name if isinstance(name, str) else ""
