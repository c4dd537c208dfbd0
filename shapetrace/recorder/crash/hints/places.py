"""Operands that lie on two devices, or have dtypes that do not go together."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from shapetrace.recorder.crash.hints.evidence import Evidence, told
from shapetrace.recorder.crash.operation import Term


def explain(evidence: Evidence) -> Iterator[str]:
    """Devices, dtypes, numbers that a dtype does not hold, masks that are no bool."""
    operation = evidence.operation
    devices = {
        term.text: evidence.expressions.device_of(term.tensor) for term in operation.tensors if term.tensor is not None
    }
    if len(set(devices.values())) > 1 and evidence.says(r"device|meta"):
        yield ", ".join(f"{text} is on {device}" for text, device in devices.items()) + _unregistered(evidence)
    overflow = evidence.says(r"cannot be converted to type .* without overflow")
    if overflow and operation.tensors:
        first = operation.tensors[0]
        assert first.tensor is not None
        lowest = torch.finfo(first.tensor.dtype).min
        name = str(first.tensor.dtype).removeprefix("torch.")
        yield (
            f"the smallest number of {name}, which {first.text} has, is {lowest:g}: "
            f"fill with float('-inf') or torch.finfo({first.text}.dtype).min"
        )
    if operation.name == "masked_fill" and evidence.says(r"bool"):
        mask = operation.tensors[1]
        assert mask.tensor is not None
        yield f"{mask.text} is {_dtype(mask)}, and a mask is bool: {mask.text} == 0, or {mask.text}.bool()"
    if evidence.says(r"Long, Int|tensors used as indices must be|[Ee]xpected .*(Long|int64|integer).*"):
        floats = [term for term in operation.tensors if term.tensor is not None and term.tensor.is_floating_point()]
        ids = [term for term in floats if not _is_parameter(term, evidence)]
        if ids:
            yield f"{ids[0].text} is {_dtype(ids[0])}, and ids are whole numbers: int64"
    if evidence.says(r"dtype|scalar type|same type|type .*Float|Half|BFloat16|Double"):
        dtypes = {term.text: _dtype(term) for term in operation.tensors}
        if len(set(dtypes.values())) > 1:
            yield ", ".join(f"{text} is {dtype}" for text, dtype in dtypes.items()) + ": bring them to one dtype"


def _dtype(term: Term) -> str:
    assert term.tensor is not None
    return str(term.tensor.dtype).removeprefix("torch.")


def _is_parameter(term: Term, evidence: Evidence) -> bool:
    return isinstance(term.tensor, nn.Parameter) or told(term).startswith("self.")


def _unregistered(evidence: Evidence) -> str:
    """A tensor that is a plain attribute of the module does not move with it."""
    owner = evidence.site.frame.f_locals.get("self")
    if isinstance(owner, nn.Module):
        for term in evidence.operation.tensors:
            name = term.text.removeprefix("self.").partition("[")[0]
            if isinstance(vars(owner).get(name), Tensor):
                return f"; self.{name} is a plain attribute, which does not move with the module: use register_buffer"
    return ""
