"""Equal neighbours told once: `blocks.0 ... blocks.11  x12`."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from shapetrace.trace import ModuleCall, TensorRecord

Item = TypeVar("Item")
Step = TensorRecord | ModuleCall

_LONGEST = 64  # a loop body with more steps than this is told as often as it ran


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
    runs = []
    start = 0
    while start < len(items):
        length, times = _longest_repeat(keys, start)
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


def likeness_of(step: Step) -> Hashable:
    """Equal for two steps that differ in the numbers of their paths only, as the layers of a model do."""
    if isinstance(step, TensorRecord):
        return step
    parameters = tuple(replace(each, tied=without_numbers(each.tied)) for each in step.parameters)
    inner = tuple(map(likeness_of, step.steps))
    return (without_numbers(step.module), step.class_name, step.note, parameters, step.buffers, inner)


def without_numbers(path: str) -> str:
    """`blocks.11.attn` -> `blocks.#.attn`."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "#", path)


def _longest_repeat(keys: list[int], start: int) -> tuple[int, int]:
    """The length and count of the repeat at start that covers most; the shortest of those that cover the same."""
    best = (1, 1)
    for length in range(1, min(_LONGEST, (len(keys) - start) // 2) + 1):
        stretch = keys[start : start + length]
        times = 1
        while keys[start + times * length : start + (times + 1) * length] == stretch:
            times += 1
        if times > 1 and times * length > best[0] * best[1]:
            best = (length, times)
    return best
