"""Sums, masks and other functions entry by entry: the axes that do not broadcast, counted from the last."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch import nn

from shapetrace.recorder.crash.hints.evidence import Evidence, shape, told
from shapetrace.recorder.crash.operation import Term

_FUNCTIONS = {
    *("add", "sub", "mul", "div", "pow", "floor_divide", "remainder", "bitwise_and", "bitwise_or", "binary", "compare"),
    *("masked_fill", "where", "maximum", "minimum", "true_divide", "multiply", "subtract", "divide", "lerp", "addcmul"),
    *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "copy", "atan2", "fmod", "mse_loss", "setitem"),
}
_REDUCTIONS = {
    *("mean", "sum", "var", "std", "max", "min", "amax", "amin", "norm", "prod", "logsumexp", "median", "any", "all"),
    *("argmax", "argmin", "count_nonzero", "nanmean", "nansum"),
}


def explain(evidence: Evidence) -> Iterator[str]:
    """The first two operands that do not broadcast, the axis, and what is meant where the source tells."""
    operation = evidence.operation
    if operation.name not in _FUNCTIONS:
        return
    tensors = operation.tensors
    for index, right in enumerate(tensors):
        for left in tensors[:index]:
            yield from _broadcast(evidence, left, right)
    if operation.in_place and len(tensors) > 1 and evidence.says("broadcast shape"):
        yield f"{told(tensors[1])} would make {told(tensors[0])} larger, and what is changed in place cannot grow"


def _broadcast(evidence: Evidence, left: Term, right: Term) -> Iterator[str]:
    a, b = shape(left), shape(right)
    for back, (one, two) in enumerate(zip(reversed(a), reversed(b), strict=False), start=1):
        if one != two and 1 not in (one, two):
            sentence = f"axis {len(a) - back} of {told(left)} is {one}, axis {len(b) - back} of {told(right)} is {two}"
            found = (_keepdim(evidence, *pair) for pair in ((left, right), (right, left)))
            yield sentence + (next(filter(None, found), "") or _longer(evidence, left, right, back))
            return


def _keepdim(evidence: Evidence, whole: Term, reduced: Term) -> str:
    """Whether one is what a reduction over an axis of the other left."""
    a, b = shape(whole), shape(reduced)
    lost = [axis for axis in range(len(a)) if a[:axis] + a[axis + 1 :] == b] if len(b) == len(a) - 1 else []
    if not lost or not _is_reduction(_source_of(evidence, reduced)):
        return ""
    return f"; {reduced.text} is {whole.text} without axis {lost[0]}: keepdim=True keeps it as 1"


def _is_reduction(node: ast.AST | None) -> bool:
    if not isinstance(node, ast.Call) or any(each.arg == "keepdim" for each in node.keywords):
        return False
    return isinstance(node.func, ast.Attribute) and node.func.attr in _REDUCTIONS


def _longer(evidence: Evidence, left: Term, right: Term, back: int) -> str:
    """A table of the module's that was made for more positions than there are: the one axis on which they differ."""
    short, long = sorted((left, right), key=lambda each: shape(each)[-back])
    others = zip(reversed(shape(left)), reversed(shape(right)), strict=False)
    differing = sum(one != two and 1 not in (one, two) for one, two in others)
    if differing != 1 or back == 1 or not _is_table(evidence, long):
        return ""
    size = shape(short)[-back]
    before = ":, " * (len(shape(long)) - back)
    return f"; of {long.text} the first {size} are {long.apply(f'[{before}:{size}]')}"


def _is_table(evidence: Evidence, term: Term) -> bool:
    """Whether it is a parameter or a buffer of the module, as it is."""
    owner = evidence.site.frame.f_locals.get("self")
    own = [*owner.parameters(), *owner.buffers()] if isinstance(owner, nn.Module) else []
    return any(each is term.tensor for each in own)


def _source_of(evidence: Evidence, term: Term) -> ast.AST | None:
    """The expression that made it: its own, or the one that was assigned to its name."""
    return evidence.site.value_bound_to(term.text) if isinstance(term.node, ast.Name) else term.node
