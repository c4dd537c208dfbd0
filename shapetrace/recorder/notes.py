"""What a reader has to know of a module besides its tensors: why less is seen of it, or more of it is there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from shapetrace.recorder.paths import unwrap

_COMPILED = "compiled: shown as it is written"


def notes_of(
    model: nn.Module, modules: Mapping[str, nn.Module], parameters: Mapping[str, nn.Parameter]
) -> dict[int, str]:
    """By the id of each module that there is something to say of; the others as `name_modules` and so on have them."""
    notes: dict[int, list[str]] = defaultdict(list)
    paths = {id(module): path for path, module in modules.items()}
    registered = set(map(id, parameters.values()))
    inside: set[int] = set()  # of scripted modules
    for module in model.modules():
        inner = unwrap(module)
        if _is_compiled(module) and _COMPILED not in notes[id(inner)]:
            notes[id(inner)].append(_COMPILED)
        if isinstance(module, torch.jit.ScriptModule):
            is_inside = id(module) in inside
            notes[id(module)].append("inside a scripted module" if is_inside else "scripted: its inside is not seen")
            inside.update(map(id, module.modules()))
        elif inner is module and (said := [*_cycles(module, paths), *_unregistered(module, paths, registered)]):
            notes[id(module)] += said
    return {key: "; ".join(each) for key, each in notes.items()}


def _is_compiled(module: nn.Module) -> bool:
    forward = vars(module).get("forward", getattr(type(module), "forward", None))
    return (
        "_orig_mod" in module._modules
        or getattr(module, "_compiled_call_impl", None) is not None
        or hasattr(forward, "_torchdynamo_orig_callable")
    )


def _cycles(module: nn.Module, paths: dict[int, str]) -> Iterator[str]:
    """Children that are the module itself, or one that it is in."""
    path = paths[id(module)]
    for name, child in module._modules.items():
        above = paths.get(id(child))
        if above is not None and f"{path}.".startswith(f"{above}." if above else ""):
            yield f"`{name}` refers back to {above or 'the root'}"


def _unregistered(module: nn.Module, paths: dict[int, str], registered: set[int]) -> Iterator[str]:
    """Attributes that hold modules or parameters in a plain list, where `parameters()` does not find them."""
    for name, value in vars(module).items():
        if name[:1] == "_" or not isinstance(value, list | tuple | dict):
            continue
        items: list[Any] = list(value.values() if isinstance(value, dict) else value)
        modules = [each for each in items if isinstance(each, nn.Module) and id(each) not in paths]
        parameters = [each for each in items if isinstance(each, nn.Parameter)]
        owned = {id(each): each for one in modules for each in one.parameters()} | {id(p): p for p in parameters}
        unknown = [each for key, each in owned.items() if key not in registered and not nn.parameter.is_lazy(each)]
        if not unknown:
            continue
        count, kind = len(modules) or len(parameters), "module" if modules else "parameter"
        size = sum(each.numel() for each in unknown)
        held = f"{count} {kind}" + ("s" if count > 1 else "")
        yield f"`{name}` holds {held} in a plain {type(value).__name__}, not registered: {size:,} parameters"
