"""Products of matrices: `@`, matmul, linear and nn.Linear."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from shapetrace.recorder.crash.hints.evidence import Evidence, shape, told
from shapetrace.recorder.crash.operation import Term

_PRODUCTS = ("matmul", "mm", "bmm", "dot", "mv", "baddbmm", "addmm")


def explain(evidence: Evidence) -> Iterator[str]:
    """The inner sizes, and whether one of the two fits transposed; then the batch axes."""
    operation = evidence.operation
    if operation.name in _PRODUCTS and len(operation.tensors) >= 2:
        yield from _product(*operation.tensors[-2:])
    elif operation.name in ("linear", "Linear") or isinstance(operation.callee, nn.Linear):
        yield from _linear(evidence)
    elif operation.name == "scaled_dot_product_attention" and len(operation.tensors) >= 3:
        yield from _attention(*operation.tensors[:3])
    elif isinstance(evidence.module, nn.Linear) and not operation.tensors:
        return


def _product(left: Term, right: Term) -> Iterator[str]:
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
            sentence += f"; it fits transposed: {_transposed(right)}"
        elif fits_left and not fits_right:
            sentence += f"; {left.text} fits transposed: {_transposed(left)}"
        yield sentence
        return
    for back, (one, other) in enumerate(zip(reversed(a[:-2]), reversed(b[:-2]), strict=False), start=3):
        if one != other and 1 not in (one, other):
            yield (
                f"the batch axes differ: axis {len(a) - back} of {told(left)} is {one}, "
                f"axis {len(b) - back} of {told(right)} is {other}"
            )


def _transposed(term: Term) -> str:
    for ending in (".T", ".mT"):
        if term.text.endswith(ending):
            return term.text.removesuffix(ending)
    return term.text + (".T" if len(shape(term)) == 2 else ".mT")


def _linear(evidence: Evidence) -> Iterator[str]:
    operation = evidence.operation
    module = operation.callee if isinstance(operation.callee, nn.Linear) else None
    first = operation.tensors[0]
    weight = module.weight if module is not None else operation.tensors[1].tensor
    name = f"{operation.module_name}.weight" if module is not None else operation.tensors[1].text
    assert isinstance(weight, Tensor)
    width = shape(first)[-1] if shape(first) else 1
    if weight.ndim == 2 and width != weight.shape[1]:
        sentence = (
            f"{name} {tuple(weight.shape)} takes {weight.shape[1]}, and the last axis of {told(first)} is {width}"
        )
        if weight.shape[0] == width:
            sentence += "; the weight fits transposed"
        elif weight.shape[1] in shape(first)[:-1]:
            sentence += f"; axis {shape(first).index(weight.shape[1])} of {first.text} is {weight.shape[1]}"
        yield sentence


def _attention(query: Term, key: Term, value: Term) -> Iterator[str]:
    q, k, v = shape(query), shape(key), shape(value)
    if q[-1] != k[-1]:
        yield f"the last axes of {told(query)} and {told(key)} differ: both are d_head"
    elif k[-2] != v[-2]:
        yield f"axis {len(k) - 2} of {told(key)} and of {told(value)} differ: both are the position of the key"
