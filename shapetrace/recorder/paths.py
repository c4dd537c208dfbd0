"""By which name a module is called: one that is shared has several, and its caller tells which is meant."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from torch import nn

# What torch puts around a module to change how it runs (torch.compile, FSDP, activation checkpointing): nobody wrote
# these into a model, so they are no part of its names.
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_MAYBE_WRAPPED = re.compile("|".join(_WRAPPERS))

Caller = tuple[nn.Module, str]


def unwrap(module: nn.Module) -> nn.Module:
    """The module itself, or the one that torch has wrapped."""
    for name in _WRAPPERS:
        if name in module._modules:
            inside = module._modules[name]
            return module if inside is None else unwrap(inside)
    return module


def without_replication(model: nn.Module) -> nn.Module:
    """The model itself, or the one that DistributedDataParallel has around it, which calls it `module`."""
    inside = unwrap(model)
    return inside.module if isinstance(inside, nn.parallel.DistributedDataParallel) else model


def without_wrappers(name: str) -> str:
    """`_orig_mod.blocks.0.W` -> `blocks.0.W`."""
    if not _MAYBE_WRAPPED.search(name):
        return name
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def name_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Each module by its first path, as `named_modules` has them, and without wrappers."""
    return {without_wrappers(path): each for path, each in model.named_modules() if unwrap(each) is each}


def name_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Each parameter by its first full name, as `named_parameters` has them, and without wrappers."""
    found: dict[int, tuple[str, nn.Parameter]] = {}
    for path, module in model.named_modules():
        above = without_wrappers(path)
        for name, each in module._parameters.items():
            if each is not None and id(each) not in found:
                found[id(each)] = f"{above}.{name}" if above else name, each
    return dict(found.values())


class ModulePaths:
    """The dotted paths of a model's modules, also where modules are shared or refer to their parents."""

    def __init__(self, modules: Mapping[str, nn.Module]):
        """modules: as `name_modules` has them."""
        self._first = {id(module): path for path, module in modules.items()}
        self._parents: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for module in modules.values():  # each once, so that a child that refers to its parent ends the walk
            for name, child in module._modules.items():
                if child is not None:
                    self._parents[id(unwrap(child))].append((id(module), name))
        self._all_unique = all(len(parents) == 1 for parents in self._parents.values())

    def path_of(self, module: nn.Module, callers: Callable[[], Sequence[Caller]]) -> str:
        """The path from the nearest caller that has this module below it; else the first name in the model."""
        for caller, path in () if self._all_unique else reversed(callers()):
            below = self._path_below(id(module), id(caller))
            if below is not None:
                return f"{path}.{below}" if path else below
        return self._first[id(module)]

    def first_path_of(self, module: nn.Module) -> str:
        """The first path that the model has for it."""
        return self._first[id(module)]

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
