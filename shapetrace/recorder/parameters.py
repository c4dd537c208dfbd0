"""The parameters and buffers that each module of a model owns, with the comments of the lines that made them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from shapetrace.axes import fit_axes
from shapetrace.recorder.attributes import statement_of_attribute
from shapetrace.recorder.notes import notes_of
from shapetrace.recorder.paths import name_modules, unwrap, without_wrappers
from shapetrace.recorder.placings import Placings
from shapetrace.recorder.tensors import device_of, dtype_of, shape_of_parameter
from shapetrace.trace import ModelRecord, ModuleCall, ParameterRecord, TensorRecord

NO_PLACINGS = Placings()


def describe_model(model: nn.Module, name: str = "", weights: str = "", mesh: str = "") -> ModelRecord:
    """The model's name and size; each parameter is counted once, uninitialised ones not at all."""
    sizes = [(p.numel(), p.requires_grad) for p in model.parameters() if not nn.parameter.is_lazy(p)]
    trainable = sum(size for size, requires_grad in sizes if requires_grad)
    class_name = class_name_of(model)
    return ModelRecord(name or class_name, class_name, count_parameters(model), trainable, weights, mesh)


def count_parameters(model: nn.Module) -> int:
    """Entries of all parameters; each is counted once, uninitialised ones not at all."""
    return sum(each.numel() for each in model.parameters() if not nn.parameter.is_lazy(each))


def describe_modules(model: nn.Module) -> list[ModuleCall]:
    """Every module with what it owns directly, in the order of `named_modules`, as a call without steps."""
    first, notes = first_names(model), notes_of(model)
    return [
        replace(describe_module(path, module, first), note=notes.get(id(module), ""))
        for path, module in name_modules(model).items()
    ]


def class_name_of(module: nn.Module) -> str:
    """The class that somebody wrote: not that of a wrapper, nor what scripting or FSDP has made of it."""
    module = unwrap(module)
    name: str = getattr(module, "original_name", "") if isinstance(module, torch.jit.ScriptModule) else ""
    written = (cls for cls in type(module).__mro__ if not cls.__module__.startswith("torch.distributed."))
    return name or next(written).__name__


def first_names(model: nn.Module) -> dict[int, str]:
    """By the id of each parameter, the first full name under which the model has it."""
    return {id(parameter): without_wrappers(name) for name, parameter in model.named_parameters()}


def describe_module(
    path: str, module: nn.Module, first: dict[int, str], placings: Placings = NO_PLACINGS
) -> ModuleCall:
    """The module and what it owns directly; `first` are the model's `first_names`, placings those before it ran."""
    return ModuleCall(
        path,
        class_name_of(module),
        parameters=tuple(
            _describe_parameter(path, module, name, parameter, first, placings)
            for name, parameter in module._parameters.items()
            if parameter is not None
        ),
        buffers=tuple(
            _describe_buffer(path, module, name, buffer, placings)
            for name, buffer in module._buffers.items()
            if buffer is not None
        ),
    )


def _describe_parameter(
    path: str, module: nn.Module, name: str, parameter: nn.Parameter, first: dict[int, str], placings: Placings
) -> ParameterRecord:
    full = _full_name(path, name)
    shape = shape_of_parameter(parameter)
    statement = statement_of_attribute(type(module), name)
    known_as = first.get(id(parameter), full)
    return ParameterRecord(
        name,
        shape,
        dtype_of(parameter),
        device_of(parameter),
        parameter.requires_grad,
        "" if known_as == full else known_as,
        fit_axes(statement.readings, shape) if statement and shape is not None else (),
        statement.comment if statement else "",
        *placings.of(full, parameter),
    )


def _describe_buffer(path: str, module: nn.Module, name: str, buffer: Tensor, placings: Placings) -> TensorRecord:
    statement = statement_of_attribute(type(module), name)
    placements, local_shape = placings.of(_full_name(path, name), buffer)
    shape = shape_of_parameter(buffer) or ()
    return TensorRecord(
        name,
        "buffer",
        shape,
        dtype_of(buffer),
        device_of(buffer),
        axes=fit_axes(statement.readings, shape) if statement else (),
        comment=statement.comment if statement else "",
        placements=placements,
        local_shape=local_shape,
    )


def _full_name(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
