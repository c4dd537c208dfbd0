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
# Functions that take tensors in a list.
_OF_LISTS = ("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "einsum", "block_diag")


@dataclass(frozen=True, slots=True)
class Term:
    """One operand: its text and its value, None where that is not known."""

    text: str
    value: Any = None
    node: ast.AST | None = None

    @property
    def tensor(self) -> Tensor | None:
        return self.value if isinstance(self.value, Tensor) else None

    def apply(self, suffix: str) -> str:
        """`x.T`, `(x + 1).T`: the text with the suffix, in brackets where it needs them."""
        simple = self.node is None or isinstance(self.node, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        return f"{self.text}{suffix}" if simple else f"({self.text}){suffix}"


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
    node, around = site.node, site.around
    reader = _Reader(site, expressions)
    match node:
        case ast.BinOp():
            return Operation(_BINARY.get(type(node.op), "binary"), (reader.term(node.left), reader.term(node.right)))
        case ast.AugAssign():
            terms = (reader.term(node.target), reader.term(node.value))
            return Operation(_BINARY.get(type(node.op), "binary"), terms, in_place=True)
        case ast.Compare():
            return Operation("compare", tuple(map(reader.term, (node.left, *node.comparators))))
        case ast.Subscript(ctx=ast.Store()) if isinstance(around, ast.Assign):
            return Operation("setitem", (reader.term(node), reader.term(around.value)))
        case ast.Subscript():
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            return Operation("index", (reader.term(node.value), *map(reader.term, parts)))
        case ast.Call():
            return reader.call(node)
        case ast.Attribute():
            return Operation("attribute", (reader.term(node.value),), {"name": node.attr})
        case ast.Tuple() | ast.List() if isinstance(around, ast.Assign) and node in around.targets:
            return reader.unpacking(node, around.value)
    return Operation("")


def named_tensors(site: Site, expressions: Expressions) -> tuple[Term, ...]:
    """Every tensor that is named where it failed, for where what was computed from them is not known."""
    return tuple(_Reader(site, expressions).places(site.node)) if site.node is not None else ()


def call_of_module(module: nn.Module, name: str, arguments: tuple[Term, ...], keywords: dict[str, Any]) -> Operation:
    """A call of a module; one of torch's own computes with its parameters, so that they are operands too."""
    home = type(module).__module__
    if home.startswith("einops.layers") and isinstance(vars(module).get("pattern"), str):
        sizes = dict(vars(module).get("axes_lengths") or {})
        terms = (*arguments, Term("pattern", vars(module)["pattern"]))
        return Operation(type(module).__name__.lower(), terms, sizes, module, module_name=name)
    own = [(key, each) for key, each in module.named_parameters(recurse=False) if not nn.parameter.is_lazy(each)]
    owned = [Term(f"{name}.{key}" if name else key, each) for key, each in own] if home.startswith("torch.nn.") else []
    return Operation(type(module).__name__, (*arguments, *owned), keywords, module, module_name=name)


class _Reader:
    def __init__(self, site: Site, expressions: Expressions):
        self._site = site
        self._expressions = expressions

    def term(self, node: ast.AST) -> Term:
        try:
            return Term(self._site.write(node), self._expressions.value_of(node), node)
        except Unknown:
            return Term(self._site.write(node), None, node)

    def _terms_of_list(self, node: ast.AST) -> tuple[Term, ...]:
        """The items of a list, be it written out or kept in a variable."""
        if isinstance(node, ast.Starred):
            return self._terms_of_list(node.value)
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(term for each in node.elts for term in self._terms_of_list(each))
        term = self.term(node)
        if isinstance(term.value, tuple | list) and any(isinstance(each, Tensor) for each in term.value):
            return tuple(Term(term.apply(f"[{index}]"), each) for index, each in enumerate(term.value))
        return (term,)

    def call(self, node: ast.Call) -> Operation:
        callee = self.term(node.func)
        owner = self.term(node.func.value) if isinstance(node.func, ast.Attribute) else None
        is_method = owner is not None and owner.tensor is not None
        library = callee.value.__name__ if callee.value is not None and is_library(callee.value) else ""
        name = node.func.attr if is_method and isinstance(node.func, ast.Attribute) else library
        starred = [each for each in node.args if isinstance(each, ast.Starred)]
        read = self._terms_of_list if name in _OF_LISTS or starred else lambda each: (self.term(each),)
        arguments = tuple(term for each in node.args for term in read(each))
        named = {each.arg: self.term(each.value) for each in node.keywords if each.arg}
        arguments += tuple(each for key, each in named.items() if isinstance(each.value, Tensor) and key != "out")
        keywords = {key: each.value for key, each in named.items()}
        if is_method and owner is not None:
            in_place = name.endswith("_") and not name.endswith("__")
            return Operation(name.rstrip("_"), (owner, *arguments), keywords, in_place=in_place)
        if isinstance(callee.value, nn.Module):
            return call_of_module(callee.value, callee.text, arguments, keywords)
        return Operation(name, arguments, keywords, callee.value)

    def unpacking(self, target: ast.Tuple | ast.List, value: ast.expr) -> Operation:
        """`b, t = x.shape` and `b, t = x.size()` unpack axes; anything else its items."""
        shape_of = None
        if isinstance(value, ast.Attribute) and value.attr == "shape":
            shape_of = value.value
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "size":
            shape_of = value.func.value if not (value.args or value.keywords) else None
        facts = {
            "count": len(target.elts),
            "first": ast.unparse(target.elts[0]) if target.elts else "",
            "starred": any(isinstance(each, ast.Starred) for each in target.elts),
        }
        if shape_of is not None:
            return Operation("unpack axes", (self.term(shape_of),), facts)
        return Operation("unpack", (self.term(value),), facts)

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
