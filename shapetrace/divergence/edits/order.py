"""The right numbers in the wrong order: axes, heads, positions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from shapetrace.divergence.definitions import Change, Definition, average, merge_heads, project, project_heads, score
from shapetrace.divergence.edits.attention import attending
from shapetrace.divergence.edits.edit import Edit, Site, fixed, short

_WORDS = {
    **{"b": "batch", "p": "position", "n": "head", "h": "d_head", "m": "d_model", "f": "d_mlp", "v": "d_vocab"},
    **{"q": "query", "k": "key", "1": "1"},
}
_SHIFTS = (1, -1, 2, -2, 3, -3)
_INTERLEAVED = "heads interleaved instead of one after the other"
# What is read that may be read in a wrong order, by role.
_READ = {
    **dict.fromkeys(("z", "v", "q", "k"), "b p n h"),
    "pattern": "b n q k",
    **dict.fromkeys(("embed", "pos_embed", "resid", "update"), "b p m"),
}


def edit_order(site: Site) -> Iterator[Edit]:
    """The result's axes read in another order, or one of its axes turned or moved."""
    definition = site.definition
    if definition.function is score:
        return
    for change, kind, words in _orders(definition.axes.split(), site.values.shape(definition.name)):
        told = f"yours has the reference's numbers in another order: {words}."
        yield fixed(kind, definition.followed_by(change), told, 2)
        if definition.tensor == "q":  # one mistake made three times is one mistake
            others = [site.values.definitions[definition.name[:-1] + each] for each in "kv"]
            told = f"`q`, `k` and `v` have the reference's numbers in another order: {words}."
            besides = tuple(each.followed_by(change) for each in others)
            yield fixed(kind, definition.followed_by(change), told, 2, besides=besides)


def edit_order_of_operands(site: Site) -> Iterator[Edit]:
    """The same of what is read, and matrices that lie the other way round."""
    definition = site.definition
    if definition.function in (project_heads, merge_heads, project):
        yield from _matrices(site)
    for role, operand in definition.operands.items():
        if role not in _READ:
            continue
        for change, kind, words in _orders(_READ[role].split(), site.values.shape(operand.name)):
            words = f"{short(operand.name)} goes in with its numbers in another order: {words}."
            yield fixed(kind, definition.with_operand(role, change=change), words, 3)


def edit_order_of_heads(site: Site) -> Iterator[Edit]:
    """q, k and v all three in another order, where what shows it is what attention makes of them."""
    definition = site.definition
    if definition.function is not average:
        return
    scores = site.values.definitions[definition.name.replace("hook_z", "hook_attn_scores")]
    operands = {**scores.operands, "v": definition.operands["v"]}
    for change, kind, words in _orders(["b", "p", "n", "h"], site.values.shape(definition.name)):
        attend = attending(change, scores.settings["visible"])
        words = f"`q`, `k` and `v` go in with their numbers in another order: {words}."
        yield fixed(kind, Definition(definition.name, definition.axes, attend, operands), words, 3)


def _matrices(site: Site) -> Iterator[Edit]:
    shape = site.values.shape(site.definition.operands["weight"].name)
    for axis in range(len(shape)):
        yield _matrix(site, _flipped(axis), f"runs backwards along axis {axis}")
    if site.definition.function is project_heads:
        heads, width, inner = shape
        if width == heads * inner:
            yield _matrix(
                site, lambda w: w.permute(0, 2, 1).reshape(width, heads, inner).permute(1, 0, 2), "is transposed"
            )
        for change in (
            lambda w: w.permute(1, 2, 0).reshape(width, heads, inner).permute(1, 0, 2),
            lambda w: w.permute(1, 0, 2).reshape(width, inner, heads).permute(2, 0, 1),
        ):
            yield _matrix(site, change, f"has its columns regrouped: {_INTERLEAVED}")
    elif site.definition.function is merge_heads:
        heads, inner, width = shape
        if width == heads * inner:
            yield _matrix(site, lambda w: w.reshape(width, width).T.reshape(heads, inner, width), "is transposed")
        for change in (
            lambda w: w.reshape(inner, heads, width).permute(1, 0, 2),
            lambda w: w.permute(1, 0, 2).reshape(heads, inner, width),
        ):
            yield _matrix(site, change, f"has its rows regrouped: {_INTERLEAVED}")
    elif shape[0] == shape[1]:
        yield _matrix(site, lambda w: w.T, "is transposed")


def _matrix(site: Site, change: Change, words: str) -> Edit:
    name = site.definition.operands["weight"].name
    changed = site.definition.with_operand("weight", change=change)
    return fixed("permutation", changed, f"{short(name)} {words}.", 2, name)


Order = tuple[Change, str, str]  # the change, its kind and its words


def _orders(axes: list[str], shape: tuple[int, ...]) -> Iterator[Order]:
    for axis, letter in enumerate(axes):
        if shape[axis] > 1 and letter in "pqknhmfv":
            yield from _moved(axis, letter, shape[axis])
    yield from _misread(axes, shape)


def _moved(axis: int, letter: str, size: int) -> Iterator[Order]:
    """Along one axis, moved or turned round."""
    kind, word = "shift" if letter in "pqk" else "permutation", _WORDS[letter]
    yield _flipped(axis), kind, f"the {word} axis runs backwards"
    for step in _SHIFTS:
        if abs(step) < size:
            where = f"by {abs(step)} {'forwards' if step > 0 else 'back'}"
            yield _rolled(step, axis), kind, f"moved along the {word} axis {where}"


def _misread(axes: list[str], shape: tuple[int, ...]) -> Iterator[Order]:
    """The numbers as they lie in memory, read with axes that are not theirs."""
    whole = (*range(len(shape)),)
    readings = [whole, (0, 2, 1, 3)] if axes[1:3] == ["p", "n"] else [whole]
    for order in _distinct_orders(shape):
        for reading in readings:
            if order != reading:
                words = f"{_tell(axes, order)} in memory is read as {_tell(axes, reading)}"
                yield _reread(order, reading, shape), "permutation", words
    if axes[-2:] == ["n", "h"]:
        *front, heads, inner = shape
        regrouped = (*front, inner, heads)
        for order in _distinct_orders(regrouped):
            for reading in readings:
                yield _regrouped(regrouped, _reread(order, reading, shape)), "permutation", f"{_INTERLEAVED}"


def _distinct_orders(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The orders of the axes; one of size 1 stays where it is."""
    long = [axis for axis, size in enumerate(shape) if size > 1]
    found = []
    for order in permutations(long):
        left = iter(order)
        found.append(tuple(next(left) if axis in long else axis for axis in range(len(shape))))
    return found


def _flipped(axis: int) -> Change:
    return lambda x: x.flip(axis)


def _rolled(step: int, axis: int) -> Change:
    return lambda x: x.roll(step, axis)


def _reread(order: tuple[int, ...], reading: tuple[int, ...], shape: tuple[int, ...]) -> Change:
    """Lay the axes out in one order, and take what then lies there for axes in another."""
    view = tuple(shape[axis] for axis in reading)
    back = tuple(reading.index(axis) for axis in range(len(reading)))
    return lambda x: x.permute(order).reshape(view).permute(back)


def _regrouped(shape: tuple[int, ...], then: Change) -> Change:
    return lambda x: then(x.reshape(shape))


def _tell(axes: list[str], order: tuple[int, ...]) -> str:
    return "(" + ", ".join(_WORDS[axes[axis]] for axis in order) + ")"
