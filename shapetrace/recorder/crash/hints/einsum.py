"""einsum, and einops' rearrange, reduce and repeat: which axis of the pattern does not fit, and what it is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from math import prod

from shapetrace.recorder.crash.hints.evidence import BATCH, Evidence, shape, told
from shapetrace.recorder.crash.operation import Term
from shapetrace.recorder.crash.patterns import EINOPS, Pattern, names_in, pattern_of, sizes_given

_MOST_AXES = 6  # of which every order is tried


def explain(evidence: Evidence) -> Iterator[str]:
    """Ranks, then sizes, then names that are on one side only."""
    pattern = pattern_of(evidence.operation)
    terms = evidence.operation.tensors
    if pattern is None or (evidence.operation.terms and isinstance(evidence.operation.terms[0].value, tuple | list)):
        return  # einops takes a list of tensors for one more axis
    if len(terms) != len(pattern.operands):
        if len([each for each in evidence.operation.terms if not isinstance(each.value, str)]) == len(terms):
            yield f"`{pattern.text}` is for {len(pattern.operands)} tensors, and {len(terms)} are given"
        return
    for term, axes in zip(terms, pattern.operands, strict=True):
        yield from _rank(term, axes, pattern)
    yield from _names(evidence, pattern)
    if evidence.operation.name in EINOPS:
        yield from _groups(evidence, terms[0], pattern)
    else:
        yield from _sizes(terms, pattern)


def _rank(term: Term, axes: tuple[str, ...], pattern: Pattern) -> Iterator[str]:
    size = shape(term)
    if len(size) == len(axes):
        return
    sentence = f"{told(term)} has {len(size)} axes, and `{' '.join(axes)}` names {len(axes)}"
    if len(axes) == len(size) + 1 and axes[0] in BATCH and size[:1] != (1,):
        sentence += f"; is the batch axis missing? {term.apply('[None]')} adds it"
    elif len(axes) > len(size) and any(len(names_in(axis)) > 1 for axis in pattern.result):
        sentence += ": split the one that holds several first"
    yield sentence


def _sizes(terms: list[Term], pattern: Pattern) -> Iterator[str]:
    seen: dict[str, tuple[int, Term, int]] = {}
    for term, axes in zip(terms, pattern.operands, strict=True):
        for index, (axis, size) in enumerate(zip(axes, shape(term), strict=True)):
            known, first, place = seen.setdefault(axis, (size, term, index))
            if known != size and 1 not in (known, size):
                yield (
                    f"axis {axis} is {known} in {first.text} (axis {place}) and {size} in {term.text} (axis {index})"
                    + _other_order(terms, pattern, (first, term))
                )
                return


def _other_order(terms: list[Term], pattern: Pattern, suspects: tuple[Term, Term]) -> str:
    """The reordering of one operand's axes with which every size agrees, if there is just one that moves the fewest."""
    fits = []
    if any(len(shape(each)) > _MOST_AXES for each in terms):
        return ""
    for suspect in suspects:
        at = next(index for index, each in enumerate(terms) if each is suspect)
        axes = pattern.operands[at]
        for order in permutations(range(len(axes))):
            reordered = tuple(axes[index] for index in order)
            rest = [
                (each, names)
                for index, (each, names) in enumerate(zip(terms, pattern.operands, strict=True))
                if index != at
            ]
            if reordered != axes and _agree([(suspect, reordered), *rest]):
                moved = sum(one != other for one, other in zip(axes, reordered, strict=True))
                fits.append((moved, suspect, reordered))
    fewest = [each for each in fits if each[0] == min(moved for moved, _, _ in fits)]
    if len(fewest) != 1:
        return ""
    _, suspect, reordered = fewest[0]
    return f"; {told(suspect)} fits as `{' '.join(reordered)}`"


def _agree(pairs: list[tuple[Term, tuple[str, ...]]]) -> bool:
    sizes: dict[str, int] = {}
    return all(
        sizes.setdefault(axis, size) == size
        for term, axes in pairs
        for axis, size in zip(axes, shape(term), strict=True)
    )


def _groups(evidence: Evidence, term: Term, pattern: Pattern) -> Iterator[str]:
    given = sizes_given(evidence.operation)
    for index, (axis, size) in enumerate(zip(pattern.operands[0], shape(term), strict=True)):
        names = names_in(axis)
        sizes = [int(name) if name.isdigit() else given.get(name) for name in names]
        known = prod(each for each in sizes if each is not None)
        said = " and ".join(f"{name} = {each}" for name, each in zip(names, sizes, strict=True) if each is not None)
        open_names = [name for name, each in zip(names, sizes, strict=True) if each is None]
        where = f"axis {index} of {told(term)}"
        if len(open_names) > 1:
            yield f"`{axis}` splits {where}, and no size is given for {', '.join(open_names)}: add {open_names[0]}=..."
        elif open_names and known and size % known:
            yield f"`{axis}` splits {where}, and {size} is no multiple of {known} ({said})"
        elif not open_names and known != size:
            yield f"`{axis}` is {where}, which is {size} and not {known} ({said})"


def _names(evidence: Evidence, pattern: Pattern) -> Iterator[str]:
    left = [name for axes in pattern.operands for axis in axes for name in names_in(axis)]
    right = [name for axis in pattern.result for name in names_in(axis)]
    given = sizes_given(evidence.operation)
    new = [name for name in right if name not in left and not name.isdigit() and name not in given]
    unused = [name for name in left if name not in right and not name.isdigit()]
    if new:
        word = "in no operand" if evidence.operation.name == "einsum" else "not on the left, and has no size"
        sentence = f"output axis {', '.join(new)} is {word}"
        yield sentence + (f"; {', '.join(dict.fromkeys(unused))} is in no output" if unused else "")
    elif unused and evidence.operation.name in ("rearrange", "repeat"):
        yield f"{', '.join(unused)} is on the left and not on the right: name it there, or reduce over it"
    twice = [name for name in dict.fromkeys(right) if right.count(name) > 1]
    if twice:
        yield f"{', '.join(twice)} is twice on the right of `{pattern.text}`"
