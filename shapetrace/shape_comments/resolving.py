"""Which size each symbol has in one run of a function: what the code says, else what most of the comments there say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from shapetrace.axes.arithmetic import Name, solve
from shapetrace.axes.vocabulary import is_batch
from shapetrace.shape_comments.claims import Claim
from shapetrace.shape_comments.fitting import align, fits
from shapetrace.shape_comments.symbols import Known
from shapetrace.shape_comments.watching import Scope, Sighting

Elsewhere = Mapping[tuple[str, str], Counter[int]]  # by file and name, how many functions agree on a size


@dataclass(slots=True)
class Resolution:
    """By symbol, where it is said what; `doubted`: names of the code that no comment there uses in its sense."""

    known: dict[str, Known] = field(default_factory=dict)
    doubted: dict[str, Known] = field(default_factory=dict)
    voted: dict[str, Known] = field(default_factory=dict)
    votes: dict[str, dict[int, list[Claim]]] = field(default_factory=dict)

    def sizes_for(self, sighting: Sighting, trusting: bool = False) -> dict[str, int]:
        """What each name stands for in this claim; trusting: doubted names too."""
        return {name: each.size for name, each in self.places_for(sighting, trusting).items()}

    def places_for(self, sighting: Sighting, trusting: bool = False, independent: bool = False) -> dict[str, Known]:
        """The same, with where it is said; independent: without what nobody but this claim says."""
        own = {name: each for name, each in sighting.known.items() if trusting or name not in self.doubted}
        voted = {
            name: each for name, each in self.voted.items() if not (independent and self._is_alone(name, sighting))
        }
        pattern = {name: Known(size, "its pattern") for name, size in sighting.local.items()}
        return {**voted, **self.known, **own, **pattern}

    def _is_alone(self, name: str, sighting: Sighting) -> bool:
        claims = self.votes.get(name, {}).get(self.voted[name].size, [])
        return not any(each.line != sighting.claim.line for each in claims)


def resolve(scope: Scope, elsewhere: Elsewhere) -> Resolution:
    """elsewhere: what other functions say, which decides where comments here are evenly divided."""
    resolution = Resolution()
    for sighting in scope.sightings:
        resolution.known.update(sighting.known)
    every = _votes(scope.sightings, {})
    for name, known in list(resolution.known.items()):
        used = {size for size, claims in every.get(name, {}).items() if claims}
        if not known.is_sure and used and known.size not in used:
            resolution.doubted[name] = resolution.known.pop(name)
    sizes = {name: each.size for name, each in resolution.known.items()}
    consistent = [each for each in scope.sightings if _agrees(each, sizes)]
    resolution.votes = _votes(consistent, sizes)
    for name, candidates in _votes(scope.sightings, sizes).items():
        resolution.votes.setdefault(name, candidates)
    election = _Election(scope.file.path, resolution.votes, elsewhere)
    for name, size, claim in election.hold():
        if name not in resolution.known:
            resolution.voted[name] = Known(size, f"line {claim.line}")
    _solve_rest(consistent, resolution)
    return resolution


def _agrees(sighting: Sighting, sizes: Mapping[str, int]) -> bool:
    merged = {**sizes, **sighting.local}
    return all(fits(sighting.claim.said.axes, shape, merged) for _, shape in sighting.values[:1])


def _votes(sightings: Iterable[Sighting], sizes: Mapping[str, int]) -> dict[str, dict[int, list[Claim]]]:
    """By name and size the claims that say so; one that sees several sizes in a loop says nothing."""
    seen: dict[tuple[str, Claim], list[int]] = defaultdict(list)
    for sighting in sightings:
        for _, shape in sighting.values[:1]:
            told: dict[str, int] = {}
            for axis, index in align(sighting.claim.said.axes, shape) or ():
                solved = solve(axis.size, shape[index], sizes) if axis.size is not None and shape[index] >= 0 else None
                if solved:  # `n + 1` says as much of n as `n` does
                    told.setdefault(*solved)
            for name, size in told.items():
                seen[name, sighting.claim].append(size)
        for name, size in sighting.local.items():
            if name not in sizes:
                seen[name, sighting.claim].append(size)
    votes: dict[str, dict[int, list[Claim]]] = defaultdict(lambda: defaultdict(list))
    for (name, claim), found in seen.items():
        if len(set(found)) == 1:
            votes[name][found[0]].append(claim)
    return votes


class _Election:
    """Names get their sizes one after the other, the clearest first: who was wrong about one is not asked again."""

    def __init__(self, path: str, votes: Mapping[str, Mapping[int, list[Claim]]], elsewhere: Elsewhere):
        self._votes = votes
        self._elsewhere = {name: counts for (file, name), counts in elsewhere.items() if file == path}
        self._wrong: set[Claim] = set()
        self._called: dict[int, set[str]] = defaultdict(set)  # by size, the names that it may have
        for name, candidates in votes.items():
            for size in candidates:
                self._called[size].add(name)
        for name, counts in self._elsewhere.items():
            if len(counts) == 1:
                self._called[next(iter(counts))].add(name)

    def hold(self) -> Iterator[tuple[str, int, Claim]]:
        """Each name, its size, and a claim that says so."""
        names = {name for name, candidates in self._votes.items() if candidates}
        while names:
            name = max(sorted(names), key=self._margin)
            names.remove(name)
            candidates = self._candidates(name)
            size = max(candidates, key=lambda each: self._rank(name, each))
            self._wrong |= {claim for other, claims in candidates.items() if other != size for claim in claims}
            yield name, size, candidates[size][0]

    def _candidates(self, name: str) -> dict[int, list[Claim]]:
        every = self._votes[name]
        trusted = {size: [each for each in claims if each not in self._wrong] for size, claims in every.items()}
        return {size: claims for size, claims in trusted.items() if claims} or dict(every)

    def _rank(self, name: str, size: int) -> tuple[int, bool, int, bool, int, int]:
        """The size that most lines say; of equals one without arithmetic, then what other functions say."""
        claims = self._candidates(name)[size]
        leads = is_batch(name) and any(each.said.axes[0].names == (name,) for each in claims)
        lines = {each.line for each in claims}
        elsewhere = self._elsewhere.get(name, Counter())[size]
        is_plain = any(axis.size == Name(name) for each in claims for axis in each.said.axes)
        return len(lines), is_plain, elsewhere, leads, -len(self._called[size] - {name}), -min(lines)

    def _margin(self, name: str) -> tuple[int, ...]:
        """How far the first is before the second."""
        ranks = sorted((self._rank(name, size) for size in self._candidates(name)), reverse=True)
        second = ranks[1] if len(ranks) > 1 else (0, False, 0, False, -9, 0)
        return tuple(int(one) - int(other) for one, other in zip(ranks[0], second, strict=True))[:5]


def _solve_rest(sightings: Iterable[Sighting], resolution: Resolution) -> None:
    """`3 * n_embd` says what n_embd is, where nothing else does."""
    for sighting in sightings:
        sizes = resolution.sizes_for(sighting)
        for _, shape in sighting.values[:1]:
            for axis, index in align(sighting.claim.said.axes, shape) or ():
                solved = (
                    solve(axis.size, shape[index], sizes)
                    if axis.size is not None and not isinstance(axis.size, Name)
                    else None
                )
                if solved and solved[0] not in resolution.voted:
                    resolution.voted[solved[0]] = Known(solved[1], f"line {sighting.claim.line}")


def count_elsewhere(scopes: Iterable[Scope]) -> dict[tuple[str, str], Counter[int]]:
    """By file and name, in how many functions the comments agree on a size, or the code says it."""
    agreed: dict[tuple[str, str], dict[tuple[str, int], set[int]]] = defaultdict(lambda: defaultdict(set))
    for scope in scopes:
        known = {name: each.size for sighting in scope.sightings for name, each in sighting.known.items()}
        votes = _votes(scope.sightings, known)
        for name, size in (
            *known.items(),
            *((name, size) for name, sizes in votes.items() if len(sizes) == 1 for size in sizes),
        ):
            agreed[scope.file.path, name][scope.function].add(size)
    return {
        key: Counter(size for sizes in functions.values() if len(sizes) == 1 for size in sizes)
        for key, functions in agreed.items()
    }
