"""The tensors inside any value, each by its path: `out.0`, `cache.key`, `hidden.logits`."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

from torch import Tensor, nn

# Deeper or longer than this, a container is a data set and no value that a person named.
_DEPTH = 4
_ITEMS = 256


def walk_leaves(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """Each tensor in the value with its path, in order, as far as the first 256 items at most.

    Looks into tuples, lists, dicts and dataclasses, Hugging Face's ModelOutput among them. Never into an iterator
    or a generator: to walk one is to use it up.
    """
    kind = kind_of(type(value))
    if kind == "tensor":
        yield name, value
    elif kind:
        yield from _walk(name, value, kind, _DEPTH, iter(range(_ITEMS)))


def _walk(name: str, value: Any, kind: str, depth: int, budget: Iterator[int]) -> Iterator[tuple[str, Tensor]]:
    """The budget is shared by all levels: it is used up by every item that is looked at."""
    for _, (key, item) in zip(budget, _items(kind, value), strict=False):
        below = kind_of(type(item))
        if not below:
            continue
        path = f"{name}.{key}" if name else str(key)
        if below == "tensor":
            yield path, item
        elif depth > 1:
            yield from _walk(path, item, below, depth - 1, budget)


def _decide_kind(cls: type) -> str:
    """How to look into values of a class."""
    if issubclass(cls, Tensor):
        return "tensor"
    if issubclass(cls, dict | UserDict):
        return "mapping"
    if issubclass(cls, tuple) and (hasattr(cls, "_fields") or cls.__module__ == "torch.return_types"):
        return "namedtuple"
    if issubclass(cls, tuple | list):
        return "sequence"
    return "dataclass" if is_dataclass(cls) and not issubclass(cls, nn.Module) else ""


# Decided once for each class: every local of every line is asked for its kind.
kind_of: Callable[[type], str] = lru_cache(maxsize=4096)(_decide_kind)


def _items(kind: str, value: Any) -> Iterator[tuple[object, Any]]:
    if kind == "mapping":
        # Past the class's own `items`: a mapping that computes what it holds, or counts its readers, is not to notice.
        return iter(dict.items(value.data if isinstance(value, UserDict) else value))
    if kind == "sequence":
        return enumerate(value)
    if kind == "namedtuple":
        # torch.return_types, such as that of max(dim=0), keep their names elsewhere than a namedtuple.
        return zip(getattr(value, "_fields", None) or value.__match_args__, value, strict=False)
    return ((each.name, _stored(value, each.name)) for each in fields(value))


def _stored(value: Any, name: str) -> Any:
    """What the field holds, past a `__getattr__` or `__getattribute__` of the class, which may compute, or raise."""
    try:
        return object.__getattribute__(value, name)
    except AttributeError:  # a field that was never set
        return None
