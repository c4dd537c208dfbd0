"""Calls and assignments that do not fit: arguments, tuples, numbers of values, layers of another width."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn

from shapetrace.recorder.crash.hints.evidence import BATCH, Evidence, shape, told
from shapetrace.recorder.crash.operation import Term
from shapetrace.signatures import write_signature


def explain(evidence: Evidence) -> Iterator[str]:
    """What a call was not given, or given too much, and what a tuple was taken for."""
    operation = evidence.operation
    if evidence.kind is TypeError and evidence.says(r"missing \d+ required|unexpected keyword|takes .* argument"):
        yield from _signature(evidence)
    if evidence.kind is AttributeError:
        yield from _attribute(evidence)
    if evidence.kind in (TypeError, AttributeError) and evidence.says(r"tuple|list"):
        for term in operation.terms:
            yield from _tuple(term)
    if operation.name == "unpack axes" and operation.tensors:
        yield from _unpack_axes(evidence, operation.tensors[0])
    if operation.name == "unpack" and operation.tensors and evidence.kind is ValueError:
        yield from _unpack_tensor(operation.tensors[0], operation.keywords["count"])
    if operation.name in ("cross_entropy", "CrossEntropyLoss") and len(operation.tensors) > 1:
        yield from _cross_entropy(*operation.tensors[:2])
    if operation.tensors and operation.callee is not None:
        yield from _layer(operation.callee, operation.module_name or "it", operation.tensors[0])


def _signature(evidence: Evidence) -> Iterator[str]:
    """The signature of what was called, where it is what the message speaks of."""
    callee, name = evidence.operation.callee, evidence.operation.module_name
    function = type(callee).forward if isinstance(callee, nn.Module) else callee
    qualified = str(getattr(function, "__qualname__", "")).rpartition("<locals>.")[2]
    if not qualified or f"{qualified}()" not in evidence.message.replace(f"{qualified}.__init__", qualified):
        return
    signature = inspect.signature(callee.forward if isinstance(callee, nn.Module) else callee)
    yield f"{name or qualified} takes {write_signature(signature)}"


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
        first = next(index for index, each in enumerate(value) if isinstance(each, Tensor))
        shapes = ", ".join(
            str(tuple(each.shape)) if isinstance(each, Tensor) else type(each).__name__ for each in value
        )
        yield f"{term.text} is a {type(value).__name__} of {shapes}: take {term.apply(f'[{first}]')}"


def _unpack_axes(evidence: Evidence, term: Term) -> Iterator[str]:
    facts, axes = evidence.operation.keywords, len(shape(term))
    if axes != facts["count"] and not facts["starred"]:
        is_batch = facts["first"] in BATCH and axes == facts["count"] - 1 and shape(term)[:1] != (1,)
        missing = f"; is the batch axis missing? {term.apply('[None]')} adds it" if is_batch else ""
        yield f"{told(term)} has {axes} {'axis' if axes == 1 else 'axes'}, and {facts['count']} are unpacked{missing}"


def _unpack_tensor(term: Term, count: int) -> Iterator[str]:
    """A tensor is unpacked along its first axis."""
    sizes = shape(term)
    if sizes and sizes[0] != count:
        split = f"; {term.apply(f'.chunk({count}, dim=-1)')} splits the last" if sizes[-1] % count == 0 else ""
        yield f"a tensor is unpacked along axis 0, which is {sizes[0]} in {told(term)}, into {count}{split}"


def _cross_entropy(logits: Term, targets: Term) -> Iterator[str]:
    if shape(logits)[:-1] == shape(targets) and len(shape(logits)) > 2:
        yield (
            f"the classes have to be axis 1 of {told(logits)}, for {told(targets)}: "
            f"{logits.apply('.transpose(1, 2)')}, or flatten both: {logits.apply('.flatten(0, -2)')}, "
            f"{targets.apply('.flatten()')}"
        )
    elif shape(logits)[:1] != shape(targets)[:1]:
        yield f"axis 0 of {told(logits)} and of {told(targets)} differ"


def _layer(layer: Any, name: str, term: Term) -> Iterator[str]:
    """A layer of torch's that was made for another width."""
    sizes = shape(term)
    if isinstance(layer, nn.LayerNorm):
        wanted = tuple(layer.normalized_shape)
        if sizes[-len(wanted) :] != wanted:
            written = wanted[0] if len(wanted) == 1 else wanted
            sentence = f"{name} was made for a last axis of {written}, and that of {told(term)} is {sizes[-1]}"
            others = [index for index, size in enumerate(sizes[:-1]) if size == wanted[0]]
            yield sentence + (f"; {wanted[0]} is axis {others[0]}" if others and len(wanted) == 1 else "")
    elif isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        spatial = len(layer.kernel_size)
        if len(sizes) not in (spatial + 1, spatial + 2):
            yield f"{name} takes (batch, channels, ...) of {spatial + 2} axes, and {told(term)} has {len(sizes)}"
        elif sizes[-spatial - 1] != layer.in_channels:
            axis = len(sizes) - spatial - 1
            yield f"axis {axis} of {told(term)} is {sizes[axis]}, and {name} takes {layer.in_channels} channels"
    elif isinstance(layer, nn.RNNBase) and sizes[-1] != layer.input_size:
        yield f"the last axis of {told(term)} is {sizes[-1]}, and {name} takes {layer.input_size}"
