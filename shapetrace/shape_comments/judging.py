"""Whether each claim is true of what was seen."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from shapetrace.axes.arithmetic import Name
from shapetrace.axes.axis import Axis
from shapetrace.axes.vocabulary import as_written, is_batch, strength_of
from shapetrace.shape_comments.claims import Claim, ClaimedFile
from shapetrace.shape_comments.concluding import NO_SHAPE, Judgement, conclude, may_be_shape
from shapetrace.shape_comments.explaining import Probe, distance, explain, find_order
from shapetrace.shape_comments.findings import FALSE, TRUE, UNDECIDED, Finding
from shapetrace.shape_comments.fitting import align, bind, fits, known_count, mismatches, names_of
from shapetrace.shape_comments.resolving import Resolution, count_elsewhere, resolve
from shapetrace.shape_comments.symbols import Known
from shapetrace.shape_comments.watching import Scope, Sighting, Value
from shapetrace.trace import Shape


def judge(files: Iterable[ClaimedFile], scopes: Sequence[Scope], probe: Probe) -> tuple[list[Finding], list[str]]:
    """A finding for each shape comment, in the order of the files, and the symbols that could not be told apart."""
    elsewhere = count_elsewhere(scopes)
    uses = {id(file): _uses(file) for file in files}
    judged: dict[Claim, list[Judgement]] = defaultdict(list)
    alike: dict[tuple[str, str], int] = {}
    for scope in scopes:
        resolution = resolve(scope, elsewhere)
        court = _Court(scope, resolution, uses[id(scope.file)], probe, elsewhere)
        for sighting in scope.sightings:
            judgement = court.judge(sighting)
            judged[sighting.claim].append(judgement)
            if judgement.status == TRUE:
                for pair, size in _alike(sighting.claim, judgement.value[1]):
                    if pair[::-1] not in alike:
                        alike.setdefault(pair, size)
    findings = []
    for file in files:
        known = uses[id(file)]
        for claim in file.claims:
            finding = conclude(claim, judged, known)
            if finding is not None:
                findings.append(finding)
    notes = [
        f"{first} and {second} are both {size} here: a comment that takes one for the other would pass"
        for (first, second), size in alike.items()
    ]
    return findings, notes


class _Court:
    """One run of one function."""

    def __init__(
        self,
        scope: Scope,
        resolution: Resolution,
        uses: Counter[str],
        probe: Probe,
        elsewhere: dict[tuple[str, str], Counter[int]],
    ):
        self._scope = scope
        self._resolution = resolution
        self._uses = uses
        self._probe = probe
        self._elsewhere = elsewhere

    def judge(self, sighting: Sighting) -> Judgement:
        claim = sighting.claim
        if claim.kind == "pattern":  # einops has checked its own
            return Judgement(TRUE, (*sighting.values, *sighting.lenient, ("", ()))[0])
        if not sighting.values and not sighting.lenient:
            out_of_sight = claim.about.nodes or claim.about.lenient
            return Judgement(UNDECIDED if out_of_sight and may_be_shape(claim, self._uses) else NO_SHAPE)
        sizes = self._resolution.sizes_for(sighting)
        axes = self._axes_of(claim, sighting)
        values = sighting.values if claim.about.each else sighting.values[:1]
        if not any(self._is_shape(claim, sighting, shape) for _, shape in (*values, *sighting.lenient)):
            return Judgement(NO_SHAPE)
        wrong = next((each for each in values if not fits(axes, each[1], sizes)), None)
        if values and wrong is None:
            return self._look_twice(sighting, axes, values[0])
        fitting = next((each for each in sighting.lenient if fits(axes, each[1], sizes)), None)
        if fitting is not None:
            return Judgement(TRUE, fitting)
        shadowed = self._true_in_itself(sighting, sizes)
        if shadowed is not None:
            return Judgement(TRUE, shadowed)
        if wrong is None:
            return Judgement(UNDECIDED)
        wrong = min((wrong, *sighting.lenient), key=lambda each: distance(axes, each[1], sizes))
        if not self._is_shape(claim, sighting, wrong[1]):
            return Judgement(NO_SHAPE)
        if claim.kind == "docstring" and self._is_only_word(sighting, axes, wrong):
            return Judgement(UNDECIDED, wrong)
        if self._has_moved_on(sighting, axes, wrong):
            return Judgement(TRUE, wrong)
        places = self._resolution.places_for(sighting, independent=True)
        if fits(axes, wrong[1], {name: each.size for name, each in places.items()}):
            places = self._resolution.places_for(sighting)
        reason, written = explain(axes, wrong[1], places, self._probe)
        return Judgement(FALSE, wrong, reason, tuple(written) if written else None)

    def _look_twice(self, sighting: Sighting, axes: tuple[Axis, ...], value: Value) -> Judgement:
        """Nothing here contradicts it; but by what is said elsewhere two of its axes may be swapped."""
        trusting = self._resolution.places_for(sighting, trusting=True, independent=True)
        file, sizes = self._scope.file.path, {name: each.size for name, each in trusting.items()}
        if sighting.claim.kind != "pattern" and not sighting.lenient:
            for name in sighting.claim.names:
                counts = self._elsewhere.get((file, name), Counter())
                backing = self._resolution.votes.get(name, {})
                lone = (
                    name in self._resolution.voted
                    and len({each.line for claims in backing.values() for each in claims}) < 2
                )
                if (name not in sizes or lone) and _is_clear(counts):
                    sizes[name] = counts.most_common(1)[0][0]
            order = find_order(axes, value[1], sizes)
            if (
                order is not None
                and known_count(axes, sizes)
                and sum(each is not own for each, own in zip(order, axes, strict=True)) == 2
            ):
                places = {
                    name: Known(
                        size,
                        trusting[name].place
                        if name in trusting and trusting[name].size == size
                        else "elsewhere in the file",
                    )
                    for name, size in sizes.items()
                }
                reason, written = explain(axes, value[1], places, self._probe)
                return Judgement(FALSE, value, reason, tuple(written) if written else None)
        return Judgement(TRUE, value)

    def _is_only_word(self, sighting: Sighting, axes: tuple[Axis, ...], value: Value) -> bool:
        """Whether nothing but another docstring contradicts it: they call the lengths of two sequences `seq_len`."""
        places = self._resolution.places_for(sighting, independent=True)
        sizes = {name: each.size for name, each in places.items()}
        wrong = mismatches(axes, value[1], sizes)
        if not wrong or find_order(axes, value[1], sizes) is not None:
            return False
        votes = self._resolution.votes
        return all(
            isinstance(each.axis.size, Name)
            and each.axis.size.name in self._resolution.voted
            and all(
                claim.kind == "docstring" for claims in votes.get(each.axis.size.name, {}).values() for claim in claims
            )
            for each in wrong
        )

    def _has_moved_on(self, sighting: Sighting, axes: tuple[Axis, ...], value: Value) -> bool:
        """`B, C, H, W = x.shape; x = conv(x)  # (B, C, H2, W2)`: C is that of x, which has another now.

        Only where nothing else there speaks of that C, nor has another name for the new one.
        """
        places = self._resolution.places_for(sighting)
        wrong = mismatches(axes, value[1], {name: each.size for name, each in places.items()})
        if not wrong or len(wrong) > 1 or not isinstance(wrong[0].axis.size, Name):
            return False
        name, size = wrong[0].axis.size.name, wrong[0].size
        known = sighting.known.get(name)
        if known is None or not known.of or known.of != value[0]:
            return False
        others = [each for each in self._scope.sightings if each.claim.line != sighting.claim.line]
        spoken = [
            shape[index]
            for each in others
            for _, shape in each.values[:1]
            for axis, index in align(each.claim.said.axes, shape) or ()
            if name in axis.names
        ]
        return known.size not in spoken and not any(each.size == size for each in places.values())

    def _true_in_itself(self, sighting: Sighting, sizes: Mapping[str, int]) -> Value | None:
        """`BCHW -> BNC` behind a convolution: C is one on both sides of the arrow, though it was another before."""
        claim = sighting.claim
        seen = [each for each in self._scope.sightings if each.claim.line == claim.line and each is not sighting]
        for partner in claim.partners:
            values = [value for each in seen if each.claim.said == partner for value in (*each.values, *each.lenient)]
            values += [value for value in sighting.lenient if value not in values]
            for value, (_, shape) in product((*sighting.values, *sighting.lenient), values):
                if shape == value[1]:
                    continue
                bound = bind(partner.axes, shape)
                shared = set(names_of(partner.axes)) & set(names_of(claim.said.axes))
                own = bind(claim.said.axes, value[1])
                if bound is None or own is None or not fits(claim.said.axes, value[1], bound):
                    continue
                if any(
                    bound[name] == own[name] != sizes.get(name, own[name])
                    for name in shared
                    if name in bound and name in own
                ):
                    return value
        return None

    def _axes_of(self, claim: Claim, sighting: Sighting) -> tuple[Axis, ...]:
        """The axes; of a list of nothing but numbers, those that the chosen sizes decide are left open."""
        axes = claim.said.axes
        if claim.said.has_names or claim.kind != "comment" or not self._probe.sizes:
            return axes
        pairs = {id(axis): index for value in sighting.values[:1] for axis, index in align(axes, value[1]) or ()}
        shape = sighting.values[0][1] if sighting.values else ()
        return tuple(
            Axis(axis.text, "any") if id(axis) in pairs and _is_of(shape[pairs[id(axis)]], self._probe.sizes) else axis
            for axis in axes
        )

    def _is_shape(self, claim: Claim, sighting: Sighting, shape: Shape) -> bool:
        """Whether the list is one of axes, and no prose, as far as what it stands beside tells."""
        said = claim.said
        if said.is_shape or claim.kind in ("annotation", "pattern"):
            return True
        fits_rank = align(said.axes, shape) is not None
        if not said.has_names and not fits_rank and said.is_placed:
            sizes = tuple(_numbers(said.axes))
            lacking = [shape[:index] + shape[index + 1 :] for index in range(len(shape))]
            return bool(claim.partners) or (len(sizes) > 1 and sizes in lacking and self._names_batch())
        if not said.has_names:
            return fits_rank and (said.is_placed or bool(said.near)) and not any(axis.size == 0 for axis in said.axes)
        known = sighting.known
        if any(axis.size == 0 for axis in said.axes):
            return False  # an index
        if not any(strength_of(name) == 2 or name in known or self._uses[name] > 1 for name in claim.names):
            return False
        odd = [name for name in claim.names if strength_of(name) == 0 and name not in known and self._uses[name] < 2]
        if odd and not (fits_rank and said.is_placed and len(odd) < len(claim.names)):
            return False
        if len(said.axes) == 1 and not said.text.rstrip(")] ").endswith(","):
            name = next(iter(claim.names), "")
            return (
                name in known
                or (self._uses[name] > 1 and strength_of(name) > 0)
                or (fits_rank and strength_of(name) == 2)
            )
        if fits_rank:
            return True
        return all(self._is_familiar(name, claim, known) for name in claim.names) and any(
            axis.names for axis in said.axes
        )

    def _names_batch(self) -> bool:
        """Whether lists with names stand here too that have all the axes: then none leaves the batch out."""
        return any(
            each.claim.said.has_names and align(each.claim.said.axes, shape) is not None
            for each in self._scope.sightings
            for _, shape in each.values[:1]
        )

    def _is_familiar(self, name: str, claim: Claim, known: dict[str, Known]) -> bool:
        """Whether the name is that of an axis here: it has a size by another claim, or is hardly anything else."""
        if name in known:
            return True
        if name in self._scope.tensors:
            return False
        lines = {each.line for claims in self._resolution.votes.get(name, {}).values() for each in claims}
        if lines - {claim.line} or (self._scope.file.path, name) in self._elsewhere:
            return True
        # `(height, width)` of an image may be meant as a size; a batch that is named is one of the axes.
        return is_batch(claim.names[0]) or name.isupper() or ("_" in name and strength_of(name) == 2)


def _is_clear(counts: Counter[int]) -> bool:
    """Whether several functions say one size, and hardly any another."""
    (_, most), (_, next_most) = [*counts.most_common(2), (0, 0), (0, 0)][:2]
    return most > 1 + next_most or (most > 1 and not next_most)


def _numbers(axes: Sequence[Axis]) -> list[int]:
    return [axis.size for axis in axes if isinstance(axis.size, int)] or [0]


def _is_of(size: int, sizes: set[int]) -> bool:
    return any(size % each == 0 for each in sizes if each > 1)


def _uses(file: ClaimedFile) -> Counter[str]:
    """On how many lines claims use each name."""
    return Counter(name for name, _ in {(name, claim.line) for claim in file.claims for name in claim.names})


def _alike(claim: Claim, shape: Shape) -> Iterable[tuple[tuple[str, str], int]]:
    """Names of different axes that have one size, of which a swap would not show."""
    pairs = [
        (axis.size.name, shape[index])
        for axis, index in align(claim.said.axes, shape) or ()
        if isinstance(axis.size, Name)
    ]
    for index, (first, size) in enumerate(pairs):
        for second, other in pairs[index + 1 :]:
            if size == other and first != second and size > 1:
                yield (as_written(first), as_written(second)), size
