"""A layout that the user writes down: which key holds which TransformerLens tensor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shapetrace.errors import WeightsError, suggest
from shapetrace.weights.layouts.layout import Layout, Shape, Slot, slots_of
from shapetrace.weights.layouts.tables import TRANSFORMER_LENS, reverse_axes

# How an attention matrix lies in a tensor with two axes, as (in, out).
_FLAT = {"n m h": "m (n h)", "n h m": "(n h) m", "n h": "(n h)"}


def read_map(given: Mapping[str, Any] | str | Path) -> Mapping[str, Any]:
    """The map itself, or that in a YAML file. Raises WeightsError for a file that holds none."""
    if isinstance(given, Mapping):
        return given
    import yaml

    try:
        loaded = yaml.safe_load(Path(given).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = str(error).partition("\n")[0]
        raise WeightsError(f"the weights map `{given}` cannot be read: {reason}") from None
    if not isinstance(loaded, Mapping):
        raise WeightsError(f"`{given}` holds no weights map", _HINT)
    return loaded


def layout_from_map(given: Mapping[str, Any], shapes: Mapping[str, Shape]) -> Layout:
    """The layout that a map describes: `key: name`, `key: [names]` for a fused tensor, or with `transpose: true`,

    `key: {name: blocks.0.mlp.W_in, transpose: true}`, where it is kept as nn.Linear keeps it, (out, in).
    Raises WeightsError for a key that the model has not, or a name that TransformerLens has not.
    """
    layers = {int(part) for name in _all_names(given) for part in name.split(".")[1:2] if part.isdigit()}
    known = {slot.names[0]: slot for slot in slots_of(TRANSFORMER_LENS, sorted(layers))}
    slots = []
    for key, value in given.items():
        if key not in shapes:
            raise WeightsError(f"the weights map names `{key}`, which the model has not", suggest(str(key), shapes))
        names = _names_of(value)
        strange = [name for name in names if name not in known]
        if strange or not names:
            raise WeightsError(
                f"the weights map gives `{key}` {f'`{strange[0]}`' if strange else 'no name'}",
                suggest(strange[0], known) if strange else _HINT,
            )
        transposed = isinstance(value, Mapping) and bool(value.get("transpose"))
        slots.append(_slot(key, names, known[names[0]].ours, len(shapes[key]), transposed))
    mapped = {name for slot in slots for name in slot.names}
    absent = tuple(slot for name, slot in known.items() if name not in mapped)
    return Layout("as the weights map says", tuple(slots), absent)


def _slot(key: str, names: tuple[str, ...], ours: str, rank: int, transposed: bool) -> Slot:
    parts = len(names) > 1
    theirs = _FLAT.get(ours, ours) if rank < len(ours.split()) or parts else ours
    if parts:
        theirs = theirs.replace("(n h)", "(parts n h)") if "(" in theirs else theirs
        ours = f"parts {ours}"
    return Slot(key, names, ours, reverse_axes(theirs) if transposed else theirs)


def _names_of(value: Any) -> tuple[str, ...]:
    named = value.get("name") if isinstance(value, Mapping) else value
    if isinstance(named, str):
        return (named,)
    return tuple(map(str, named)) if isinstance(named, list | tuple) else ()


def _all_names(given: Mapping[str, Any]) -> list[str]:
    return [name for value in given.values() for name in _names_of(value)]


_HINT = "write `key: name` with TransformerLens names, such as `model.emb.weight: embed.W_E`"
