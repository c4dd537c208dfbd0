"""The parameters and buffers that each module of a model owns, with the comments of the lines that made them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import torch
from torch import Tensor, nn

from shapetrace.axes import fit_axes
from shapetrace.recorder.attributes import statement_of_attribute
from shapetrace.recorder.notes import notes_of
from shapetrace.recorder.paths import name_modules, name_parameters, unwrap
from shapetrace.recorder.tensors import device_of, dtype_of, shape_of_parameter, sort_of
from shapetrace.trace import ModelRecord, ModuleCall, ParameterRecord, TensorRecord


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
    """Describes what each module of a model owns. Layers are alike: what is alike is described by one record."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]):
        """parameters: as `name_parameters` has them."""
        self._first = {id(parameter): name for name, parameter in parameters.items()}
        self._parameters: dict[Hashable, ParameterRecord] = {}
        self._buffers: dict[Hashable, TensorRecord] = {}

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
            self._parameter(path, module, name, parameter)
            for name, parameter in module._parameters.items()
            if parameter is not None
        )
        buffers = tuple(
            self._buffer(module, name, buffer) for name, buffer in module._buffers.items() if buffer is not None
        )
        return ModuleCall(path, class_name_of(module), note, parameters, buffers, steps, source)

    def _parameter(self, path: str, module: nn.Module, name: str, parameter: nn.Parameter) -> ParameterRecord:
        full = f"{path}.{name}" if path else name
        known_as = self._first.get(id(parameter), full)
        tied = "" if known_as == full else known_as
        facts = type(module), name, _sort_of(parameter), parameter.requires_grad, tied
        record = self._parameters.get(facts)
        if record is None:
            record = self._parameters[facts] = _describe_parameter(type(module), name, parameter, tied)
        return record

    def _buffer(self, module: nn.Module, name: str, buffer: Tensor) -> TensorRecord:
        facts = type(module), name, _sort_of(buffer)
        record = self._buffers.get(facts)
        if record is None:
            record = self._buffers[facts] = _describe_buffer(type(module), name, buffer)
        return record


def _sort_of(tensor: Tensor) -> Hashable:
    """All that describes it but its contents; of one that waits for its first input only what will not change."""
    return (type(tensor), tensor.dtype, tensor.device) if nn.parameter.is_lazy(tensor) else sort_of(tensor)


def _describe_parameter(cls: type, name: str, parameter: nn.Parameter, tied: str) -> ParameterRecord:
    """The parameter of this name that a module of this class owns."""
    shape = shape_of_parameter(parameter)
    statement = statement_of_attribute(cls, name)
    return ParameterRecord(
        name,
        shape,
        dtype_of(parameter),
        device_of(parameter),
        parameter.requires_grad,
        tied,
        fit_axes(statement.readings, shape) if statement and shape is not None else (),
        statement.comment if statement else "",
    )


def _describe_buffer(cls: type, name: str, buffer: Tensor) -> TensorRecord:
    """The buffer of this name that a module of this class owns."""
    statement = statement_of_attribute(cls, name)
    shape = shape_of_parameter(buffer) or ()
    return TensorRecord(
        name,
        "buffer",
        shape,
        dtype_of(buffer),
        device_of(buffer),
        axes=fit_axes(statement.readings, shape) if statement else (),
        comment=statement.comment if statement else "",
    )
