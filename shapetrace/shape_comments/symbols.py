"""Which size a name has at some place of the running source, and where that is said."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from shapetrace.shape_comments.claims import ClaimedFile, FunctionKey

_CONFIGS = ("cfg", "config", "args", "hparams", "params", "model_args", "opt", "conf", "options", "hps")

_WIDTH = re.compile(r"channels?|features?|dims?|queries|height|width")  # what layers have each their own of


@dataclass(frozen=True, slots=True)
class Known:
    """A size that the source gives a name: `7`, `line 40, from x.size()`."""

    size: int
    place: str
    of: str = ""  # the name of the tensor whose shape it was taken from
    is_sure: bool = True  # False: the name is so short that it may as well be that of something else


@dataclass(frozen=True, slots=True)
class Symbols:
    """The names that a frame sees: its integers, then what its module and the modules around it hold."""

    file: ClaimedFile
    function: FunctionKey
    local: Mapping[str, Any]
    globals: Mapping[str, Any]
    owners: list[nn.Module]  # innermost first

    def find(self, name: str, line: int) -> Known | None:
        """The integer of that name, nearest first: in the frame, in its module, in a config, in the file.

        A width that a config holds is sure only for code that uses it: deep in a network `num_channels` is another.
        """
        if "." in name:
            return self._path(name)
        if name in self.local:
            size = _size(self.local[name])
            if size is not None:
                return self._local(name, size, line)
        for text, owner in self._holders():
            size = _size(_held(owner, name))
            if size is not None:
                is_used = (
                    "." not in text or not _WIDTH.search(name) or name in self.file.spoken.get(self.function, (name,))
                )
                return Known(size, f"{text}.{name}", is_sure=is_used and not _is_short(name))
        size = _size(self.globals.get(name))
        return None if size is None else Known(size, f"{name} of the file", is_sure=not _is_short(name))

    def _local(self, name: str, size: int, line: int) -> Known | None:
        binding = self.file.binding_of(self.function, name, line)
        if binding is None:
            return Known(size, f"the local {name}", is_sure=not _is_short(name))
        if binding.origin == "loop":
            return None
        source = f", from {binding.text}" if binding.text and len(binding.text) <= 40 else ""
        taken = re.match(r"(\w+)\.(?:shape|size)\b", binding.text)
        source = ", an argument" if binding.origin == "argument" else source
        return Known(
            size,
            f"line {binding.line}{source}",
            taken[1] if taken else "",
            binding.origin == "shape" or not _is_short(name),
        )

    def _holders(self) -> Iterator[tuple[str, Any]]:
        own = self.local.get("self")
        owners: list[tuple[str, Any]] = [] if own is None else [("self", own)]
        owners += [
            ("self" if own is None and not index else type(each).__name__, each)
            for index, each in enumerate(self.owners)
            if each is not own
        ]
        for index, (text, owner) in enumerate(owners):
            if not index:
                yield text, owner
            for config in _CONFIGS:
                held = _held(owner, config)
                if held is not None:
                    yield f"{text}.{config}", held

    def _path(self, name: str) -> Known | None:
        root, *rest = name.split(".")
        for start in (self.local.get(root), *(_held(owner, root) for _, owner in self._holders())):
            value = start
            for each in rest:
                value = _held(value, each)
            size = _size(value)
            if size is not None:
                return Known(size, name)
        return None


def _held(owner: Any, name: str) -> Any:
    """What is stored under the name; never what a property would make."""
    if isinstance(owner, dict):
        return owner.get(name)
    stored = getattr(owner, "__dict__", None)
    found = stored.get(name) if isinstance(stored, dict) else None
    if found is None and owner is not None:
        found = next((vars(base)[name] for base in type(owner).__mro__ if name in vars(base)), None)
    if found is None and isinstance(owner, nn.Module):
        found = owner._modules.get(name)
    return found


def _size(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _is_short(name: str) -> bool:
    return len(name) == 1 and name.islower()
