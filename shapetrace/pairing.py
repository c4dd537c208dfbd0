"""Which item of one sequence is which of another: by name and order, else moved, else renamed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any


@dataclass(frozen=True, slots=True)
class Pair:
    """An item of each side that belong together; one without the other was added or removed."""

    kind: str  # same, moved, renamed, added, removed
    old: Any
    new: Any
    before_old: Any = None  # what stood before it
    before_new: Any = None


def pair_up(
    old: Sequence[Any], new: Sequence[Any], name: Callable[[Any], Hashable], kin: Callable[[Any], Hashable]
) -> list[Pair]:
    """Match by name and order; then the same name elsewhere has moved, and kin in the same place was renamed."""
    matcher = SequenceMatcher(None, [*map(name, old)], [*map(name, new)], autojunk=False)
    pairs: list[Pair] = []
    gaps: list[tuple[list[int], list[int], int]] = []  # what is left of old and new, and where in `pairs` it belongs
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            pairs += [Pair("same", *both) for both in zip(old[old_start:old_end], new[new_start:new_end], strict=True)]
        else:
            gaps.append(([*range(old_start, old_end)], [*range(new_start, new_end)], len(pairs)))
    left = {index for old_left, _, _ in gaps for index in old_left}
    matches: dict[int, tuple[str, int]] = {}
    for _, new_left, _ in gaps:  # every move before any renaming, which would take away what has moved
        for index in new_left:
            moved = next((each for each in sorted(left) if name(old[each]) == name(new[index])), None)
            if moved is not None:
                matches[index] = ("moved", moved)
                left.discard(moved)
    for old_left, new_left, _ in gaps:
        for index in new_left:
            renamed = next((each for each in old_left if each in left and kin(old[each]) == kin(new[index])), None)
            if index not in matches and renamed is not None:
                matches[index] = ("renamed", renamed)
                left.discard(renamed)
    told: list[tuple[int, Pair]] = []
    for _, new_left, place in gaps:
        for index in new_left:
            before = new[index - 1] if index else None
            if index in matches:
                kind, match = matches[index]
                told.append((place, Pair(kind, old[match], new[index], old[match - 1] if match else None, before)))
            else:
                told.append((place, Pair("added", None, new[index], None, before)))
    for old_left, _, place in gaps:
        told += [(place, Pair("removed", old[index], None)) for index in old_left if index in left]
    for place, pair in sorted(told, key=lambda each: each[0])[::-1]:  # what belongs in one place stays in order
        pairs.insert(place, pair)
    return pairs
