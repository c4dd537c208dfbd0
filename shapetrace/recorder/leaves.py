"""The tensors inside any value, each by its path: `out.0`, `cache.key`, `hidden.logits`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

from torch import Tensor

# Deeper or longer than this, a container is a data set and no value that a person named.
_DEPTH = 4
_ITEMS = 256


def walk_leaves(name: str, value: Any, depth: int = _DEPTH) -> Iterator[tuple[str, Tensor]]:
    """Each tensor in the value with its path, in order.

    Looks into tuples, lists, mappings and dataclasses, Hugging Face's ModelOutput among them. Never into an iterator
    or a generator: to walk one is to use it up.
    """
    kind = _kind(type(value))
    if kind == "tensor":
        yield name, value
    elif kind and depth:
        for key, item in _items(kind, value):
            yield from walk_leaves(f"{name}.{key}" if name else str(key), item, depth - 1)


def holds_many(value: Any) -> bool:
    """Whether the value can hold tensors without being one."""
    return _kind(type(value)) not in ("", "tensor")


def _decide_kind(cls: type) -> str:
    """How to look into values of a class."""
    if issubclass(cls, Tensor):
        return "tensor"
    if issubclass(cls, Mapping):
        return "mapping"
    if issubclass(cls, tuple) and (hasattr(cls, "_fields") or hasattr(cls, "n_fields")):
        return "namedtuple"
    if issubclass(cls, tuple | list):
        return "sequence"
    return "dataclass" if is_dataclass(cls) else ""


# Decided once for each class: every local of every line is asked for its kind.
_kind: Callable[[type], str] = lru_cache(maxsize=4096)(_decide_kind)


def _items(kind: str, value: Any) -> Iterator[tuple[object, Any]]:
    if kind == "mapping":
        yield from list(value.items())[:_ITEMS]
    elif kind == "namedtuple":
        # torch.return_types, such as that of max(dim=0), keep their names elsewhere than a namedtuple.
        yield from zip(getattr(value, "_fields", None) or value.__match_args__, value, strict=True)
    elif kind == "sequence":
        yield from enumerate(value[:_ITEMS])
    else:
        yield from ((each.name, getattr(value, each.name, None)) for each in fields(value))
