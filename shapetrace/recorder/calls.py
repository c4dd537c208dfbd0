"""The module calls under way, and what has been written down of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import CodeType, GeneratorType
from typing import Any
from weakref import ref

from torch import Tensor, nn

from shapetrace.axes import fit_axes
from shapetrace.recorder.forwards import Forward
from shapetrace.recorder.leaves import walk_values
from shapetrace.recorder.source import NO_STATEMENT, Statement, locate
from shapetrace.recorder.tensors import Identity, Sort, identity_of, sort_of, stats_of, tell_sort
from shapetrace.trace import ModuleCall, TensorRecord

# Called with the path of the module, the record and the tensor, at the moment it gets its name.
Observer = Callable[[str, TensorRecord, Tensor], None]


@dataclass(slots=True, eq=False)
class Call:
    """A call of a module, under way or over."""

    module: nn.Module
    path: str
    forward: Forward
    steps: list[TensorRecord | Call] = field(default_factory=list)
    returned: Statement = NO_STATEMENT  # of the `return` that its forward ended with
    # By id: weak, for the id of a tensor that is gone may be given to another.
    named: dict[int, tuple[ref[Tensor], Identity]] = field(default_factory=dict)

    def has_named(self, tensor: Tensor) -> bool:
        """Whether this very tensor has a record in this call."""
        known = self.named.get(id(tensor))
        return known is not None and known[0]() is tensor

    def has_changed(self, tensor: Tensor) -> bool:
        """Whether a named tensor has other contents than when it was last written down."""
        return self.has_named(tensor) and self.named[id(tensor)][1] != identity_of(tensor)

    def written(self) -> ModuleCall:
        """What was written down of it, without what the module owns."""
        steps = tuple(step if isinstance(step, TensorRecord) else step.written() for step in self.steps)
        return ModuleCall(self.path, type(self.module).__name__, steps=steps, source=self.forward.source)


@lru_cache(maxsize=4096)
def _describe(
    name: str, role: str, sort: Sort, statement: Statement, file: str, line: int, in_place: bool
) -> TensorRecord:
    """Layers are alike, and a record is frozen: what the second layer binds is described by the first one's records."""
    told = tell_sort(sort)
    return TensorRecord(
        name,
        role,
        told.shape,
        told.dtype,
        told.device,
        in_place,
        fit_axes(statement.readings, told.shape),
        statement.comment,
        kind=told.kind,
        placements=told.placements,
        local_shape=told.local_shape,
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
        self.finished: list[Call] = []
        self.under_way: list[Call] = []  # the innermost last
        self._named: dict[int, tuple[ref[Tensor], Identity]] = {}
        self._stats = stats
        self._observe = observe

    def knows(self, tensor: Tensor) -> bool:
        """Whether this tensor, with the contents that it has now, has a record in any call."""
        known = self._named.get(id(tensor))
        return known is not None and known[0]() is tensor and known[1] == identity_of(tensor)

    def callers(self) -> list[tuple[nn.Module, str]]:
        """The modules under way with their paths, outermost first."""
        return [(call.module, call.path) for call in self.under_way]

    @property
    def caller(self) -> Call | None:
        """The innermost call under way."""
        return self.under_way[-1] if self.under_way else None

    def begin(self, module: nn.Module, path: str, forward: Forward) -> None:
        self.under_way.append(Call(module, path, forward))

    def end(self, module: nn.Module, output: Any) -> None:
        """Close the module's call, and before it those inside it that an exception has left open."""
        under_way = self.under_way
        if not under_way or under_way[-1].module is not module:
            if not any(call.module is module for call in under_way):
                return
            while under_way[-1].module is not module:
                self._close()
        call = under_way[-1]
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
        changed = role == "output" and call.has_changed(tensor)
        if changed or role != "output" or not call.has_named(tensor):
            self.bind(name, tensor, role, statement, call.forward.file, line, changed)

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
        record = _describe(name, role, sort_of(tensor), statement, file, line, in_place)
        if self._stats:
            record = replace(record, stats=stats_of(tensor))
        call.steps.append(record)
        call.named[id(tensor)] = self._named[id(tensor)] = (ref(tensor), identity_of(tensor))
        if self._observe is not None:
            self._observe(call.path, record, tensor)

    def note_return(self, code: CodeType, statement: Statement) -> None:
        """Remember what the source says of the value that the forward, and no helper of it, is about to return."""
        call = self.under_way[-1]
        if code is call.forward.code:
            call.returned = statement

    def _close(self) -> None:
        call = self.under_way.pop()
        call.named.clear()
        (self.under_way[-1].steps if self.under_way else self.finished).append(call)
