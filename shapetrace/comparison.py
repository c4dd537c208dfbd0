"""Two traces, and what is different: added, removed, renamed, moved, reshaped, retyped, recommented."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import zip_longest
from typing import Any

from shapetrace.folding import without_numbers
from shapetrace.pairing import Pair, pair_up
from shapetrace.trace import (
    ModuleCall,
    ParameterRecord,
    Shape,
    TensorRecord,
    TensorStats,
    Trace,
    tensors_of,
    walk_modules,
    write_shape,
    write_value,
)

Record = TensorRecord | ParameterRecord
Step = TensorRecord | ModuleCall

# What a field of a record that differs is called.
_KINDS = {
    "shape": "reshaped",
    "dtype": "retyped",
    "kind": "retyped",
    "comment": "recommented",
    "axes": "axes",
    "role": "role",
    "device": "device",
    "in_place": "in place",
    "trainable": "trainable",
    "tied": "tied",
    "placements": "placed",
    "local_shape": "local shape",
    "stats": "values",
}
_EVERYWHERE = 3  # in fewer tensors a size is not everywhere


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. old and new are what stood there, as text; "" for nothing."""

    kind: str  # added, removed, renamed, moved, reshaped, retyped, recommented, axes, trainable, values, class, ...
    what: str  # tensor, parameter, buffer, module
    module: str  # the module it is in; of a module, its own path
    name: str  # "" of a module
    old: str = ""
    new: str = ""
    old_shape: Shape | None = None
    new_shape: Shape | None = None
    axes: tuple[str, ...] = ()  # names of the axes, where they are known


@dataclass(frozen=True, slots=True)
class Dimension:
    """A size that changed in the same way in every tensor that has it."""

    old: int
    new: int
    axes: tuple[str, ...]  # what that axis is called, the most frequent name first
    tensors: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is different between two traces."""

    dimensions: tuple[Dimension, ...] = ()
    changes: tuple[Change, ...] = ()  # without the reshaped tensors that the dimensions explain

    @property
    def same(self) -> bool:
        return not self.dimensions and not self.changes


def compare(old: Trace, new: Trace, comments: bool = True, rtol: float | None = None) -> Comparison:
    """What changed from the old trace to the new one, in the order in which things run.

    comments: whether a changed comment is a change. rtol: the largest difference of a figure, relative to the tensor's
    largest value, that is none; None: figures are not compared.
    """
    found = (
        *_compare_steps("", old.calls, new.calls, rtol),
        *_compare_steps("", old.uncalled, new.uncalled, rtol),
    )
    changes = [each for each in found if comments or each.kind != "recommented"]
    if old.error != new.error:
        changes.append(Change("error", "module", "", "", str(old.error or ""), str(new.error or "")))
    dimensions, left = _explain(changes, old)
    return Comparison(dimensions, left)


def to_plain(comparison: Comparison) -> dict[str, Any]:
    """The comparison as mappings, for JSON."""
    return {
        "same": comparison.same,
        "dimensions": [asdict(each) for each in comparison.dimensions],
        "changes": [asdict(each) for each in comparison.changes],
    }


def fold_changes(changes: Sequence[Change]) -> list[tuple[Change, Change, int]]:
    """Changes that are alike in one layer after another as one: the first, the last, and how many there are."""
    alike: dict[Hashable, list[list[Change]]] = defaultdict(list)
    for change in changes:
        key = replace(change, module=without_numbers(change.module))
        if change.what == "module":
            key = replace(key, old=without_numbers(change.old), new=without_numbers(change.new))
        runs = alike[key]
        if runs and _is_next(runs[-1][-1].module, change.module):
            runs[-1].append(change)
        else:
            runs.append([change])
    return [(run[0], run[-1], len(run)) for runs in alike.values() for run in runs]


def _is_next(module: str, other: str) -> bool:
    """Whether the other path is the same, or that of the next layer."""
    steps = [int(b) - int(a) for a, b in zip(_numbers(module), _numbers(other), strict=True) if a != b]
    return steps in ([], [1])


def _numbers(path: str) -> list[str]:
    return [part for part in path.split(".") if part.isdigit()]


def _compare_steps(path: str, old: Sequence[Step], new: Sequence[Step], rtol: float | None) -> Iterator[Change]:
    for pair in pair_up(old, new, _name_of, _kin_of):
        one = pair.new or pair.old
        if isinstance(one, ModuleCall):
            yield from _compare_modules(pair, rtol)
        else:
            what = "buffer" if one.role == "buffer" else "tensor"
            yield from _tell_pair(what, path, pair)
            if pair.old is not None and pair.new is not None:
                yield from _compare_fields(what, path, pair.old, pair.new, rtol)


def _compare_modules(between: Pair, rtol: float | None) -> Iterator[Change]:
    old: ModuleCall | None = between.old
    new: ModuleCall | None = between.new
    one: ModuleCall = between.new or between.old
    if between.kind == "renamed" and old and new:
        yield Change("renamed", "module", new.module, "", old.module, new.module)
    elif between.kind == "moved":
        yield Change("moved", "module", one.module, "", _after(between.before_old), _after(between.before_new))
    elif between.kind != "same":
        yield Change(
            between.kind, "module", one.module, "", old.class_name if old else "", new.class_name if new else ""
        )
    if old is None or new is None:
        return
    if old.note != new.note:
        yield Change("note", "module", new.module, "", old.note, new.note)
    if old.class_name != new.class_name:
        yield Change("class", "module", new.module, "", old.class_name, new.class_name)
    for pair in pair_up(old.parameters, new.parameters, lambda each: each.name, lambda each: each.shape):
        if pair.kind != "moved":  # in which order parameters were registered is no part of what ran
            yield from _tell_pair("parameter", new.module, pair)
        if pair.old is not None and pair.new is not None:
            yield from _compare_fields("parameter", new.module, pair.old, pair.new, rtol)
    yield from _compare_steps(new.module, old.buffers, new.buffers, rtol)
    yield from _compare_steps(new.module, old.steps, new.steps, rtol)


def _tell_pair(what: str, path: str, pair: Pair) -> Iterator[Change]:
    """What became of the record as a whole."""
    if pair.kind == "added":
        yield Change("added", what, path, pair.new.name, "", _write(pair.new), None, pair.new.shape)
    elif pair.kind == "removed":
        yield Change("removed", what, path, pair.old.name, _write(pair.old), "", pair.old.shape)
    elif pair.kind == "renamed":
        yield Change("renamed", what, path, pair.new.name, pair.old.name, pair.new.name)
    elif pair.kind == "moved":
        yield Change("moved", what, path, pair.new.name, _after(pair.before_old), _after(pair.before_new))


def _compare_fields(what: str, path: str, old: Record, new: Record, rtol: float | None) -> Iterator[Change]:
    for each in fields(old):
        before, after = getattr(old, each.name), getattr(new, each.name)
        if each.name not in _KINDS or before == after:
            continue
        if each.name == "local_shape" and (old.shape, old.placements) != (new.shape, new.placements):
            continue  # which follows from these
        if each.name == "stats":
            changed = rtol is not None and describe_values(before, after, rtol)
            if changed:
                yield Change("values", what, path, new.name, *changed)
        elif each.name == "shape":
            text = write_shape(before), write_shape(after)
            yield Change("reshaped", what, path, new.name, *text, before, after, new.axes or old.axes)
        else:
            write = write_shape if each.name == "local_shape" else _text
            yield Change(_KINDS[each.name], what, path, new.name, write(before), write(after))


def describe_values(old: TensorStats | None, new: TensorStats | None, rtol: float) -> tuple[str, str] | None:
    """The figures that differ by more than rtol of the tensor's largest value, on both sides; None where none does."""
    if old is None or new is None:
        return "figures" if old else "no figures", "figures" if new else "no figures"
    scale = max(abs(old.min or 0.0), abs(old.max or 0.0))
    names = ("min", "max", "mean", "rms")
    figures = [(name, getattr(old, name), getattr(new, name)) for name in names]
    figures += [(f"sample {at}", *both) for at, both in enumerate(zip_longest(old.samples, new.samples))]
    wrong = [(name, before, after) for name, before, after in figures if _is_apart(before, after, rtol * scale)]
    # A count is equal or not, whatever the tensor's scale.
    wrong += [
        (name, getattr(old, name), getattr(new, name))
        for name in ("nan", "inf")
        if getattr(old, name) != getattr(new, name)
    ]
    told = [", ".join(f"{name} {_number(each[side])}" for name, *each in wrong) for side in (0, 1)]
    return (told[0], told[1]) if wrong else None


def _is_apart(old: float | None, new: float | None, limit: float) -> bool:
    return old != new if old is None or new is None else abs(old - new) > limit


def _number(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:g}"


def _explain(changes: Sequence[Change], trace: Trace) -> tuple[tuple[Dimension, ...], tuple[Change, ...]]:
    """Sizes that changed in every tensor that has them, told once, and the changes that they do not explain."""
    steps = Counter(step for change in changes for step in _size_changes(change))
    having = Counter(size for module in walk_modules(trace) for each in tensors_of(module) for size in set(each.shape))
    gone = Counter(size for each in changes if each.kind == "removed" for size in set(each.old_shape or ()))
    everywhere = {
        (old, new)
        for (old, new), count in steps.items()
        if count >= _EVERYWHERE and count == having[old] - gone[old] and (new, old) not in steps
    }
    names: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    left = []
    for change in changes:
        changed = _size_changes(change)
        if changed and changed <= everywhere:
            for old, new, axis in _changed_axes(change):
                names[old, new][axis] += 1
        else:
            left.append(change)
    told = [step for step in sorted(everywhere) if step in names]
    dimensions = tuple(
        Dimension(*step, tuple(axis for axis, _ in names[step].most_common() if axis), steps[step]) for step in told
    )
    return dimensions, tuple(left)


def _size_changes(change: Change) -> set[tuple[int, int]]:
    return {(old, new) for old, new, _ in _changed_axes(change)}


def _changed_axes(change: Change) -> Iterator[tuple[int, int, str]]:
    """The sizes that differ where the number of axes is the same, each with the axis' name, if that is known."""
    old, new = change.old_shape, change.new_shape
    if change.kind == "reshaped" and change.what == "tensor" and old and new and len(old) == len(new):
        axes = change.axes if len(change.axes) == len(new) else ("",) * len(new)
        yield from (
            (before, after, axis) for before, after, axis in zip(old, new, axes, strict=True) if before != after
        )


def _name_of(step: Step) -> Hashable:
    return step.module if isinstance(step, ModuleCall) else (step.name,)


def _kin_of(step: Step) -> Hashable:
    """Equal for steps that can be one and the same under another name."""
    if isinstance(step, ModuleCall):
        return (step.class_name, len(step.parameters), len(step.steps))
    return (len(step.shape), step.dtype, step.role)


def _after(step: Any) -> str:
    if step is None:
        return "first"
    return f"after {step.module.rpartition('.')[2] if isinstance(step, ModuleCall) else step.name}"


def _write(record: Record) -> str:
    is_plain = isinstance(record, ParameterRecord) or not record.kind
    return f"{write_shape(record.shape)} {record.dtype}" if is_plain else write_value(record)


def _text(value: Any) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value)
