"""Calls and assignments that do not fit: arguments, tuples, numbers of values, layers of another width."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn

from shapetrace.recorder.crash.hints.evidence import BATCH, Evidence, shape, told
from shapetrace.recorder.crash.operation import Term


def explain(evidence: Evidence) -> Iterator[str]:
    """What a call was not given, or given too much, and what a tuple was taken for."""
    operation = evidence.operation
    if evidence.kind is TypeError and evidence.says(r"missing \d+ required|unexpected keyword|takes .* argument"):
        yield from _signature(operation.callee, operation.module_name or _name_of(operation.callee))
    if evidence.kind is AttributeError:
        yield from _attribute(evidence)
    for term in operation.terms:
        if operation.name in ("add", "sub", "mul", "div", "matmul") or evidence.kind in (TypeError, AttributeError):
            yield from _tuple(term)
    if operation.name == "unpack":
        yield from _unpack(evidence)
    if operation.name == "cross_entropy" or isinstance(operation.callee, nn.CrossEntropyLoss):
        yield from _cross_entropy(operation.tensors)
    if isinstance(operation.callee, nn.LayerNorm) and operation.tensors:
        yield from _layer_norm(operation.callee, operation.module_name, operation.tensors[0])
    if isinstance(operation.callee, nn.Conv1d | nn.Conv2d | nn.Conv3d) and operation.tensors:
        yield from _convolution(operation.callee, operation.module_name, operation.tensors[0])
    if isinstance(operation.callee, nn.RNNBase) and operation.tensors:
        yield from _width(operation.callee.input_size, operation.module_name, operation.tensors[0])


def _name_of(callee: Any) -> str:
    return str(getattr(callee, "__name__", "it"))


def _signature(callee: Any, name: str) -> Iterator[str]:
    function = callee.forward if isinstance(callee, nn.Module) else callee
    if callable(function):
        signature = inspect.signature(function).replace(return_annotation=inspect.Signature.empty)
        yield f"{name} takes {signature}"


def _attribute(evidence: Evidence) -> Iterator[str]:
    """The nearest name, which Python does not tell of a module."""
    found = evidence.says(r"'(\w+)' object has no attribute '(\w+)'")
    owner = evidence.site.frame.f_locals.get("self")
    if found and isinstance(owner, nn.Module) and type(owner).__name__ == found[1]:
        names = [*owner._parameters, *owner._buffers, *owner._modules, *vars(owner)]
        near = get_close_matches(found[2], [name for name in names if not name.startswith("_")], n=1, cutoff=0.6)
        yield from (f"did you mean self.{name}?" for name in near)


def _tuple(term: Term) -> Iterator[str]:
    value = term.value
    if isinstance(value, tuple | list) and any(isinstance(each, Tensor) for each in value):
        inner = ", ".join(str(tuple(each.shape)) if isinstance(each, Tensor) else str(each) for each in value)
        first = next(index for index, each in enumerate(value) if isinstance(each, Tensor))
        yield f"{term.text} is a {type(value).__name__} of {inner}: take {term.text}[{first}]"


def _unpack(evidence: Evidence) -> Iterator[str]:
    count, terms = evidence.operation.keywords["count"], evidence.operation.tensors
    if not terms:
        return
    axes = len(shape(terms[0]))
    if axes != count:
        is_batch = evidence.operation.keywords["first"] in BATCH and axes == count - 1 and shape(terms[0])[:1] != (1,)
        missing = f"; is the batch axis missing? {terms[0].text}[None] adds it" if is_batch else ""
        yield f"{told(terms[0])} has {axes} {'axis' if axes == 1 else 'axes'}, and {count} are unpacked{missing}"


def _cross_entropy(terms: list[Term]) -> Iterator[str]:
    logits, targets = terms[0], terms[1]
    if (
        len(shape(logits)) == len(shape(targets)) + 1
        and shape(logits)[:-1] == shape(targets)
        and len(shape(logits)) > 2
    ):
        yield (
            f"the classes have to be axis 1 of {told(logits)}, for {told(targets)}: "
            f"{logits.text}.transpose(1, 2), or flatten both: {logits.text}.flatten(0, -2), {targets.text}.flatten()"
        )
    elif shape(logits)[:1] != shape(targets)[:1]:
        yield f"axis 0 of {told(logits)} and of {told(targets)} differ"


def _layer_norm(norm: nn.LayerNorm, name: str, term: Term) -> Iterator[str]:
    sizes = tuple(norm.normalized_shape)
    if shape(term)[-len(sizes) :] != sizes:
        written = sizes[0] if len(sizes) == 1 else sizes
        sentence = f"{name} was made for a last axis of {written}, and that of {told(term)} is {shape(term)[-1]}"
        others = [index for index, size in enumerate(shape(term)[:-1]) if size == sizes[0]]
        yield sentence + (f"; {sizes[0]} is axis {others[0]}" if others and len(sizes) == 1 else "")


def _convolution(layer: Any, name: str, term: Term) -> Iterator[str]:
    axes, spatial = len(shape(term)), len(layer.kernel_size)
    if axes not in (spatial + 1, spatial + 2):
        yield f"{name} takes (batch, channels, ...) of {spatial + 2} axes, and {told(term)} has {axes}"
        return
    channels = shape(term)[-spatial - 1]
    if channels != layer.in_channels:
        yield f"axis {axes - spatial - 1} of {told(term)} is {channels}, and {name} takes {layer.in_channels} channels"


def _width(width: int, name: str, term: Term) -> Iterator[str]:
    if shape(term)[-1] != width:
        yield f"the last axis of {told(term)} is {shape(term)[-1]}, and {name} takes {width}"
