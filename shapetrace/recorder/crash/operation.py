"""A failing expression as an operation with operands, however it is written: `a @ b`, `a.matmul(b)`, `linear(x)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from shapetrace.recorder.crash.expressions import Expressions, Unknown, is_library
from shapetrace.recorder.crash.site import Site

_BINARY: dict[type, str] = {
    **{ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow", ast.MatMult: "matmul"},
    **{ast.FloorDiv: "floor_divide", ast.Mod: "remainder", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or"},
}


@dataclass(frozen=True, slots=True)
class Term:
    """One operand: its text and its value, None where that is not known."""

    text: str
    value: Any = None

    @property
    def tensor(self) -> Tensor | None:
        return self.value if isinstance(self.value, Tensor) else None


@dataclass(frozen=True, slots=True)
class Operation:
    """What was to be computed: `matmul`, `einsum`, `view`, `index`, ...; "" where nobody knows."""

    name: str
    terms: tuple[Term, ...] = ()  # in the order in which they are written; a list of tensors counts as several
    keywords: dict[str, Any] = field(default_factory=dict)
    callee: Any = None  # the function or module that was called
    in_place: bool = False
    module_name: str = ""  # as written, where the callee is a module

    @property
    def tensors(self) -> list[Term]:
        return [each for each in self.terms if each.tensor is not None]


def read_operation(site: Site, expressions: Expressions) -> Operation:
    """The operation that failed; one without a name where the source does not tell."""
    node = site.node
    reader = _Reader(site, expressions)
    match node:
        case ast.BinOp():
            return Operation(
                _BINARY.get(type(node.op), "binary"), (*reader.terms(node.left), *reader.terms(node.right))
            )
        case ast.AugAssign():
            terms = (*reader.terms(node.target), *reader.terms(node.value))
            return Operation(_BINARY.get(type(node.op), "binary"), terms, in_place=True)
        case ast.Compare():
            parts = (node.left, *node.comparators)
            return Operation("compare", tuple(term for each in parts for term in reader.terms(each)))
        case ast.Subscript():
            return Operation("index", (*reader.terms(node.value), *reader.index(node.slice)))
        case ast.Call():
            return reader.call(node)
        case ast.Attribute():
            return Operation("attribute", reader.terms(node.value), {"name": node.attr})
        case ast.Tuple() | ast.List() | ast.Assign() if isinstance(site.around, ast.Assign) and _unpacks(node):
            return Operation("unpack", reader.unpacked(site.around.value), _targets(site.around))
    return Operation("", tuple(reader.places(node)) if node is not None else ())


def _unpacks(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) or isinstance(getattr(node, "ctx", None), ast.Store)


def _targets(statement: ast.Assign) -> dict[str, Any]:
    """How many names are bound, and the first."""
    target = statement.targets[0]
    names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return {"count": len(names), "first": ast.unparse(names[0]) if names else ""}


def call_of_module(module: nn.Module, name: str, arguments: tuple[Term, ...], keywords: dict[str, Any]) -> Operation:
    """A call of a module; one of torch's own computes with its parameters, so that they are operands too."""
    is_torchs = type(module).__module__.startswith("torch.nn.")
    own = [(key, each) for key, each in module.named_parameters(recurse=False) if not nn.parameter.is_lazy(each)]
    owned = [Term(f"{name}.{key}" if name else key, each) for key, each in own] if is_torchs else []
    return Operation(type(module).__name__, (*arguments, *owned), keywords, module, module_name=name)


class _Reader:
    def __init__(self, site: Site, expressions: Expressions):
        self._site = site
        self._expressions = expressions

    def term(self, node: ast.AST) -> Term:
        try:
            return Term(self._site.write(node), self._expressions.value_of(node))
        except Unknown:
            return Term(self._site.write(node))

    def terms(self, node: ast.AST) -> tuple[Term, ...]:
        """The term; the items of a list that is written out as terms of their own."""
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(term for each in node.elts for term in self.terms(each))
        if isinstance(node, ast.Starred):
            node = node.value
        term = self.term(node)
        is_list = isinstance(term.value, tuple | list) and any(isinstance(each, Tensor) for each in term.value)
        if is_list and not isinstance(node, ast.Call):
            return tuple(Term(f"{term.text}[{index}]", each) for index, each in enumerate(term.value))
        return (term,)

    def index(self, node: ast.AST) -> tuple[Term, ...]:
        return self.terms(node) if not isinstance(node, ast.Slice) else (self.term(node),)

    def call(self, node: ast.Call) -> Operation:
        arguments = tuple(term for each in node.args for term in self.terms(each))
        named = {each.arg: self.term(each.value) for each in node.keywords if each.arg}
        arguments += tuple(each for each in named.values() if isinstance(each.value, Tensor))
        keywords = {key: each.value for key, each in named.items()}
        if isinstance(node.func, ast.Attribute):
            owner = self.term(node.func.value)
            if isinstance(owner.value, Tensor):
                name = node.func.attr
                in_place = name.endswith("_") and not name.endswith("__")
                return Operation(name.rstrip("_"), (owner, *arguments), keywords, in_place=in_place)
        callee = self.term(node.func)
        if isinstance(callee.value, nn.Module):
            return call_of_module(callee.value, callee.text, arguments, keywords)
        name = getattr(callee.value, "__name__", "") if is_library(callee.value) else ""
        return Operation(name, arguments, keywords, callee.value)

    def unpacked(self, node: ast.AST) -> tuple[Term, ...]:
        """`x` of `x.shape` and `x.size()`, else the value itself."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size":
            return self.terms(node.func.value)
        if isinstance(node, ast.Attribute) and node.attr == "shape":
            return self.terms(node.value)
        return self.terms(node)

    def places(self, node: ast.AST) -> Iterator[Term]:
        """Every tensor that is named in the node, the largest expression of names first."""
        seen: set[str] = set()
        queue = [node]
        while queue:
            each = queue.pop(0)
            if isinstance(each, ast.Name | ast.Attribute | ast.Subscript):
                term = self.term(each)
                if isinstance(term.value, Tensor):
                    if term.text not in seen:
                        seen.add(term.text)
                        yield term
                    continue
            queue += [child for child in ast.iter_child_nodes(each) if not isinstance(child, ast.stmt)]
