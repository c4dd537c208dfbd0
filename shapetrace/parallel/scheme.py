"""What `--parallel` says: the dimensions of the device mesh, and how many ranks each of them has."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from shapetrace.errors import ShapetraceError, suggest

TENSOR, FSDP = "tensor", "fsdp"
_KINDS = (FSDP, TENSOR)  # as in the mesh: the ranks that exchange most are neighbours
_EXAMPLE = "write --parallel tensor, --parallel fsdp, or both with a size: --parallel fsdp=2,tensor=2"


@dataclass(frozen=True, slots=True)
class Scheme:
    """Names of the mesh's dimensions and their sizes; one may be left open."""

    sizes: tuple[tuple[str, int | None], ...]

    @classmethod
    def parse(cls, text: str) -> Scheme:
        """`tensor`, `fsdp`, `fsdp=2,tensor=2`; raises ShapetraceError for anything else."""
        found: dict[str, int | None] = {}
        for part in text.split(","):
            name, equals, size = (each.strip() for each in part.partition("="))
            if name not in _KINDS:
                wrong = f"there is no `{name}`" if name else "a name is missing"
                raise ShapetraceError(f"`--parallel {text}`: {wrong}", suggest(name, _KINDS) or _EXAMPLE)
            if name in found:
                raise ShapetraceError(f"`--parallel {text}` has {name} twice", _EXAMPLE)
            if equals and not (size.isascii() and size.isdigit() and int(size)):
                raise ShapetraceError(f"`--parallel {text}`: `{size}` is no number of ranks", _EXAMPLE)
            found[name] = int(size) if equals else None
        if list(found.values()).count(None) > 1:
            raise ShapetraceError(f"`--parallel {text}` does not say how many ranks each has", _EXAMPLE)
        return cls(tuple((name, found[name]) for name in _KINDS if name in found))

    def over(self, ranks: int) -> dict[str, int]:
        """The size of each dimension; raises ShapetraceError where they are not so many ranks."""
        told = prod(size for _, size in self.sizes if size)
        is_open = any(size is None for _, size in self.sizes)
        if ranks % told or not (is_open or told == ranks):
            written = ",".join(name if size is None else f"{name}={size}" for name, size in self.sizes)
            raise ShapetraceError(
                f"--parallel {written} does not go with {ranks} ranks",
                f"start {told}{' or a multiple' if is_open else ''}: torchrun --nproc-per-node {told}",
            )
        return {name: size or ranks // told for name, size in self.sizes}
