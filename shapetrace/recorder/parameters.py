"""The parameters and buffers that each module of a model owns, with the comments of the lines that made them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor, nn

from shapetrace.axes import fit_axes
from shapetrace.recorder.attributes import statement_of_attribute
from shapetrace.recorder.notes import notes_of
from shapetrace.recorder.paths import name_modules, name_parameters, unwrap
from shapetrace.recorder.source import Statement
from shapetrace.recorder.tensors import Sort, name_of, sort_of
from shapetrace.trace import ModelRecord, ModuleCall, ParameterRecord, TensorRecord

_LAZY = "lazy"  # the form of a parameter that waits for its first input


def describe_model(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], name: str = "", weights: str = ""
) -> ModelRecord:
    """The model's name and size; each parameter is counted once, uninitialised ones not at all."""
    known = [each for each in parameters.values() if not nn.parameter.is_lazy(each)]
    total, trainable = sum(each.numel() for each in known), sum(each.numel() for each in known if each.requires_grad)
    class_name = class_name_of(model)
    return ModelRecord(name or class_name, class_name, total, trainable, weights)


def count_parameters(model: nn.Module) -> int:
    """Entries of all parameters; each is counted once, uninitialised ones not at all."""
    return sum(each.numel() for each in model.parameters() if not nn.parameter.is_lazy(each))


def class_name_of(module: nn.Module) -> str:
    """The class that somebody wrote: not that of a wrapper, nor what scripting has made of it."""
    module = unwrap(module)
    name: str = getattr(module, "original_name", "") if isinstance(module, torch.jit.ScriptModule) else ""
    return name or type(module).__name__


def describe_modules(model: nn.Module) -> list[ModuleCall]:
    """Every module with what it owns directly, in the order of `named_modules`, as a call without steps."""
    modules, parameters = name_modules(model), name_parameters(model)
    notes, owners = notes_of(model, modules, parameters), Owners(parameters)
    return [owners.describe(path, module, notes.get(id(module), "")) for path, module in modules.items()]


class Owners:
    """Describes what each module of a model owns."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]):
        """parameters: as `name_parameters` has them."""
        self._first = {id(parameter): name for name, parameter in parameters.items()}

    def describe(
        self,
        path: str,
        module: nn.Module,
        note: str = "",
        steps: tuple[TensorRecord | ModuleCall, ...] = (),
        source: str = "",
    ) -> ModuleCall:
        """The module with what it owns directly, and what happened in a call of it."""
        parameters = tuple(
            [
                self._parameter(path, type(module), name, parameter)
                for name, parameter in module._parameters.items()
                if parameter is not None
            ]
        )
        buffers = tuple(
            [
                _describe_buffer(name, _sort_of(buffer), statement_of_attribute(type(module), name))
                for name, buffer in module._buffers.items()
                if buffer is not None
            ]
        )
        return ModuleCall(path, class_name_of(module), note, parameters, buffers, steps, source)

    def _parameter(self, path: str, cls: type, name: str, parameter: nn.Parameter) -> ParameterRecord:
        full = f"{path}.{name}" if path else name
        known_as = self._first.get(id(parameter), full)
        tied = "" if known_as == full else known_as
        statement = statement_of_attribute(cls, name)
        return _describe_parameter(name, _sort_of(parameter), parameter.requires_grad, tied, statement)


def _sort_of(tensor: Tensor) -> Sort:
    return ((), tensor.dtype, tensor.device, _LAZY) if nn.parameter.is_lazy(tensor) else sort_of(tensor)


# Layers are alike, and a record is frozen: what the second layer owns is described by the first one's records.
@lru_cache(maxsize=4096)
def _describe_parameter(
    name: str, sort: Sort, trainable: bool, tied: str, statement: Statement | None
) -> ParameterRecord:
    shape, dtype, device, form = sort
    axes = fit_axes(statement.readings, shape) if statement and form != _LAZY else ()
    comment = statement.comment if statement else ""
    known = None if form == _LAZY else tuple(shape)
    return ParameterRecord(name, known, name_of(dtype), device.type, trainable, tied, axes, comment)


@lru_cache(maxsize=4096)
def _describe_buffer(name: str, sort: Sort, statement: Statement | None) -> TensorRecord:
    shape, dtype, device, _ = sort
    axes = fit_axes(statement.readings, shape) if statement else ()
    comment = statement.comment if statement else ""
    return TensorRecord(name, "buffer", tuple(shape), name_of(dtype), device.type, axes=axes, comment=comment)
