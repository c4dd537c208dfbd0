"""A function's arguments, and where it binds which names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from shapetrace.shape_comments.claims import Binding, FunctionKey

Function = ast.FunctionDef | ast.AsyncFunctionDef


def key_of(function: Function) -> FunctionKey:
    """As Python has them in the code object: a function begins with its first decorator."""
    return function.name, min([function.lineno, *(each.lineno for each in function.decorator_list)])


def arguments_of(function: Function) -> list[ast.arg]:
    given = function.args
    every = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return [each for each in every if each is not None and each.arg not in ("self", "cls")]


def returned_count(function: Function) -> int:
    """How many values it returns: 1 unless every return has as many in a tuple; 0 where they differ."""
    values: list[ast.expr | None] = []
    inner: list[ast.AST] = list(function.body)
    while inner:
        node = inner.pop()
        if isinstance(node, ast.Return):
            values.append(node.value)
        elif not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            inner += ast.iter_child_nodes(node)
    counts = {len(each.elts) if isinstance(each, ast.Tuple) else 1 for each in values}
    return counts.pop() if len(counts) == 1 else 0


def words_of(node: ast.AST) -> frozenset[str]:
    """Every name, attribute, keyword and key of the code."""
    found: set[str] = set()
    for each in ast.walk(node):
        found.update(
            word
            for word in (getattr(each, field, None) for field in ("id", "attr", "arg", "value"))
            if isinstance(word, str) and word.isidentifier()
        )
    return frozenset(found)


def bindings_of(function: Function, arguments: list[ast.arg]) -> Iterator[Binding]:
    for argument in arguments:
        yield Binding(argument.arg, argument.lineno, "", "argument")
    for node in ast.walk(function):
        if isinstance(node, ast.For | ast.comprehension):
            for each in ast.walk(node.target):
                if isinstance(each, ast.Name):
                    yield Binding(each.id, each.lineno, "", "loop")
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from _bound(target, node.value)


def _bound(target: ast.expr, value: ast.expr) -> Iterator[Binding]:
    if isinstance(target, ast.Tuple | ast.List):
        pairs = (
            zip(target.elts, value.elts, strict=False)
            if isinstance(value, ast.Tuple | ast.List)
            else ((each, value) for each in target.elts)
        )
        starred = isinstance(value, ast.Tuple | ast.List) and any(isinstance(each, ast.Starred) for each in value.elts)
        for each, part in ((each, value) for each in target.elts) if starred else pairs:
            yield from _bound(each, part)
    elif isinstance(target, ast.Name):
        text = ast.unparse(value)
        shaped = re.search(r"\.shape\b|\.size\(|\blen\(|\.numel\(|parse_shape", text)
        yield Binding(target.id, target.lineno, text, "shape" if shaped else "other")
    elif isinstance(target, ast.Starred):
        yield from _bound(target.value, value)
