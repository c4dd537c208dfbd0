"""By which name a module is called: one that is shared has several, and its caller tells which is meant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from torch import nn

Caller = tuple[nn.Module, str]


class ModulePaths:
    """The dotted paths of a model's modules, also where modules are shared or refer to their parents."""

    def __init__(self, model: nn.Module):
        self._first = {id(module): path for path, module in model.named_modules()}
        self._parents: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for module in model.modules():  # each once, so that a child that refers to its parent ends the walk
            for name, child in module._modules.items():
                if child is not None:
                    self._parents[id(child)].append((id(module), name))
        self._all_unique = all(len(parents) == 1 for parents in self._parents.values())

    def path_of(self, module: nn.Module, callers: Sequence[Caller]) -> str:
        """The path from the nearest caller that has this module below it; else the first name in the model."""
        if not self._all_unique:
            for caller, path in reversed(callers):
                below = self._path_below(id(module), id(caller))
                if below is not None:
                    return f"{path}.{below}" if path else below
        first: str = self._first[id(module)]
        return first

    def _path_below(self, module: int, ancestor: int) -> str | None:
        """The shortest path from the ancestor down to the module."""
        reached = {module}
        frontier = [(module, "")]
        while frontier:
            each, below = frontier.pop(0)
            for parent, name in self._parents[each]:
                path = f"{name}.{below}" if below else name
                if parent == ancestor:
                    return path
                if parent not in reached:
                    reached.add(parent)
                    frontier.append((parent, path))
        return None
