"""Places that a statement binds or changes, as the source writes them: `q`, `self.cached`, `cache["k"]`, `outs[i]`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True, slots=True)
class Place:
    """A local name, and how to get from it to the place: by attributes and items."""

    text: str  # as written
    root: str  # the local name it starts from
    steps: tuple[tuple[str, Any], ...] = ()  # ("attribute", name), ("item", constant) or ("index", local name)

    @property
    def is_name(self) -> bool:
        return not self.steps


def read_place(node: ast.AST) -> Place | None:
    """The place that an expression names; None for one that has to run, such as `f().x`."""
    steps: list[tuple[str, Any]] = []
    inner = node
    while True:
        if isinstance(inner, ast.Attribute):
            steps.append(("attribute", inner.attr))
            inner = inner.value
        elif isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Constant | ast.Name):
            key = inner.slice
            steps.append(("item", key.value) if isinstance(key, ast.Constant) else ("index", key.id))
            inner = inner.value
        elif isinstance(inner, ast.Name):
            return Place(ast.unparse(node), inner.id, tuple(reversed(steps)))
        else:
            return None


def look_up(place: Place, local: Mapping[str, Any]) -> Any:
    """What is at the place; None where nothing is, and where a property or a tensor's indexing would have to run."""
    value = local.get(place.root)
    for kind, key in place.steps:
        if kind == "attribute":
            value = _attribute(value, key)
        elif isinstance(value, dict):
            value = dict.get(value, local.get(key) if kind == "index" else key)
        elif isinstance(value, list):
            value = _list_item(value, local.get(key) if kind == "index" else key)
        else:
            return None
    return value


def _attribute(owner: Any, name: str) -> Any:
    """What is stored on the object under the name; never what a property would make."""
    stores = [owner.__dict__] if isinstance(getattr(owner, "__dict__", None), dict) else []
    if isinstance(owner, nn.Module):
        stores += [owner._buffers, owner._parameters, owner._modules]
    private = name.startswith("__") and not name.endswith("__")  # stored as _Class__name
    for store in stores:
        for key in (name, *(each for each in store if private and each.endswith(name))):
            if key in store:
                return store[key]
    return None


def _list_item(items: list[Any], index: Any) -> Any:
    return items[index] if isinstance(index, int) and -len(items) <= index < len(items) else None
