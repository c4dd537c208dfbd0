"""Operands that lie on two devices, or have dtypes that do not go together."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from shapetrace.recorder.crash.hints.evidence import Evidence, dtype, is_float
from shapetrace.recorder.crash.operation import Term

_LOSSES = ("cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss")
# Which operand of a function holds ids or positions.
_INDEX_AT = {
    **{"embedding": 0, "Embedding": 0, "index": 1, "gather": 1, "index_select": 1, "scatter": 1, "scatter_add": 1},
    **{"index_add": 1, "index_copy": 1, "index_fill": 1, "take_along_dim": 1},
}
# Functions that need all their floating point operands in one dtype.
_OF_ONE_DTYPE = (
    *("matmul", "mm", "bmm", "addmm", "baddbmm", "linear", "Linear", "einsum", "scaled_dot_product_attention"),
    *("conv1d", "conv2d", "conv3d", "Conv1d", "Conv2d", "Conv3d", "LSTM", "GRU", "layer_norm", "LayerNorm"),
)


def explain(evidence: Evidence) -> Iterator[str]:
    """Devices, numbers that a dtype does not hold, masks that are no bool, ids that are no whole numbers, dtypes."""
    operation = evidence.operation
    yield from _devices(evidence)
    if evidence.says(r"cannot be converted to type .* without overflow") and operation.tensors:
        first = operation.tensors[0]
        assert first.tensor is not None
        yield (
            f"the smallest number of {dtype(first)}, which {first.text} has, is "
            f"{torch.finfo(first.tensor.dtype).min:g}: fill with float('-inf') or torch.finfo({first.text}.dtype).min"
        )
    if operation.name == "masked_fill" and evidence.says(r"bool") and len(operation.tensors) > 1:
        mask = operation.tensors[1]
        yield (
            f"{mask.text} is {dtype(mask)}, and a mask is bool, True where it fills: {mask.apply('.bool()')} fills "
            f"where it is not 0, {mask.apply(' == 0')} where it is"
        )
    if evidence.says(r"Long|int64|Int\b|integer|indices must be|scalar type|dtype"):
        yield from _ids(evidence)
    if operation.name in _OF_ONE_DTYPE and evidence.says(r"dtype|scalar type|same type|Half|BFloat16|Double"):
        floats = [term for term in operation.tensors if is_float(term)]
        if len({dtype(term) for term in floats}) > 1:
            yield ", ".join(f"{term.text} is {dtype(term)}" for term in floats) + ": bring them to one dtype"


def _devices(evidence: Evidence) -> Iterator[str]:
    tensors = [(term.text, term.tensor) for term in evidence.operation.tensors if term.tensor is not None]
    devices = {text: evidence.expressions.device_of(tensor) for text, tensor in tensors}
    if len(set(devices.values())) > 1 and evidence.says(r"device|meta"):
        yield ", ".join(f"{text} is on {device}" for text, device in devices.items()) + _unregistered(evidence)


def _ids(evidence: Evidence) -> Iterator[str]:
    """The operand that has to be whole numbers, where it is not."""
    operation = evidence.operation
    if operation.name in _LOSSES and len(operation.tensors) > 1:
        targets = operation.tensors[1]
        if dtype(targets) != "int64":
            yield f"{targets.text} is {dtype(targets)}, and the numbers of classes are int64"
    place = _INDEX_AT.get(operation.name)
    if place is None:
        return
    for term in operation.terms[1:] if operation.name == "index" else operation.tensors[place : place + 1]:
        if term.tensor is not None and (is_float(term) or term.tensor.is_complex()):
            yield f"{term.text} is {dtype(term)}, and ids are whole numbers: int64"


def _unregistered(evidence: Evidence) -> str:
    """A tensor that is a plain attribute of the module does not move with it."""
    owner = evidence.site.frame.f_locals.get("self")
    if isinstance(owner, nn.Module):
        for term in evidence.operation.tensors:
            name = _attribute_in(term)
            if isinstance(vars(owner).get(name), Tensor):
                return f"; self.{name} is a plain attribute, which does not move with the module: use register_buffer"
    return ""


def _attribute_in(term: Term) -> str:
    """`mask` of `self.mask[:7]`."""
    return term.text.removeprefix("self.").partition("[")[0] if term.text.startswith("self.") else ""
