"""A layout that the user writes down: which key holds which TransformerLens tensor."""

from __future__ import annotations

import re
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


def layout_from_map(given: Mapping[str, Any], shapes: Mapping[str, Shape], recognised: Layout | None = None) -> Layout:
    """The layout that a map describes, `#` standing for each layer; of what it leaves out, the one that was recognised.

    A line is `key: name`, `key: [names]` for a fused tensor, or `key: {name: blocks.#.mlp.W_in, transpose: true}` where
    it is kept as nn.Linear keeps it, (out, in).
    Raises WeightsError for a key that the model has not, or a name that TransformerLens has not.
    """
    given = _per_layer(given, shapes)
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
        slots.append(_slot(key, names, known[names[0]].ours, len(shapes[key]), _is_transposed(key, value)))
    mapped = {name for slot in slots for name in slot.names}
    others, absent = (recognised.slots, recognised.absent) if recognised else ((), tuple(known.values()))
    kept = [slot for slot in others if slot.key not in given and not mapped & {*slot.names}]
    return Layout(
        f"{recognised.name} and the weights map" if recognised and kept else "as the weights map says",
        (*slots, *kept),
        tuple(slot for slot in absent if not mapped & {*slot.names}),
        recognised.constants if recognised else (),
        recognised.optional if recognised else (),
    )


def _per_layer(given: Mapping[str, Any], shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """The map with each line that has a `#` once for every layer that the model has."""
    lines: dict[str, Any] = {}
    for key, value in given.items():
        pattern = re.compile(re.escape(str(key)).replace(r"\#", r"(\d+)"))
        layers = [match[1] for own in shapes if "#" in str(key) and (match := pattern.fullmatch(own))]
        lines |= {str(key).replace("#", layer): _at_layer(value, layer) for layer in layers} or {str(key): value}
    return lines


def _at_layer(value: Any, layer: str) -> Any:
    if isinstance(value, str):
        return value.replace("#", layer)
    if isinstance(value, list | tuple):
        return [_at_layer(each, layer) for each in value]
    return {name: _at_layer(each, layer) for name, each in value.items()} if isinstance(value, Mapping) else value


def _slot(key: str, names: tuple[str, ...], ours: str, rank: int, transposed: bool) -> Slot:
    parts = len(names) > 1
    theirs = _FLAT.get(ours, ours) if rank < len(ours.split()) or parts else ours
    if parts:
        theirs = theirs.replace("(n h)", "(parts n h)")
        ours = f"parts {ours}"
    return Slot(key, names, ours, reverse_axes(theirs) if transposed else theirs)


def _is_transposed(key: str, value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    strange = [str(each) for each in value if each not in ("name", "transpose")]
    if strange:
        known = suggest(strange[0], ("name", "transpose"))
        raise WeightsError(f"the weights map gives `{key}` a `{strange[0]}`, which means nothing", known)
    transpose = value.get("transpose", False)
    if not isinstance(transpose, bool):
        raise WeightsError(f"the weights map gives `{key}` a `transpose` of {transpose!r}", "it is true or false")
    return transpose


def _names_of(value: Any) -> tuple[str, ...]:
    named = value.get("name") if isinstance(value, Mapping) else value
    if isinstance(named, str):
        return (named,)
    return tuple(map(str, named)) if isinstance(named, list | tuple) else ()


def _all_names(given: Mapping[str, Any]) -> list[str]:
    return [name for value in given.values() for name in _names_of(value)]


_HINT = "write `key: name` with TransformerLens names, such as `model.emb.weight: embed.W_E`"
