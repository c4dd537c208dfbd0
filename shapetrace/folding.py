"""Equal neighbours told once: `blocks.0 ... blocks.11  x12`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

from shapetrace.trace import ModuleCall, ParameterRecord, TensorRecord

Item = TypeVar("Item")
Step = TensorRecord | ModuleCall

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_TRIES = 64  # a loop body that has its first step more often than this within it is told as often as it ran
_MANY = 16  # so many steps in a row that differ in their sizes only are the passes of one loop


@dataclass(frozen=True, slots=True)
class Run(Generic[Item]):
    """A stretch of items, how often it stands there in a row, and its last occurrence."""

    items: tuple[Item, ...]
    times: int
    last: tuple[Item, ...]


def fold(items: Sequence[Item], likeness: Callable[[Item], Hashable]) -> list[Run[Item]]:
    """The items with each repeated stretch told once; items are alike when their likenesses are equal.

    a b c b c b c d d -> a, (b c) x3, d x2
    """
    codes: dict[Hashable, int] = {}
    keys = [codes.setdefault(likeness(item), len(codes)) for item in items]
    places: list[list[int]] = [[] for _ in codes]
    for index, key in enumerate(keys):
        places[key].append(index)
    runs = []
    start = 0
    while start < len(items):
        length, times = _longest_repeat(keys, start, places[keys[start]])
        end = start + length * times
        runs.append(Run(tuple(items[start : start + length]), times, tuple(items[end - length : end])))
        start = end
    return runs


def fold_names(names: Iterable[str]) -> list[str]:
    """Names that differ in a layer's number only as one: `blocks.0.attn.mask ... blocks.11.attn.mask  x12`."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(without_numbers(name), []).append(name)
    return [each[0] if len(each) == 1 else f"{each[0]} ... {each[-1]}  x{len(each)}" for each in alike.values()]


def fold_loops(
    items: Sequence[Item], likeness: Callable[[Item], Hashable], form: Callable[[Item], Hashable]
) -> list[Run[Item]]:
    """As `fold`; and where 16 or more in a row are alike in their form at least, told once as well."""
    if len(items) < _MANY:
        return fold(items, likeness)
    runs: list[Run[Item]] = []
    waiting: list[Item] = []
    position = 0
    for run in fold(items, form):
        following = position + len(run.items) * run.times
        if run.times < _MANY:
            waiting += items[position:following]
        else:
            runs += [*fold(waiting, likeness), run]
            waiting = []
        position = following
    return runs + fold(waiting, likeness)


def likeness_of(step: Step, sizes: bool = True) -> Hashable:
    """Equal for two steps that differ in the numbers of their paths only, as the layers of a model do.

    Without the sizes: also for two that differ in those of their tensors, as the passes of a loop do that makes a
    sequence longer; never in those of parameters.
    """
    if isinstance(step, TensorRecord):
        found = (step.shape, step.stats, step.local_shape) if sizes else len(step.shape)
        return without_numbers(step.name), found, _other_fields(step)
    parameters = tuple([(without_numbers(each.tied), _other_fields_of_parameter(each)) for each in step.parameters])
    inner = tuple([likeness_of(each, sizes) for each in step.steps])
    note = without_numbers(step.note)
    return (without_numbers(step.module), step.class_name, note, parameters, step.buffers, inner)


def _fields_without(cls: type, *names: str) -> Callable[[Any], tuple[Any, ...]]:
    """What makes two records of the class equal, but for the fields of these names."""
    return attrgetter(*(each.name for each in fields(cls) if each.compare and each.name not in names))


_other_fields = _fields_without(TensorRecord, "name", "shape", "stats", "local_shape")
_other_fields_of_parameter = _fields_without(ParameterRecord, "tied")


def form_of(step: Step) -> Hashable:
    """Its likeness without the sizes."""
    return likeness_of(step, sizes=False)


def span(first: str, last: str) -> str:
    """Two names that differ in numbers only: `cache.0.key` and `cache.11.key` -> `cache.0..11.key`."""
    parts = zip(first.split("."), last.split("."), strict=True)
    return ".".join(one if one == other else f"{one}..{other}" for one, other in parts)


def without_numbers(path: str) -> str:
    """`blocks.11.attn` -> `blocks.#.attn`."""
    return _NUMBER.sub("#", path)


def _longest_repeat(keys: list[int], start: int, places: list[int]) -> tuple[int, int]:
    """The length and count of the repeat at start that covers most; the shortest of those that cover the same.

    places: where the key that stands at start stands, in order: a repeat can but begin there again.
    """
    best = (1, 1)
    after = bisect_right(places, start)
    for place in places[after : after + _TRIES]:
        length = place - start
        if start + 2 * length > len(keys):
            break
        stretch = keys[start:place]
        times = 1
        while keys[start + times * length : start + (times + 1) * length] == stretch:
            times += 1
        if times > 1 and times * length > best[0] * best[1]:
            best = (length, times)
    return best
