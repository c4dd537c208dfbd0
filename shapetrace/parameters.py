"""Where the parameters live: counts for any part of a model, each tensor once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shapetrace.trace import ModuleCall, ParameterRecord


def count_parameters(modules: Iterable[ModuleCall], path: str = "") -> int:
    """Entries of the parameters at or below the path; a tensor with several names there counts once."""
    return sum(record.size for record in unique_parameters(modules, path).values())


def unique_parameters(modules: Iterable[ModuleCall], path: str = "") -> dict[str, ParameterRecord]:
    """The parameters at or below the path, by the first full name of each tensor."""
    found: dict[str, ParameterRecord] = {}
    for module in modules:
        if is_within(module.module, path):
            for record in module.parameters:
                found.setdefault(record.tied or full_name(module.module, record.name), record)
    return found


def is_within(module: str, path: str) -> bool:
    """Whether the module is the one at the path, or below it."""
    return not path or module == path or module.startswith(f"{path}.")


def full_name(module: str, name: str) -> str:
    """`blocks.0.attn` and `W_Q` -> `blocks.0.attn.W_Q`."""
    return f"{module}.{name}" if module else name


def bytes_each(dtype: str) -> float:
    """Bytes of one entry: `float32` -> 4, `complex64` -> 8, `float8_e4m3fn` -> 1, `bool` -> 1."""
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) / 8 if bits else 1


def count_bytes(records: Iterable[ParameterRecord]) -> float:
    """Memory that the parameters take."""
    return sum(record.size * bytes_each(record.dtype) for record in records)


@dataclass(frozen=True, slots=True)
class Part:
    """A module as a share of the model."""

    module: str
    class_name: str
    parameters: int  # what it has that no module before it has
    trainable: int
    bytes: float
    share: float  # of the whole, from 0 to 1
    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        return self.module.rpartition(".")[2]


def break_down(modules: Sequence[ModuleCall], path: str = "") -> Part:
    """The parameters below the path, module by module; the parts of a part sum to it, less what it owns itself.

    A tied tensor is counted where it comes first.
    """
    inside = [module for module in modules if is_within(module.module, path)]
    own = _own_records(inside)
    total = sum(record.size for records in own.values() for record in records)
    children: dict[str, list[str]] = {module.module: [] for module in inside}
    for module in inside:
        parent = module.module.rpartition(".")[0]
        if module.module != path and parent in children:
            children[parent].append(module.module)
    classes = {module.module: module.class_name for module in inside}

    def part_of(each: str) -> Part:
        parts = tuple(map(part_of, children[each]))
        records = own[each]
        parameters = sum(record.size for record in records) + sum(part.parameters for part in parts)
        trainable = sum(record.size for record in records if record.trainable) + sum(part.trainable for part in parts)
        size = count_bytes(records) + sum(part.bytes for part in parts)
        return Part(each, classes[each], parameters, trainable, size, parameters / total if total else 0.0, parts)

    return part_of(path)


def _own_records(modules: Iterable[ModuleCall]) -> dict[str, list[ParameterRecord]]:
    """By module, the parameters that no module before it has."""
    seen: set[str] = set()
    own: dict[str, list[ParameterRecord]] = {}
    for module in modules:
        own[module.module] = []
        for record in module.parameters:
            name = record.tied or full_name(module.module, record.name)
            if name not in seen:
                seen.add(name)
                own[module.module].append(record)
    return own


def to_plain(modules: Sequence[ModuleCall], path: str = "") -> dict[str, Any]:
    """The breakdown as mappings, for JSON: the whole, then every module at or below the path."""
    whole = break_down(modules, path)
    records = unique_parameters(modules, path)
    inside = [module for module in modules if is_within(module.module, path)]
    return {
        "module": path,
        "class": whole.class_name,
        "parameters": whole.parameters,
        "trainable": whole.trainable,
        "bytes": int(whole.bytes),
        "frozen": [name for name, record in records.items() if not record.trainable],
        "tied": {
            full_name(module.module, record.name): record.tied
            for module in inside
            for record in module.parameters
            if record.tied
        },
        "buffers": [full_name(module.module, buffer.name) for module in inside for buffer in module.buffers],
        "modules": [
            {
                "module": part.module,
                "class": part.class_name,
                "parameters": part.parameters,
                "trainable": part.trainable,
                "bytes": int(part.bytes),
                "share": round(part.share, 6),
            }
            for part in _walk(whole)
        ],
    }


def _walk(part: Part) -> Iterator[Part]:
    yield part
    for each in part.parts:
        yield from _walk(each)
