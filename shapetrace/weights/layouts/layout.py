"""Which layout a set of parameters is in, and the conversion of each to TransformerLens' and back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import einops
from torch import Tensor

from shapetrace.weights.layouts.tables import TABLES, Row, Table

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """One key of a layout, and which TransformerLens tensors are in it."""

    key: str  # transformer.h.0.attn.c_attn.weight
    names: tuple[str, ...]  # blocks.0.attn.W_Q, blocks.0.attn.W_K, blocks.0.attn.W_V
    ours: str  # the axes of those, with `parts` in front where there are several
    theirs: str  # the axes of the tensor under the key

    def pack(self, state: Mapping[str, Tensor]) -> Tensor:
        """The tensor under the key, from tensors under TransformerLens names; itself where nothing is rearranged."""
        parts = [state[name] for name in self.names]
        if self.ours == self.theirs:
            return parts[0]
        return einops.rearrange(parts if len(parts) > 1 else parts[0], f"{self.ours} -> {self.theirs}")

    def unpack(self, tensor: Tensor, n_heads: int) -> dict[str, Tensor]:
        """Its tensors under TransformerLens names; raises einops.EinopsError where the shape does not allow it."""
        if self.ours == self.theirs:
            return {self.names[0]: tensor}
        sizes = {"parts": len(self.names), "n": n_heads}
        told = {axis: size for axis, size in sizes.items() if re.search(rf"\b{axis}\b", self.theirs)}
        given = einops.rearrange(tensor, f"{self.theirs} -> {self.ours}", **told)
        return dict(zip(self.names, given if len(self.names) > 1 else (given,), strict=True))


@dataclass(frozen=True, slots=True)
class Layout:
    """How a model keeps GPT-2's weights."""

    name: str
    slots: tuple[Slot, ...]  # of the keys that are there
    absent: tuple[Slot, ...] = ()  # of GPT-2's tensors that no key is there for
    constants: tuple[str, ...] = ()  # keys that hold no weights: mask buffers
    optional: tuple[str, ...] = ()  # how the names of biases end that models in this layout often do without

    def slot_of(self, name: str) -> Slot | None:
        """The slot that is there for a TransformerLens name."""
        return next((slot for slot in self.slots if name in slot.names), None)


def find_layout(shapes: Mapping[str, Shape]) -> Layout | None:
    """The layout that most of the keys belong to, by names and shapes; None where most belong to none.

    The keys may have a prefix, such as `module.` or `_orig_mod.`.
    """
    matches = [(table, *_match(table, shapes)) for table in TABLES]
    table, prefix, rows = max(
        matches, key=lambda each: sum(_fit(row, shapes[key]) for key, (row, _) in each[2].items())
    )
    if not any(row.names == "embed.W_E" for row, _ in rows.values()) or 2 * len(rows) < len(shapes):
        return None
    slots = tuple(_slot(key, row, layer) for key, (row, layer) in rows.items())
    inner = table.optional_prefix if any(table.optional_prefix in key for key in rows) else ""
    layers = sorted({layer for _, layer in rows.values() if layer is not None})
    names = {name for slot in slots for name in slot.names}
    absent = slots_of(table, layers, lambda row: prefix + (inner if row.key not in table.outside else ""))
    constants = (key for key in shapes if any(_pattern(table, each).fullmatch(key) for each in table.constants))
    return Layout(
        table.name, slots, tuple(slot for slot in absent if not names & {*slot.names}), tuple(constants), table.optional
    )


def slots_of(table: Table, layers: Iterable[int], prefix: Callable[[Row], str] = lambda row: "") -> list[Slot]:
    """Every slot of a table, for these layers, with a prefix before each key."""
    layers = list(layers)
    return [
        _slot(prefix(row) + row.key.replace("#", str(layer)), row, layer if "#" in row.key else None)
        for row in table.rows
        for layer in (layers if "#" in row.key else (0,))
    ]


def _match(table: Table, keys: Iterable[str]) -> tuple[str, dict[str, tuple[Row, int | None]]]:
    """The commonest prefix of the keys that the table knows, and the row and the layer of each that has it."""
    patterns = [(row, _pattern(table, row.key)) for row in table.rows]
    found = [(key, row, match) for key in keys for row, pattern in patterns if (match := pattern.fullmatch(key))]
    prefixes = Counter(match["prefix"] for _, _, match in found)
    prefix = prefixes.most_common(1)[0][0] if prefixes else ""
    # A head may stand outside of what has the prefix.
    return prefix, {
        key: (row, int(match["layer"]) if "#" in row.key else None)
        for key, row, match in found
        if prefix.startswith(match["prefix"])
    }


def _pattern(table: Table, key: str) -> re.Pattern[str]:
    optional = rf"(?:{re.escape(table.optional_prefix)})?" if table.optional_prefix else ""
    return re.compile(rf"(?P<prefix>(?:\w+\.)*?){optional}" + re.escape(key).replace(r"\#", r"(?P<layer>\d+)"))


def _slot(key: str, row: Row, layer: int | None) -> Slot:
    names = row.names.split()
    ours, theirs = row.axes.split(" -> ")
    return Slot(key, tuple(names if layer is None else [f"blocks.{layer}.{name}" for name in names]), ours, theirs)


def _fit(row: Row, shape: Shape) -> float:
    """How well a shape goes with a row: which side of these matrices is the longer one tells Conv1D from nn.Linear."""
    longer = _LONGER_SIDE.get(row.axes.partition(" -> ")[2])
    return 0.5 if longer is not None and len(shape) == 2 and shape[longer] < max(shape) else 1.0


_LONGER_SIDE = {"m (parts n h)": 1, "(parts n h) m": 0, "m f": 1, "f m": 0}
