"""Products of matrices: `@`, matmul, linear and nn.Linear."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch import Tensor, nn

from shapetrace.recorder.crash.expressions import Unknown
from shapetrace.recorder.crash.hints.evidence import Evidence, shape, told
from shapetrace.recorder.crash.operation import Term

_PRODUCTS = ("matmul", "mm", "bmm")
_SUMS = ("addmm", "baddbmm")  # of a tensor and a product


def explain(evidence: Evidence) -> Iterator[str]:
    """The inner sizes, and whether one of the two fits transposed; then the batch axes."""
    operation = evidence.operation
    tensors = operation.tensors
    if operation.name in _PRODUCTS and len(operation.terms) == len(tensors) == 2:
        yield from _product(evidence, *tensors)
    elif operation.name in _SUMS and len(tensors) == 3:
        yield from _product(evidence, *tensors[1:])
    elif operation.name == "linear" and len(tensors) >= 2:
        yield from _linear(tensors[0], tensors[1].text, tensors[1].tensor)
    elif isinstance(operation.callee, nn.Linear) and tensors:
        name = f"{operation.module_name}.weight" if operation.module_name else "weight"
        yield from _linear(tensors[0], name, operation.callee.weight)
    elif operation.name == "scaled_dot_product_attention" and len(tensors) >= 3:
        yield from _attention(*tensors[:3])


def _product(evidence: Evidence, left: Term, right: Term) -> Iterator[str]:
    a, b = shape(left), shape(right)
    if not a or not b:
        yield f"{told(left if not a else right)} has no axis to sum over"
        return
    inner = b[-2] if len(b) > 1 else b[0]
    if a[-1] != inner:
        axis = f"axis {max(len(b) - 2, 0)} of {told(right)}"
        sentence = f"the inner sizes differ: {a[-1]} is axis {len(a) - 1} of {told(left)}, {inner} is {axis}"
        fits_right = len(b) > 1 and b[-1] == a[-1]
        fits_left = len(a) > 1 and a[-2] == inner
        if fits_right and not (fits_left and len(a) == 2):
            sentence += f"; it fits transposed: {_transposed(evidence, right)}"
        elif fits_left and not fits_right:
            sentence += f"; {left.text} fits transposed: {_transposed(evidence, left)}"
        yield sentence
        return
    for back, (one, other) in enumerate(zip(reversed(a[:-2]), reversed(b[:-2]), strict=False), start=3):
        if one != other and 1 not in (one, other):
            yield (
                f"the batch axes differ: axis {len(a) - back} of {told(left)} is {one}, "
                f"axis {len(b) - back} of {told(right)} is {other}"
            )


def _transposed(evidence: Evidence, term: Term) -> str:
    """`W.T` of `W`, and `W` of `W.T`."""
    node = term.node
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        try:
            if isinstance(evidence.expressions.value_of(node.value), Tensor):
                return evidence.site.write(node.value)
        except Unknown:
            pass
    return term.apply(".T" if len(shape(term)) == 2 else ".mT")


def _linear(given: Term, name: str, weight: Tensor | None) -> Iterator[str]:
    if weight is None or weight.ndim != 2:
        return
    sizes = shape(given)
    if not sizes:
        yield f"{given.text} is a number without axes, and {name} {tuple(weight.shape)} takes {weight.shape[1]}"
    elif sizes[-1] != weight.shape[1]:
        sentence = (
            f"{name} {tuple(weight.shape)} takes {weight.shape[1]}, and the last axis of {told(given)} is {sizes[-1]}"
        )
        if weight.shape[0] == sizes[-1]:
            sentence += "; the weight fits transposed"
        elif weight.shape[1] in sizes[:-1]:
            sentence += f"; axis {sizes.index(weight.shape[1])} of {given.text} is {weight.shape[1]}"
        yield sentence


def _attention(query: Term, key: Term, value: Term) -> Iterator[str]:
    q, k, v = shape(query), shape(key), shape(value)
    if q[-1] != k[-1]:
        yield f"the last axes of {told(query)} and {told(key)} differ: both are d_head"
    elif k[-2] != v[-2]:
        yield f"axis {len(k) - 2} of {told(key)} and of {told(value)} differ: both are the position of the key"
