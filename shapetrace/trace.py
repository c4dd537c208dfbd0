"""What a run of a module was: frozen, plain data, the same whether just recorded or read from a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

Shape = tuple[int, ...]


class Shown:
    """A whole result, which rich and a notebook can show; the data itself knows of no screen, and is told how."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TensorStats:
    """Of the finite entries (their absolute value where complex): min, max, mean, rms; None where there are none."""

    min: float | None
    max: float | None
    mean: float | None
    rms: float | None
    nan: int = 0
    inf: int = 0
    samples: tuple[float | None, ...] = ()  # a few entries, the first and the last among them; None: not finite


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """One tensor at the moment it got its name."""

    name: str
    role: str  # input, local, output, buffer
    shape: Shape
    dtype: str
    device: str = "cpu"
    in_place: bool = False  # the same tensor as before, with changed contents
    axes: tuple[str, ...] = ()  # one name an axis, where the source tells them
    comment: str = ""
    stats: TensorStats | None = None
    kind: str = ""  # sparse_csr, nested, ndarray, None, generator, ...; "": a plain dense tensor
    placements: tuple[str, ...] = ()  # of a DTensor, as torch calls them, by mesh dimension: Shard(2), Replicate, ...
    local_shape: Shape | None = None  # of a DTensor, what of it the rank that traced holds; its shape is the whole's
    # `/home/ann/attention.py:31`, shown by `write_source`. Where the line stands is no part of what ran: an edit above
    # it, or a copy of the file elsewhere, would change every trace.
    source: str = field(default="", compare=False, repr=False)

    @property
    def has_shape(self) -> bool:
        """False of a None and of a generator: they are told for the place they take up."""
        return bool(self.dtype)


@dataclass(frozen=True, slots=True)
class ParameterRecord:
    """A parameter that a module owns directly."""

    name: str
    shape: Shape | None  # None while a lazy parameter waits for its first input
    dtype: str = "float32"
    device: str = "cpu"
    trainable: bool = True
    tied: str = ""  # the full name under which this same tensor came first
    axes: tuple[str, ...] = ()
    comment: str = ""
    placements: tuple[str, ...] = ()  # as in a TensorRecord
    local_shape: Shape | None = None

    @property
    def size(self) -> int:
        """Number of entries, 0 while uninitialised."""
        return 0 if self.shape is None else prod(self.shape)


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """One call of a module: what it owns, and what happened in it, in order."""

    module: str  # path from the root, "" for the root itself
    class_name: str
    note: str = ""  # why less is known of this module than of others
    parameters: tuple[ParameterRecord, ...] = ()
    buffers: tuple[TensorRecord, ...] = ()
    steps: tuple[TensorRecord | ModuleCall, ...] = ()
    source: str = field(default="", compare=False, repr=False)  # where its forward is written, as in a TensorRecord


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """Which model ran; parameters are counted once however many names they have."""

    name: str
    class_name: str
    parameters: int
    trainable: int
    weights: str = ""  # where the values came from
    mesh: str = ""  # of a model on several ranks, its devices and which of them traced: `tensor=2, rank 0`


@dataclass(frozen=True, slots=True)
class InputRecord:
    """The text that went in, where it was text."""

    text: str
    ids: tuple[int, ...]
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """What a failing expression was computed from."""

    text: str  # as the source writes it
    shape: Shape | None = None  # None where it is no tensor
    dtype: str = ""
    device: str = "cpu"
    axes: tuple[str, ...] = ()
    note: str = ""  # what it is where it is no tensor: `tuple of (1, 7, 64), (1, 4, 7, 7)`


@dataclass(frozen=True, slots=True)
class Failure:
    """What a forward raised, and where."""

    kind: str  # the exception's class
    message: str
    module: str = ""  # the innermost module that was running
    source: str = ""  # file and line of the innermost statement of user code
    statement: str = ""
    operands: tuple[Operand, ...] = ()
    hint: str = ""  # where the cause is certain

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


@dataclass(frozen=True, slots=True)
class Trace(Shown):
    """A whole run: usually one call of the root."""

    model: ModelRecord
    calls: tuple[ModuleCall, ...] = ()
    uncalled: tuple[ModuleCall, ...] = ()  # modules that own parameters or buffers and never ran
    input: InputRecord | None = None
    predictions: tuple[str, ...] = ()  # the likeliest next token at each position, "" where none is told
    error: Failure | None = None  # what the forward raised, if it did


def walk_calls(call: ModuleCall) -> Iterator[ModuleCall]:
    """The call itself and every call within it, in the order in which they began."""
    yield call
    for step in call.steps:
        if isinstance(step, ModuleCall):
            yield from walk_calls(step)


def walk_modules(trace: Trace) -> Iterator[ModuleCall]:
    """Every call of the trace, and after them the modules that were never called."""
    for call in trace.calls:
        yield from walk_calls(call)
    yield from trace.uncalled


def tensors_of(call: ModuleCall) -> tuple[TensorRecord, ...]:
    """The named tensors of this call itself, without those of the modules it calls."""
    return tuple(step for step in call.steps if isinstance(step, TensorRecord))


def write_shape(shape: Shape | None) -> str:
    """`(1, 7, 768)`; `(?)` while the sizes are not known, `(2, ?, 768)` where an axis is ragged."""
    return "(?)" if shape is None else str(shape).replace("-1", "?")


_WITHOUT_SHAPE = {"generator": "generator (not walked)"}


def write_value(record: TensorRecord | ParameterRecord) -> str:
    """`(1, 7)`; `(1, 7) int64`; `ndarray float32 (2, 4)`; `sparse_csr float32 (2, 4)`; `None`."""
    shape = write_shape(record.shape)
    kind = record.kind if isinstance(record, TensorRecord) else ""
    if kind:
        return f"{kind} {record.dtype} {shape}" if record.dtype else _WITHOUT_SHAPE.get(kind, kind)
    return shape if record.dtype == "float32" else f"{shape} {record.dtype}"


def write_placements(record: TensorRecord | ParameterRecord) -> str:
    """`Replicate`; `Shard(2) (1, 7, 384)`, with the local shape where that is not the whole; "" of no DTensor."""
    placed = ", ".join(record.placements)
    is_part = record.local_shape is not None and record.local_shape != record.shape
    return f"{placed} {write_shape(record.local_shape)}" if is_part else placed


def write_source(source: str) -> str:
    """`/home/ann/attention.py:31` -> `attention.py:31`: where a machine keeps its files is nobody else's business."""
    return os.path.basename(source)


def split_source(source: str) -> tuple[str, int]:
    """`/home/ann/attention.py:31` -> `/home/ann/attention.py` and 31; raises ValueError for what is no source."""
    path, _, line = source.rpartition(":")
    return path, int(line)
