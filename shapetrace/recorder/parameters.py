"""The parameters and buffers that each module of a model owns, with the comments of the lines that made them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

import torch
from torch import Tensor, nn

from shapetrace.axes import fit_axes
from shapetrace.recorder.attributes import statement_of_attribute
from shapetrace.recorder.notes import notes_of
from shapetrace.recorder.paths import name_modules, name_parameters, unwrap
from shapetrace.recorder.placings import Placing, Placings
from shapetrace.recorder.source import Statement
from shapetrace.recorder.tensors import Sort, sort_of, tell_sort
from shapetrace.trace import ModelRecord, ModuleCall, ParameterRecord, TensorRecord

NO_PLACINGS = Placings()
_SPREADING = "torch.distributed."
_LAZY = "lazy"  # the form of a parameter that waits for its first input


def describe_model(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], name: str = "", weights: str = "", mesh: str = ""
) -> ModelRecord:
    """The model's name and size; each parameter is counted once, uninitialised ones not at all."""
    known = [each for each in parameters.values() if not nn.parameter.is_lazy(each)]
    total, trainable = sum(each.numel() for each in known), sum(each.numel() for each in known if each.requires_grad)
    class_name = class_name_of(model)
    return ModelRecord(name or class_name, class_name, total, trainable, weights, mesh)


def count_parameters(model: nn.Module) -> int:
    """Entries of all parameters; each is counted once, uninitialised ones not at all."""
    return sum(each.numel() for each in model.parameters() if not nn.parameter.is_lazy(each))


def class_name_of(module: nn.Module) -> str:
    """The class that somebody wrote: not that of a wrapper, nor what scripting or FSDP has made of it."""
    module = unwrap(module)
    name: str = getattr(module, "original_name", "") if isinstance(module, torch.jit.ScriptModule) else ""
    return name or next(cls for cls in type(module).__mro__ if not cls.__module__.startswith(_SPREADING)).__name__


def describe_modules(model: nn.Module) -> list[ModuleCall]:
    """Every module with what it owns directly, in the order of `named_modules`, as a call without steps."""
    modules, parameters = name_modules(model), name_parameters(model)
    notes, owners = notes_of(model, modules, parameters), Owners(parameters)
    return [owners.describe(path, module, notes.get(id(module), "")) for path, module in modules.items()]


class Owners:
    """Describes what each module of a model owns."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], placings: Placings = NO_PLACINGS):
        """parameters: as `name_parameters` has them; placings: of the model before it ran."""
        self._first = {id(parameter): name for name, parameter in parameters.items()}
        self._placings = placings
        self._owned: dict[str, tuple[tuple[ParameterRecord, ...], tuple[TensorRecord, ...]]] = {}  # by path
        self._statement_of = cache(statement_of_attribute)  # of a class, which many modules may have

    def describe(
        self,
        path: str,
        module: nn.Module,
        note: str = "",
        steps: tuple[TensorRecord | ModuleCall, ...] = (),
        source: str = "",
    ) -> ModuleCall:
        """The module with what it owns directly, and what happened in a call of it."""
        if path not in self._owned:  # once, for a module may be called a thousand times
            self._owned[path] = self._owned_by(path, module)
        parameters, buffers = self._owned[path]
        return ModuleCall(path, class_name_of(module), note, parameters, buffers, steps, source)

    def _owned_by(self, path: str, module: nn.Module) -> tuple[tuple[ParameterRecord, ...], tuple[TensorRecord, ...]]:
        cls, parameters, buffers = type(module), module._parameters.items(), module._buffers.items()
        return (
            tuple([self._parameter(path, cls, name, each) for name, each in parameters if each is not None]),
            tuple([self._buffer(path, cls, name, each) for name, each in buffers if each is not None]),
        )

    def _parameter(self, path: str, cls: type, name: str, parameter: nn.Parameter) -> ParameterRecord:
        full = f"{path}.{name}" if path else name
        known_as = self._first.get(id(parameter), full)
        tied = "" if known_as == full else known_as
        placing = self._placings.of(full, parameter)
        statement = self._statement_of(cls, name)
        return _describe_parameter(name, _sort_of(parameter), placing, parameter.requires_grad, tied, statement)

    def _buffer(self, path: str, cls: type, name: str, buffer: Tensor) -> TensorRecord:
        placing = self._placings.of(f"{path}.{name}" if path else name, buffer)
        return _describe_buffer(name, _sort_of(buffer), placing, self._statement_of(cls, name))


def _sort_of(tensor: Tensor) -> Sort:
    return ((), tensor.dtype, tensor.device, _LAZY) if nn.parameter.is_lazy(tensor) else sort_of(tensor)


# Layers are alike, and a record is frozen: what the second layer owns is described by the first one's records.
@lru_cache(maxsize=4096)
def _describe_parameter(
    name: str, sort: Sort, placing: Placing, trainable: bool, tied: str, statement: Statement | None
) -> ParameterRecord:
    told, is_lazy = tell_sort(sort), sort[3] == _LAZY
    axes = fit_axes(statement.readings, told.shape) if statement and not is_lazy else ()
    comment = statement.comment if statement else ""
    shape = None if is_lazy else told.shape
    return ParameterRecord(name, shape, told.dtype, told.device, trainable, tied, axes, comment, *placing)


@lru_cache(maxsize=4096)
def _describe_buffer(name: str, sort: Sort, placing: Placing, statement: Statement | None) -> TensorRecord:
    told = tell_sort(sort)
    return TensorRecord(
        name,
        "buffer",
        told.shape,
        told.dtype,
        told.device,
        axes=fit_axes(statement.readings, told.shape) if statement else (),
        comment=statement.comment if statement else "",
        placements=placing[0],
        local_shape=placing[1],
    )
