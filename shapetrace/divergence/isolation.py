"""Each module of yours on its own, fed what the reference's module was given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from shapetrace.divergence.arrangements import arrangements, at_last_position
from shapetrace.divergence.observation import Call, Observation
from shapetrace.divergence.places import Places
from shapetrace.divergence.tolerance import Tolerance, measure
from shapetrace.recorder.leaves import walk_leaves
from shapetrace.reference import ReferenceRun
from shapetrace.report import END_TO_END, ISOLATED, Difference, ModuleRow
from shapetrace.sharding import whole_of


@torch.no_grad()
def run_alone(
    model: nn.Module, theirs: ReferenceRun, seen: Observation, places: Places, tolerance: Tolerance, remarks: list[str]
) -> Iterator[ModuleRow]:
    """Each module called as the model called it, but with the reference's input; a remark for each that cannot be."""
    own = dict(model.named_modules())
    for path, expected in theirs.outputs.items():
        call = seen.calls.get(places.modules.get(path, ""))
        if call is None or path not in places.modules:
            continue
        try:
            args, kwargs = _with_input(call, theirs.inputs.get(path))
            output = own[places.modules[path]](*args, **kwargs)
        except Exception as error:
            remarks.append(f"{path} does not run on the reference's input ({type(error).__name__})")
            continue
        difference = _measure_output(output, expected, tolerance.of_module(path, is_isolated=True))
        if difference is not None:
            yield ModuleRow(path, ISOLATED, difference, places.modules[path])


def compare_end_to_end(
    theirs: ReferenceRun, seen: Observation, places: Places, tolerance: Tolerance
) -> Iterator[ModuleRow]:
    """Each module's output when the whole model is run from token ids."""
    for path, expected in theirs.outputs.items():
        returned = seen.returned.get(places.modules.get(path, ""))
        if returned is not None and path in places.modules:
            difference = _measure_output(returned, expected, tolerance.of_module(path, is_isolated=False))
            if difference is not None:
                yield ModuleRow(path, END_TO_END, difference, places.modules[path])


def _with_input(call: Call, given: Tensor | None) -> tuple[list[Any], dict[str, Any]]:
    """The call with its first tensor replaced, in the arrangement in which the model passes it."""
    args, kwargs = list(call.args), dict(call.kwargs)
    for index, value in enumerate(args):
        if isinstance(value, Tensor):
            args[index] = _as(value, given)
            return args, kwargs
    for key, value in kwargs.items():
        if isinstance(value, Tensor):
            kwargs[key] = _as(value, given)
            return args, kwargs
    return args, kwargs


def _as(value: Tensor, given: Tensor | None) -> Tensor:
    """The reference's values in the shape of yours; ids and positions as they are."""
    if given is None or not value.is_floating_point():
        return value.clone()
    given = given.to(value.device, value.dtype, copy=True)
    return given.reshape(value.shape) if given.numel() == value.numel() else given


def _measure_output(output: Any, expected: Tensor, rtol: float) -> Difference | None:
    """Of the tensors in it, the one that comes nearest: an attention may return its pattern first."""
    leaves = [whole_of(leaf) for _, leaf in walk_leaves("", output)]
    fitting = [leaf for leaf in leaves if leaf.numel() in (expected.numel(), expected.numel() // expected.shape[1])]
    measured = [_measure_leaf(leaf, expected, rtol) for leaf in fitting or leaves[:1]]
    return min(measured, key=lambda each: each.relative, default=None)


def _measure_leaf(leaf: Tensor, expected: Tensor, rtol: float) -> Difference:
    last = at_last_position(expected, "b p m")
    expected = last if leaf.shape == last.shape else expected  # a model that predicts one token
    nearest = measure(leaf, expected, rtol)
    for arranged in arrangements(leaf, tuple(expected.shape)):
        nearest = min(nearest, measure(arranged, expected, rtol), key=lambda each: each.relative)
        if nearest.ok:
            break
    return nearest
