"""What a comment at a statement is about: its targets, a step of it, an operand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from shapetrace.axes.lists import AxisList
from shapetrace.recorder.access import Place, read_place
from shapetrace.shape_comments.claims import About

_MATMUL = ("matmul", "bmm", "mm", "einsum", "dot", "mul", "baddbmm", "cat", "stack")


def last_row(node: ast.stmt) -> int:
    """The row on which the statement ends, or what stands before its body does."""
    if not getattr(node, "body", None) and not getattr(node, "cases", None):
        return node.end_lineno or node.lineno
    head = [
        each
        for each in ast.iter_child_nodes(node)
        if not isinstance(each, ast.stmt | ast.ExceptHandler | ast.match_case)
    ]
    last = max([node.lineno, *(getattr(each, "end_lineno", None) or 0 for each in head)])
    body = getattr(node, "body", None)
    return min(last, body[0].lineno) if body else last


def targets_of(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return (
            statement.targets[:1]
            if not isinstance(statement.targets[0], ast.Tuple | ast.List)
            else list(statement.targets[0].elts)
        )
    if isinstance(statement, ast.AugAssign | ast.AnnAssign):
        return [statement.target]
    if isinstance(statement, ast.For | ast.AsyncFor):
        return list(statement.target.elts) if isinstance(statement.target, ast.Tuple) else [statement.target]
    return []


def targets_count(statement: ast.stmt) -> int:
    if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Tuple):
        return len(statement.value.elts)
    return len([each for each in targets_of(statement) if not (isinstance(each, ast.Name) and each.id == "_")])


def places_of_labels(labels: tuple[str, ...]) -> tuple[Place, ...]:
    places = []
    for label in labels:
        try:
            place = read_place(ast.parse(label.removesuffix(".shape"), mode="eval").body)
        except SyntaxError:
            place = None
        if place is not None:
            places.append(place)
    return tuple(places)


def about_statement(statement: ast.stmt, said: AxisList, index: int, count: int, has_operands: bool = False) -> About:
    """What a result in a comment is about: the name that it says, its own target of several, or all that is bound."""
    labelled = places_of_labels(said.labels)
    if labelled:
        plain = about_statement(statement, replace(said, labels=()), index, count, has_operands)
        return replace(plain, places=labelled, fallback=plain.places, each=True)
    if isinstance(statement, ast.Return):
        is_tuple = isinstance(statement.value, ast.Tuple) and count > 1 and len(statement.value.elts) == count
        return About(is_returned=True, item=index if is_tuple else None, each=said.each)
    targets = [each for each in targets_of(statement) if not (isinstance(each, ast.Name) and each.id == "_")]
    shaped = _shape_of_what(statement)
    if shaped is not None:
        return About() if has_operands else About(nodes=(shaped,))
    every = [
        read_place(
            each.value
            if isinstance(each, ast.Subscript) and not isinstance(each.slice, ast.Constant | ast.Name)
            else each
        )
        for each in targets
    ]
    places = tuple(each for each in every if each is not None)
    if said.near and count > 1:
        near = tuple(each for each in places if each.text == said.near)
        if near:
            return About(places=near)
    if 1 < count == len(places):
        return About(places=places[index : index + 1])
    if isinstance(statement, ast.Expr):
        return About(lenient=tuple(expressions_in(statement)))
    value = getattr(statement, "value", None)
    if value is not None and any(isinstance(each, ast.Subscript) for each in targets):
        # `x[:, 0] = y`: of what is put there, or else of x.
        whole = tuple(each.value for each in targets if isinstance(each, ast.Subscript))
        return About(places=() if whole and places and not places[0].steps else places, roots=(value,), lenient=whole)
    return About(places=places, each=said.each)


def _shape_of_what(statement: ast.stmt) -> ast.expr | None:
    """`x` of `B, T, C = x.shape`: the comment says what x is."""
    value = getattr(statement, "value", None)
    if (
        isinstance(value, ast.Call)
        and not value.args
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "size"
    ):
        return value.func.value
    if isinstance(value, ast.Attribute) and value.attr == "shape":
        return value.value
    return None


def about_operand(statement: ast.stmt, said: AxisList, index: int, count: int) -> About:
    """The index-th operand of the statement's product, or what a single operand became something from."""
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.expr):
        return About()
    if count > 1:
        operands = operands_in(value, count, said.joint)
        return About(nodes=operands[index : index + 1]) if operands else About()
    steps = tuple(each for each in expressions_in(statement) if each is not value)
    starts = _roots_of(statement.target) if isinstance(statement, ast.AugAssign) else ()
    return About(lenient=steps, roots=(*starts, *_roots_of(value)))


def _roots_of(node: ast.expr) -> Iterator[ast.expr]:
    """What an expression starts from, as it may be: `x` of `F.silu(self.w1(x))` and of `x.view(B, -1)`."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            yield from _roots_of(node.func.value)
        for argument in node.args[:1]:
            yield from _roots_of(argument)
    elif isinstance(node, ast.Tuple) and node.elts:
        yield from _roots_of(node.elts[0])
    elif isinstance(node, ast.Subscript):
        yield from _roots_of(node.value)
    elif isinstance(node, ast.BinOp):
        yield from _roots_of(node.left)
        yield from _roots_of(node.right)
    elif isinstance(node, ast.Attribute) and (node.attr == "shape" or not isinstance(node.value, ast.Name)):
        yield from _roots_of(node.value)
    elif isinstance(node, ast.Name | ast.Attribute):
        yield node


_SIGNS = {"*": ast.Mult, "+": ast.Add, "-": ast.Sub, "·": ast.Mult}


def operands_in(value: ast.expr, count: int, joint: str = "") -> tuple[ast.expr, ...]:
    """What the value multiplies or adds, where it does so with as many; joint: the sign that a comment has for it."""
    for node in ast.walk(value):
        if isinstance(node, ast.BinOp) and count == 2 and isinstance(node.op, _SIGNS.get(joint, ast.MatMult)):
            return node.left, node.right
    if joint in ("+", "-"):
        return ()
    for node in ast.walk(value):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and count == 2:
            return node.left, node.right
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            args = [each for each in node.args if not isinstance(each, ast.Constant)]
            if name in _MATMUL and len(args) == count:
                return tuple(args)
            if name in _MATMUL and len(args) == count - 1 and isinstance(node.func, ast.Attribute):
                return (node.func.value, *args)
    return ()


def expressions_in(statement: ast.stmt) -> list[ast.expr]:
    """What may be a tensor in the statement's value: not the function of a call, nor what a lambda computes."""
    value = getattr(statement, "value", None)
    found: list[ast.expr] = []

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return
        if isinstance(node, ast.Call):
            found.append(node)
            if isinstance(node.func, ast.Attribute):
                walk(node.func.value)
            for each in (*node.args, *(keyword.value for keyword in node.keywords)):
                walk(each)
            return
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.BinOp | ast.UnaryOp):
            found.append(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return
        for child in ast.iter_child_nodes(node):
            walk(child)

    if value is not None:
        walk(value)
    return found


def expression_ending_at(statement: ast.stmt, row: int) -> ast.expr | None:
    """The one largest expression that ends on the row, inside a statement of several rows."""
    value = getattr(statement, "value", None)
    ending = [each for each in expressions_in(statement) if each.end_lineno == row and each is not value]
    largest = [each for each in ending if not any(other is not each and _contains(other, each) for other in ending)]
    return largest[0] if len(largest) == 1 else None


def _contains(outer: ast.expr, inner: ast.expr) -> bool:
    return any(each is inner for each in ast.walk(outer))


def registered_name(statement: ast.stmt) -> str:
    call = getattr(statement, "value", None)
    if (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("register_buffer", "register_parameter")
    ):
        first = call.args[0] if call.args else None
        return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    return ""
