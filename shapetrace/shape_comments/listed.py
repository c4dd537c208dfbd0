"""The models that a project wants checked: `[[tool.shapetrace.check]]` in its pyproject.toml."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shapetrace.errors import ShapetraceError, suggest
from shapetrace.inputs import Asked

_EXAMPLE = """write

  [[tool.shapetrace.check]]
  model = "model.py:GPT"
  input = ["x=float32[3,11,64]"]"""
_KEYS: dict[str, Any] = {
    "model": str,
    "text": str,
    "ids": (list, str),
    "input": (list, str),
    "set": (list, str),
    "seed": int,
    "bos": bool,
}


@dataclass(frozen=True, slots=True)
class Listed:
    """One model and what it is called with."""

    model: str
    asked: Asked = field(default_factory=Asked)
    settings: tuple[str, ...] = ()
    seed: int = 0


def read_listed(folder: str = ".") -> list[Listed]:
    """What the nearest pyproject.toml lists, from the folder upwards; nothing where it lists nothing.

    Files are named from where the pyproject.toml is. Raises ShapetraceError for a table that cannot be read.
    """
    start = Path(folder).resolve()
    path = next(
        (each / "pyproject.toml" for each in (start, *start.parents) if (each / "pyproject.toml").is_file()), None
    )
    if path is None:
        return []
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("shapetrace", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ShapetraceError(f"`{path.name}` cannot be read: {error}", "mend it first") from None
    unknown = next((key for key in table if key != "check"), None) if isinstance(table, dict) else None
    if unknown is not None:
        raise ShapetraceError(f"`tool.shapetrace` in {path.name} has no `{unknown}`", _EXAMPLE)
    entries = table.get("check", []) if isinstance(table, dict) else None
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ShapetraceError(f"`tool.shapetrace.check` in {path.name} is no list of tables", _EXAMPLE)
    return [_read(entry, path.parent) for entry in entries]


def _read(entry: Mapping[str, Any], folder: Path) -> Listed:
    for key, value in entry.items():
        if key not in _KEYS:
            raise ShapetraceError(f"`tool.shapetrace.check` has no `{key}`", suggest(key, _KEYS))
        if not isinstance(value, _KEYS[key]) or (isinstance(value, bool) and _KEYS[key] is not bool):
            raise ShapetraceError(f"`{key}` of `tool.shapetrace.check` cannot be {value!r}", _EXAMPLE)
    if "model" not in entry:
        raise ShapetraceError("a table of `tool.shapetrace.check` names no `model`", _EXAMPLE)
    ids = entry.get("ids")
    asked = Asked(
        entry.get("text"),
        ",".join(map(str, ids)) if isinstance(ids, list) else ids,
        _texts(entry.get("input", [])),
        entry.get("bos", True),
    )
    return Listed(_from_folder(entry["model"], folder), asked, _texts(entry.get("set", [])), entry.get("seed", 0))


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(str, value))


def _from_folder(model: str, folder: Path) -> str:
    """`src/model.py:GPT` from the current folder, where the pyproject.toml is elsewhere."""
    place, py, rest = model.partition(".py:")
    if not py or os.path.isabs(place):
        return model
    return f"{os.path.relpath(folder / place)}{py}{rest}"
