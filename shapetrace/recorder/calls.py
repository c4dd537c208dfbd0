"""The module calls under way, and what has been written down of each."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from types import CodeType, GeneratorType
from typing import Any

from torch import Tensor, nn

from shapetrace.axes import fit_axes
from shapetrace.recorder.forwards import Forward
from shapetrace.recorder.leaves import walk_values
from shapetrace.recorder.source import NO_STATEMENT, Statement, locate
from shapetrace.recorder.tensors import (
    Identity,
    device_of,
    dtype_of,
    form_of,
    identity_of,
    placing_of,
    shape_of,
    stats_of,
)
from shapetrace.trace import ModuleCall, TensorRecord

# Called with the path of the module, the record and the tensor, at the moment it gets its name.
Observer = Callable[[str, TensorRecord, Tensor], None]


@dataclass(slots=True)
class OpenCall:
    """A call that has begun and is not over."""

    module: nn.Module
    path: str
    forward: Forward
    steps: list[TensorRecord | ModuleCall] = field(default_factory=list)
    returned: Statement = NO_STATEMENT  # of the `return` that its forward ended with
    # By id: weak, for the id of a tensor that is gone may be given to another.
    named: dict[int, tuple[weakref.ref[Tensor], Identity]] = field(default_factory=dict)

    def has_named(self, tensor: Tensor) -> bool:
        """Whether this very tensor has a record in this call."""
        known = self.named.get(id(tensor))
        return known is not None and known[0]() is tensor

    def has_changed(self, tensor: Tensor) -> bool:
        """Whether a named tensor has other contents than when it was last written down."""
        return self.has_named(tensor) and self.named[id(tensor)][1] != identity_of(tensor)


def _describe(
    name: str, role: str, tensor: Tensor, statement: Statement, file: str, line: int, in_place: bool
) -> TensorRecord:
    shape = shape_of(tensor)
    placements, local_shape = placing_of(tensor)
    return TensorRecord(
        name,
        role,
        shape,
        dtype_of(tensor),
        device_of(tensor),
        in_place,
        fit_axes(statement.readings, shape),
        statement.comment,
        kind=form_of(tensor),
        placements=placements,
        local_shape=local_shape,
        source=locate(file, line),
    )


def _describe_other(name: str, role: str, value: Any, statement: Statement) -> TensorRecord:
    """A value that is no tensor: a numpy array, a None, a generator."""
    if value is None or isinstance(value, GeneratorType):
        return TensorRecord(name, role, (), "", kind="None" if value is None else "generator")
    shape = tuple(value.shape)
    axes = fit_axes(statement.readings, shape)
    return TensorRecord(name, role, shape, value.dtype.name, axes=axes, comment=statement.comment, kind="ndarray")


class CallStack:
    """Calls within calls, the innermost last; closed ones become steps of the call around them."""

    def __init__(self, stats: bool = False, observe: Observer | None = None):
        self.finished: list[ModuleCall] = []
        self.under_way: list[OpenCall] = []  # the innermost last
        self._named: dict[int, tuple[weakref.ref[Tensor], Identity]] = {}
        # Layers are alike, and a record is frozen: what the second layer binds is described by the first one's records.
        self._records: dict[tuple[Hashable, ...], TensorRecord] = {}
        self._stats = stats
        self._observe = observe

    def knows(self, tensor: Tensor) -> bool:
        """Whether this tensor, with the contents that it has now, has a record in any call."""
        known = self._named.get(id(tensor))
        return known is not None and known[0]() is tensor and known[1] == identity_of(tensor)

    @property
    def callers(self) -> list[tuple[nn.Module, str]]:
        """The modules under way with their paths, outermost first."""
        return [(call.module, call.path) for call in self.under_way]

    @property
    def caller(self) -> OpenCall | None:
        """The innermost call under way."""
        return self.under_way[-1] if self.under_way else None

    def begin(self, module: nn.Module, path: str, forward: Forward) -> None:
        self.under_way.append(OpenCall(module, path, forward))

    def end(self, module: nn.Module, output: Any) -> None:
        """Close the module's call, and before it those inside it that an exception has left open."""
        if not any(call.module is module for call in self.under_way):
            return
        while self.under_way[-1].module is not module:
            self._close()
        call = self.under_way[-1]
        self.tell("out", output, "output", call.returned, call.returned.first)
        self._close()

    def end_all(self) -> None:
        """Close every call, as far as it came."""
        while self.under_way:
            self._close()

    def tell(self, name: str, value: Any, role: str, statement: Statement, line: int) -> None:
        """Write down each tensor in an input or an output, and what else has a place there; line: of the forward.

        An output that has a record in this call needs no second one, unless it was changed since. Nor does what is
        inside an object that is handed on, such as a cache, wherever that has its record, but at the very end:
        else every layer would tell what is in there of all the layers before it.
        """
        if isinstance(value, Tensor):  # as most are
            self._tell_tensor(name, value, role, statement, line)
            return
        is_last = role == "output" and len(self.under_way) == 1
        for path, each, shared in walk_values(name, value):
            if isinstance(each, Tensor):
                if is_last or not (shared and self.knows(each)):
                    self._tell_tensor(path, each, role, statement, line)
            elif role == "output" or each is not None:
                self.under_way[-1].steps.append(_describe_other(path, role, each, statement))

    def _tell_tensor(self, name: str, tensor: Tensor, role: str, statement: Statement, line: int) -> None:
        call = self.under_way[-1]
        file = call.forward.file
        if role == "output" and call.has_named(tensor):
            if call.has_changed(tensor):
                self.bind(name, tensor, role, statement, file, line, in_place=True)
        else:
            self.bind(name, tensor, role, statement, file, line)

    def bind(
        self,
        name: str,
        tensor: Tensor,
        role: str = "local",
        statement: Statement = NO_STATEMENT,
        file: str = "",
        line: int = 0,
        in_place: bool = False,
    ) -> None:
        """Write down that the tensor got this name in the innermost call, at that line of that file."""
        call = self.under_way[-1]
        sort = type(tensor), tensor.layout, tensor.dtype, tensor.device
        placing = None if type(tensor) is Tensor else placing_of(tensor)
        facts = (name, role, shape_of(tensor), sort, placing, in_place, id(statement), file, line)
        record = self._records.get(facts)
        if record is None:
            record = self._records[facts] = _describe(name, role, tensor, statement, file, line, in_place)
        if self._stats:
            record = replace(record, stats=stats_of(tensor))
        call.steps.append(record)
        call.named[id(tensor)] = self._named[id(tensor)] = (weakref.ref(tensor), identity_of(tensor))
        if self._observe is not None:
            self._observe(call.path, record, tensor)

    def note_return(self, code: CodeType, statement: Statement) -> None:
        """Remember what the source says of the value that the forward, and no helper of it, is about to return."""
        if code is self.under_way[-1].forward.code:
            self.under_way[-1].returned = statement

    def _close(self) -> None:
        call = self.under_way.pop()
        closed = ModuleCall(call.path, type(call.module).__name__, steps=tuple(call.steps), source=call.forward.source)
        if self.under_way:
            self.under_way[-1].steps.append(closed)
        else:
            self.finished.append(closed)
