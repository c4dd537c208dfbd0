"""The tensors inside any value, each by its path: `out.0`, `cache.0.key`, `hidden.logits`."""

from __future__ import annotations

from collections import UserDict, deque
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import islice
from types import GeneratorType
from typing import Any, NamedTuple

from torch import Size, Tensor, nn

from shapetrace.recorder.storage import holds_attributes, stored_attributes

# Deeper or longer than this, a container is a data set and no value that a person named.
_DEPTH = 4
_ITEMS = 256

OBJECTS = ("object", "cache", "cache layer")
_BARE = ("tensor", "array", "generator")
_LAYER_NAMES = {"keys": "key", "values": "value"}  # as in the tuples that were caches before there were classes


class Leaf(NamedTuple):
    """A value inside another, or the value itself."""

    path: str
    value: Any  # a tensor, a numpy array, a generator, or a None that takes up a place in a tuple
    shared: bool  # inside an object, which is handed on and changed, as a cache is


def walk_leaves(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """Each tensor in the value with its path, in order, as far as the first 256 items at most.

    Looks into tuples, lists, dicts and dataclasses, Hugging Face's ModelOutput and caches among them, and at the
    attributes that a plain object stores. Runs no property, and never an iterator: to walk one is to use it up.
    """
    return ((leaf.path, leaf.value) for leaf in walk_tensors(name, value))


def walk_tensors(name: str, value: Any) -> Iterator[Leaf]:
    """The same, and whether each is inside an object."""
    if isinstance(value, Tensor):  # as most are
        return iter((Leaf(name, value, False),))
    return (leaf for leaf in _walk_any(name, value) if isinstance(leaf.value, Tensor))


def walk_values(name: str, value: Any) -> list[Leaf]:
    """The tensors, and what else a reader of inputs and outputs looks for: arrays, a generator, None beside tensors."""
    leaves = list(_walk_any(name, value))
    return leaves if any(leaf.value is not None for leaf in leaves) else []


def _walk_any(name: str, value: Any) -> Iterator[Leaf]:
    kind = kind_of(type(value))
    if kind in _BARE:
        yield Leaf(name, value, False)
    elif kind:
        yield from _Walk().into(name, value, kind, _DEPTH, shared=False)


class _Walk:
    """One walk: its budget, which every item uses up that is looked at, and what it has met."""

    def __init__(self) -> None:
        self._left = _ITEMS
        self._open: set[int] = set()  # the containers that are being walked: one may contain itself
        self._paths: set[str] = set()

    def into(self, name: str, value: Any, kind: str, depth: int, shared: bool) -> Iterator[Leaf]:
        """The leaves of a container, which is of this kind; containers below the depth are not looked into."""
        if id(value) in self._open:
            return
        self._open.add(id(value))
        shared = shared or kind in OBJECTS
        for key, item in islice(_items(kind, value), self._left):
            if not self._left:
                break
            self._left -= 1
            below = kind_of(type(item))
            takes_a_place = item is None and kind == "sequence" and depth == _DEPTH
            if not below and not takes_a_place:
                continue
            path = self._path(f"{name}.{key}" if name else key)
            if not below or below in _BARE:
                yield Leaf(path, item, shared)
            elif depth > 1:
                yield from self.into(path, item, below, depth - 1, shared)
        self._open.discard(id(value))

    def _path(self, path: str) -> str:
        """The path, with a prime where another has it: the keys 1 and "1" of a dict are two."""
        while path in self._paths:
            path += "'"
        self._paths.add(path)
        return path


def _decide_kind(cls: type) -> str:
    """How to look into values of a class; "" for one that holds no tensors."""
    if issubclass(cls, Tensor):
        return "tensor"
    if issubclass(cls, dict | UserDict):
        return "mapping"
    if issubclass(cls, tuple) and (hasattr(cls, "_fields") or cls.__module__ == "torch.return_types"):
        return "namedtuple"
    if issubclass(cls, tuple | list | deque):
        return "" if cls is Size else "sequence"
    if issubclass(cls, GeneratorType):
        return "generator"
    if any((each.__module__, each.__name__) == ("numpy", "ndarray") for each in cls.__mro__):
        return "array"
    if is_dataclass(cls) and not issubclass(cls, nn.Module):
        return "dataclass"
    return _kind_of_object(cls)


def _kind_of_object(cls: type) -> str:
    ancestors = {f"{each.__module__}.{each.__name__}" for each in cls.__mro__}
    if "transformers.cache_utils.Cache" in ancestors:
        return "cache"
    if "transformers.cache_utils.CacheLayerMixin" in ancestors:
        return "cache layer"
    return "object" if holds_attributes(cls) else ""


# Decided once for each class: every local of every line is asked for its kind.
kind_of: Callable[[type], str] = lru_cache(maxsize=4096)(_decide_kind)


def _items(kind: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a container holds, each with its key as text, past methods of its own: none of the user's code is to run."""
    if kind == "mapping":
        items = dict.items(value.data if isinstance(value, UserDict) else value)
        return ((_write_key(key), item) for key, item in items)
    if kind == "sequence":
        base = next(each for each in (tuple, list, deque) if isinstance(value, each))
        return ((str(index), item) for index, item in enumerate(base.__iter__(value)))
    if kind == "namedtuple":
        # torch.return_types, such as that of max(dim=0), keep their names elsewhere than a namedtuple.
        return zip(getattr(value, "_fields", None) or value.__match_args__, tuple.__iter__(value), strict=False)
    stored = stored_attributes(value)
    if kind == "dataclass":
        return ((each.name, stored.get(each.name)) for each in fields(value))
    if kind == "cache" and isinstance(stored.get("layers"), list):
        return ((str(index), layer) for index, layer in enumerate(list.__iter__(stored["layers"])))
    if kind == "cache layer":
        return ((_LAYER_NAMES.get(key, key), item) for key, item in stored.items())
    return iter(stored.items())


def _write_key(key: object) -> str:
    """The key of a dict; of one that is no plain value its class alone, for to write it out is to run its code."""
    return str(key) if type(key) in (str, int, float, bool, bytes, type(None)) else f"<{type(key).__name__}>"
