"""Which tensor of yours is which activation of the reference: by module and name where they agree, else by value."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

from torch import Tensor

from shapetrace.divergence.arrangements import arrangements, at_last_position
from shapetrace.divergence.candidates import find_candidates
from shapetrace.divergence.definitions import Definition
from shapetrace.divergence.lines import locate_use
from shapetrace.divergence.names import is_called, is_rival
from shapetrace.divergence.observation import Observation, Observed
from shapetrace.divergence.places import GIVEN, Places
from shapetrace.divergence.tolerance import Tolerance, is_hidden, measure, squares_of, visible_scores
from shapetrace.report import Difference

MATCHED, DIFFERS, UNSEEN = "matched", "differs", "unseen"


@dataclass(frozen=True, slots=True)
class Aligned:
    """An activation of the reference, and the tensor of yours that stands for it, its axes in the reference's order."""

    definition: Definition
    state: str
    reference: Tensor
    seen: Observed | None = None
    yours: Tensor | None = None
    difference: Difference | None = None
    alike: tuple[Observed, ...] = ()  # where it matches: all of yours there that have its values
    candidates: tuple[Observed, ...] = ()  # where none matches: those of yours that may stand for it, likeliest first
    is_placed: bool = False  # the likeliest is what a module was given or returned
    # It matches, but the same name was bound again, or a module returned something else, which does not.
    later: Observed | None = None
    stage: str = ""  # it differs only because it is a step towards the activation, such as before a division

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def fits(self) -> bool:
        """Whether the tensor beside it has its shape, axes in order."""
        return self.yours is not None and self.yours.shape == self.reference.shape


def align(
    definitions: Mapping[str, Definition],
    activations: Mapping[str, Tensor],
    seen: Observation,
    places: Places,
    output: Observed | None,
    tolerance: Tolerance,
) -> dict[str, Aligned]:
    """Every activation, in order. `output` is what the model returned as its logits."""
    search = _Search(seen, places, tolerance)
    ends = {name: _ends(name, seen, places) for name in definitions}
    last = [*definitions][-1]
    ends[last] = [output] if output is not None else []
    found = {
        name: search.match(definition, activations[name], ends[name], only_ends=name == last)
        for name, definition in definitions.items()
    }
    matches = matches_of(found.values())
    placed = {id(each.value): name for name, group in ends.items() for each in group}
    aligned = {}
    since: dict[str, int] = {}  # by activation: what stands for it was bound at this moment or after
    for name, each in found.items():
        before = max((since[read] for read in each.definition.reads() if read in since), default=-1)
        if each.state == MATCHED:
            aligned[name] = search.note_rebinding(each, ends[name], {*matches})
        elif name == last and output is None:
            aligned[name] = each  # logits that are made and not returned are none
        else:
            aligned[name] = search.note_candidates(each, ends[name], matches, placed, before)
        since[name] = max(before, search.first_index(each))
    return aligned


class _Search:
    """Looks for one activation after the other among the tensors of one run."""

    def __init__(self, seen: Observation, places: Places, tolerance: Tolerance):
        self._seen = seen
        self._places = places
        self._tolerance = tolerance
        self._squares: dict[int, float] = {}
        self._within: dict[str, list[Observed]] = {}
        self._order = {id(each): index for index, each in enumerate(seen.tensors)}

    def match(self, definition: Definition, reference: Tensor, ends: list[Observed], only_ends: bool) -> Aligned:
        """With the tensor of yours that has its values, if there is one."""
        inside = self._inside(definition.name)
        has_namesakes = any(is_called(each.record.name, definition.tensor) for each in inside)
        for each in self._pool(definition, ends, only_ends):
            if is_rival(each.record.name, definition.tensor) and has_namesakes:
                continue
            found = self._compare(each, definition, reference)
            if found is not None:
                alike = (each, *(other for other in inside if self._compare(other, definition, reference)))
                seen = self._seen.in_source(each, self._places.scopes[definition.name])
                return Aligned(definition, MATCHED, reference, seen, found[1], found[0], alike)
        return Aligned(definition, UNSEEN, reference)

    def note_rebinding(self, found: Aligned, ends: list[Observed], used: set[int]) -> Aligned:
        """With what its name was bound to later, or a module returned instead, where that is something else."""
        returned = {id(each) for each in self._seen.outputs.values()}
        others = []
        for later in ends:
            if later is self._seen.inputs.get(later.module) and later.module in self._seen.repeated:
                continue  # what it was given before may be what belongs there
            # A module may be given any other activation by mistake; what it returns is another one where it is used.
            is_placed = id(later) in returned
            if not (is_placed and id(later.value) in used) and self._is_other(later, found):
                others.append((not is_placed, self._order.get(id(later), math.inf), later))
        right = {id(each.value) for each in found.alike}
        inside = self._inside(found.name)
        groups = [[each for each in inside if is_called(each.record.name, found.definition.tensor)]]
        for name in dict.fromkeys(each.name for each in self._seen.tensors if id(each.value) in right):
            groups.append([each for each in self._seen.tensors if each.name == name])
        for group in groups:
            once = [each for each in group if not self._seen.ran_again(each.module)]
            since = takewhile(lambda each: id(each.value) not in used and self._is_other(each, found), once[::-1])
            wrong = [each for each in since if self._order[id(each)] > self.first_index(found)]
            others += [(True, self._order[id(each)], each) for each in wrong[-1:]]
        if not others:
            return found
        is_not_placed, _, later = min(others, key=lambda each: each[:2])
        return replace(found, later=later, is_placed=not is_not_placed)

    def _is_other(self, seen: Observed, found: Aligned) -> bool:
        """Whether the tensor has the activation's shape and not its values."""
        fits = seen.value.is_floating_point() and _fits(seen.value, found.reference)
        return fits and self._compare(seen, found.definition, found.reference) is None

    def note_candidates(
        self,
        found: Aligned,
        ends: list[Observed],
        matches: Mapping[int, set[str]],
        placed: Mapping[int, str],
        since: int,
    ) -> Aligned:
        """With the tensors of yours that may stand for it, and how far the likeliest of them is off."""
        scope = self._scope_of(found.name)
        later = [each for each in self._of(scope) if self._order[id(each)] >= since]
        free = [each for each in later if placed.get(id(each.value), found.name) == found.name]
        named, fitting = find_candidates(found.definition, found.reference, later, free, {*matches}, scope)
        candidates = tuple({id(each.value): each for each in reversed([*ends, *named, *fitting])}.values())[::-1]
        certain = [*ends, *named][:1]
        if not certain:
            return replace(found, candidates=candidates)
        difference, arranged = nearest(
            certain[0].value, found.reference, self._tolerance.of(found.name), found.definition
        )
        return replace(
            found,
            state=DIFFERS,
            seen=locate_use(self._seen, certain[0], found.definition, self._places.scopes[found.name], matches),
            yours=arranged,
            difference=difference,
            candidates=candidates,
            is_placed=bool(ends),
        )

    def first_index(self, found: Aligned) -> int:
        """When a tensor of yours with the activation's values was first bound; -1 where that is not known."""
        return min((self._order[id(each)] for each in found.alike if id(each) in self._order), default=-1)

    def _pool(self, definition: Definition, ends: list[Observed], only_ends: bool) -> Iterator[Observed]:
        """The tensors to look at: in its place, with a fitting name, in the module, in the block, anywhere."""
        yield from ends
        if only_ends:
            return
        inside = self._inside(definition.name)
        yield from (each for each in reversed(inside) if is_called(each.record.name, definition.tensor))
        yield from inside
        layer = _layer_of(definition.name)
        block = self._places.modules.get(layer, "") if layer else ""
        if block:
            yield from self._of(block)
        if not ends and definition.tensor != "attn_scores":
            yield from self._of("")

    def _compare(self, seen: Observed, definition: Definition, reference: Tensor) -> tuple[Difference, Tensor] | None:
        """The difference, and the tensor arranged as the reference's, where they agree."""
        if not seen.value.is_floating_point():
            return None
        if definition.tensor == "attn_scores":
            return self._compare_scores(seen.value, reference, self._tolerance.of(definition.name))
        limit = self._tolerance.of(definition.name)
        if seen.value.numel() == reference.numel() and not math.isclose(
            self._square(seen.value), self._square(reference), rel_tol=max(1e-3, 4 * limit), abs_tol=1e-12
        ):
            return None
        targets = [reference]
        if definition.name.startswith(("ln_final", "unembed")):
            targets.append(at_last_position(reference, definition.axes))
        for target in targets:
            for arranged in arrangements(seen.value, tuple(target.shape)):
                difference = measure(arranged, target, limit)
                if difference.ok:
                    return difference, arranged
        return None

    def _compare_scores(self, value: Tensor, reference: Tensor, limit: float) -> tuple[Difference, Tensor] | None:
        """Masked scores: what is visible has to agree, and what is not has to be out of the softmax's sight."""
        visible = visible_scores(reference)
        for arranged in arrangements(value, tuple(reference.shape)):
            difference = measure(arranged, reference, limit, visible)
            if difference.ok and is_hidden(arranged, ~visible):
                return difference, arranged
        return None

    def _inside(self, name: str) -> list[Observed]:
        return self._of(self._scope_of(name))

    def _scope_of(self, name: str) -> str:
        """The module that the activation belongs to, or the nearest one around it that can run."""
        return self._seen.around(self._places.scopes[name])

    def _of(self, module: str) -> list[Observed]:
        if module not in self._within:
            self._within[module] = self._seen.within(module)
        return self._within[module]

    def _square(self, tensor: Tensor) -> float:
        if id(tensor) not in self._squares:
            self._squares[id(tensor)] = squares_of(tensor)
        return self._squares[id(tensor)]


def nearest(yours: Tensor, reference: Tensor, limit: float, definition: Definition) -> tuple[Difference, Tensor]:
    """The arrangement that comes nearest to the reference, masked scores aside; itself where its shape does not fit."""
    visible = visible_scores(reference) if definition.tensor == "attn_scores" else None
    tried = [(measure(each, reference, limit, visible), each) for each in arrangements(yours, tuple(reference.shape))]
    if "p" in definition.axes.split() and yours.numel() * reference.shape[definition.axes.split().index("p")] == (
        reference.numel()
    ):  # what a model that predicts one token computes
        last = at_last_position(reference, definition.axes)
        tried = [(measure(each, last, limit), each) for each in arrangements(yours, tuple(last.shape))] or tried
    return min(tried, key=lambda each: each[0].relative, default=(measure(yours, reference, limit), yours))


def matches_of(aligned: Iterable[Aligned]) -> dict[int, set[str]]:
    """By the id of a value of yours: the activations that it matches."""
    found: dict[int, set[str]] = defaultdict(set)
    for each in aligned:
        for seen in each.alike:
            found[id(seen.value)].add(each.name)
    return found


def _ends(name: str, seen: Observation, places: Places) -> list[Observed]:
    sides = [(seen.inputs if end == GIVEN else seen.outputs).get(module) for module, end in places.ends.get(name, ())]
    return [each for each in sides if each is not None]


def _layer_of(name: str) -> str:
    """`blocks.0.attn.hook_q` -> `blocks.0`."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "blocks" else ""


def _fits(yours: Tensor, reference: Tensor) -> bool:
    return next(arrangements(yours, tuple(reference.shape)), None) is not None
