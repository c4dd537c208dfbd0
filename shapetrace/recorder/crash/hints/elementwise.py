"""Sums, masks and other functions entry by entry: the axes that do not broadcast, counted from the last."""

from __future__ import annotations

from collections.abc import Iterator

from shapetrace.recorder.crash.hints.evidence import Evidence, shape, told
from shapetrace.recorder.crash.operation import Term

_FUNCTIONS = {
    *("add", "sub", "mul", "div", "pow", "floor_divide", "remainder", "bitwise_and", "bitwise_or", "binary", "compare"),
    *("masked_fill", "where", "maximum", "minimum", "true_divide", "multiply", "subtract", "divide", "lerp", "addcmul"),
    *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "copy", "atan2", "fmod", "dropout", "mse_loss"),
}


def explain(evidence: Evidence) -> Iterator[str]:
    """The first two operands that do not broadcast, the axis, and what is usually meant."""
    operation = evidence.operation
    if operation.name not in _FUNCTIONS:
        return
    tensors = operation.tensors
    for index, right in enumerate(tensors):
        for left in tensors[:index]:
            yield from _broadcast(left, right)
    if operation.in_place and len(tensors) > 1 and evidence.says("broadcast shape"):
        yield f"{told(tensors[1])} would make {told(tensors[0])} larger, and what is changed in place cannot grow"


def _broadcast(left: Term, right: Term) -> Iterator[str]:
    a, b = shape(left), shape(right)
    for back, (one, two) in enumerate(zip(reversed(a), reversed(b), strict=False), start=1):
        if one != two and 1 not in (one, two):
            sentence = f"axis {len(a) - back} of {told(left)} is {one}, axis {len(b) - back} of {told(right)} is {two}"
            yield sentence + (_keepdim(left, right) or _keepdim(right, left) or _longer(left, right, back))
            return


def _keepdim(whole: Term, reduced: Term) -> str:
    """Whether one is the other with one axis gone, as after a mean without keepdim."""
    a, b = shape(whole), shape(reduced)
    lost = [axis for axis in range(len(a)) if a[:axis] + a[axis + 1 :] == b] if len(b) == len(a) - 1 else []
    return f"; {reduced.text} is {whole.text} without axis {lost[0]}: keepdim=True keeps it as 1" if lost else ""


def _longer(left: Term, right: Term, back: int) -> str:
    """A table or mask that was made for more, or fewer, than there are: the one axis on which they differ."""
    short, long = sorted((left, right), key=lambda each: shape(each)[-back])
    others = zip(reversed(shape(left)), reversed(shape(right)), strict=False)
    differing = sum(one != two and 1 not in (one, two) for one, two in others)
    if differing != 1 or len(shape(long)) > len(shape(short)):
        return ""
    size = shape(short)[-back]
    before = ":, " * (len(shape(long)) - back)
    return f"; where {long.text} is a table or a mask for more positions, take {long.text}[{before}:{size}]"
