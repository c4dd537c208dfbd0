"""Why a claim is false, in one sentence, and what it should say where that is certain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

from shapetrace.axes.arithmetic import Name, Operation
from shapetrace.axes.axis import Axis
from shapetrace.axes.vocabulary import as_written, is_batch
from shapetrace.shape_comments.fitting import Mismatch, fits, known_count, mismatches
from shapetrace.shape_comments.symbols import Known
from shapetrace.trace import Shape

_MOST_PERMUTED = 6


@dataclass(frozen=True, slots=True)
class Probe:
    """The sizes that were chosen for this run: what only they decide, a literal cannot be wrong or right about."""

    batch: int | None = None
    posn: int | None = None

    @property
    def sizes(self) -> set[int]:
        return {each for each in (self.batch, self.posn) if each is not None}

    def decides(self, size: int) -> bool:
        """Whether it is one of them, or `B * T`."""
        return size in self.sizes or size == (self.batch or 0) * (self.posn or 0)


_AS_GIVEN = Probe()


def explain(
    axes: Sequence[Axis], shape: Shape, places: Mapping[str, Known], probe: Probe = _AS_GIVEN
) -> tuple[str, list[str] | None]:
    """The reason, and the axes as they should be written, where that is certain."""
    sizes = {name: each.size for name, each in places.items()}
    wrong = mismatches(axes, shape, sizes)
    if wrong is None:
        return _explain_rank(axes, shape, places, sizes, probe.batch)
    swapped = find_order(axes, shape, sizes)
    if swapped is not None and not (len(wrong) == 1 and _is_overdone(axes, shape, sizes)):
        moved = [index for index, axis in enumerate(swapped) if axis is not axes[index]]
        written = [axis.text for axis in swapped]
        if len(moved) == 2:
            return f"axes {moved[0]} and {moved[1]} are swapped", written
        return f"the order is ({', '.join(written)})", written
    sentences, written = [], [axis.text for axis in axes]
    certain = True
    for each in wrong:
        others = _names_of(each.size, places, axes)
        sentences.append(
            _explain_axis(each, axes, shape, places) + (f", which is {others[0]}" if len(others) == 1 else "")
        )
        is_literal = isinstance(each.axis.size, int) and not probe.decides(each.size)
        replacement = str(each.size) if is_literal else others[0] if len(others) == 1 else None
        certain = certain and replacement is not None
        if replacement is not None and len(axes) == len(shape):
            written[each.index] = replacement
    return "; ".join(sentences), written if certain and len(axes) == len(shape) else None


def _is_overdone(axes: Sequence[Axis], shape: Shape, sizes: Mapping[str, int]) -> bool:
    """Whether arithmetic stands where its bare name would be right: `2 * h` where the size is h."""
    return any(
        isinstance(axis.size, Operation) and shape[index] in {sizes.get(name) for name in axis.names}
        for index, axis in enumerate(axes)
    )


def distance(axes: Sequence[Axis], shape: Shape, sizes: Mapping[str, int]) -> int:
    """How far a shape is from what the axes say: of several the nearest is the one that was meant."""
    wrong = mismatches(axes, shape, sizes)
    if wrong is not None:
        return 1 if find_order(axes, shape, sizes) else 1 + 2 * len(wrong)
    lacks = [index for index in range(len(shape)) if fits(axes, (*shape[:index], *shape[index + 1 :]), sizes)]
    exceeds = [index for index in range(len(axes)) if fits([*axes[:index], *axes[index + 1 :]], shape, sizes)]
    return 4 if lacks or exceeds else 100 + abs(len(axes) - len(shape))


def find_order(axes: Sequence[Axis], shape: Shape, sizes: Mapping[str, int]) -> tuple[Axis, ...] | None:
    """The axes in an order that fits: two exchanged, or else as few moved as possible; None where no order does."""
    if not 1 < len(axes) <= _MOST_PERMUTED or any(axis.kind == "rest" for axis in axes):
        return None
    if fits(axes, shape, sizes):
        return None
    known = [axis for axis in axes if known_count([axis], sizes)]  # where none of those moved is, any order would fit
    for first, second in combinations(range(len(axes)), 2):
        order = list(axes)
        order[first], order[second] = order[second], order[first]
        is_backed = axes[first] in known or axes[second] in known
        if is_backed and axes[first].text != axes[second].text and fits(order, shape, sizes):
            return tuple(order)
    orders = [order for order in permutations(axes) if fits(order, shape, sizes) and known]
    orders.sort(key=lambda order: sum(axis is not own for axis, own in zip(order, axes, strict=True)))
    return orders[0] if orders else None


def _explain_rank(
    axes: Sequence[Axis], shape: Shape, places: Mapping[str, Known], sizes: Mapping[str, int], batch: int | None
) -> tuple[str, list[str] | None]:
    named, there = sum(axis.kind != "rest" for axis in axes), len(shape)
    at_least = "at least " if any(axis.kind == "rest" for axis in axes) else ""
    reason = f"{at_least}{named} {'axis' if named == 1 else 'axes'} named, {there} there"
    if at_least or abs(named - there) != 1:
        return reason, None
    written = [axis.text for axis in axes]
    if there > named:
        missing = [index for index in range(there) if fits(axes, (*shape[:index], *shape[index + 1 :]), sizes)]
        if 0 in missing and shape[0] == batch:
            missing = [0]
        if len(missing) != 1:
            return reason, None
        index = missing[0]
        names = _names_of(shape[index], places, axes)
        leads = index == 0 and (shape[0] == batch or bool(names and is_batch(names[0])))
        what = "the batch axis is missing" if leads else f"axis {index} ({shape[index]}) is not named"
        return f"{reason}: {what}", [*written[:index], names[0], *written[index:]] if len(names) == 1 else None
    extra = [index for index in range(named) if fits([*axes[:index], *axes[index + 1 :]], shape, sizes)]
    extra = [index for index in extra if index == extra[0] or axes[index].text != axes[extra[0]].text]
    if len(extra) != 1 or not known_count(axes, sizes):
        return reason, None
    return f"{reason}: there is no {axes[extra[0]].text}", [*written[: extra[0]], *written[extra[0] + 1 :]]


def _explain_axis(wrong: Mismatch, axes: Sequence[Axis], shape: Shape, places: Mapping[str, Known]) -> str:
    axis, size = wrong.axis, wrong.axis.size
    if isinstance(size, int):
        return f"axis {wrong.index} is {wrong.size}, not {size}"
    if isinstance(size, Name):
        known = places.get(size.name)
        place = known.place if known else next(f"axis {index}" for index, each in enumerate(axes) if each.size == size)
        return f"{axis.text} is {wrong.expected} ({place}) but axis {wrong.index} here is {wrong.size}"
    if wrong.expected is None:
        return f"axis {wrong.index} here is {wrong.size}, which {axis.text} cannot be"
    told = [
        f"{as_written(name)} is {places[name].size}, {places[name].place}"
        for name in dict.fromkeys(axis.names)
        if name in places
    ]
    return (
        f"{axis.text} is {wrong.expected}"
        + (f" ({'; '.join(told)})" if told else "")
        + f" but axis {wrong.index} here is {wrong.size}"
    )


def _names_of(size: int, places: Mapping[str, Known], axes: Sequence[Axis]) -> list[str]:
    """The names that have this size; those that comments use, before those that only the code has."""
    return [as_written(name) for name, each in places.items() if each.size == size and size > 1 and "." not in name]
