"""Run a model once and keep a copy of every tensor that got a name, and of what each module was given and returned."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from shapetrace.recorder import recording
from shapetrace.recorder.leaves import walk_leaves
from shapetrace.recorder.tensors import UNCOUNTED, identity_of
from shapetrace.trace import TensorRecord, Trace, walk_calls


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """A named tensor as it was when it got its name."""

    module: str
    record: TensorRecord
    value: Tensor

    @property
    def name(self) -> str:
        """Its full name: `blocks.0.attn.q`."""
        return f"{self.module}.{self.record.name}" if self.module else self.record.name


@dataclass(frozen=True, slots=True)
class Call:
    """What a module was called with, the last time: copies, for a cache among it goes on to change."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(slots=True)
class Observation:
    """One run."""

    trace: Trace
    output: Any = None
    tensors: list[Observed] = field(default_factory=list)  # in the order in which they got their names
    inputs: dict[str, Observed] = field(default_factory=dict)  # by module: the first tensor it was given last
    outputs: dict[str, Observed] = field(default_factory=dict)  # by module: the first tensor it returned last
    calls: dict[str, Call] = field(default_factory=dict)
    containers: frozenset[str] = frozenset()  # modules without a forward: what they hold is used by others

    def within(self, module: str) -> list[Observed]:
        """The named tensors of a module and of those inside it."""
        return [each for each in self.tensors if not module or f"{each.module}.".startswith(f"{module}.")]

    def in_source(self, observed: Observed) -> Observed:
        """The same tensor under the name that the statement which made it gives it.

        What a library's module returns has no line of its own; of what a module is given, the signature tells little.
        """
        if observed.record.source and observed.record.role != "input":
            return observed
        same = [each for each in self.tensors if each.value is observed.value and each.record.source]
        made = [each for each in same if each.record.role == "local"]
        if made or same:
            return (made or same)[-1]
        forwards = {call.module: call.source for whole in self.trace.calls for call in walk_calls(whole)}
        path = observed.module
        while path and not forwards.get(path):  # a library's module: the forward that calls it is yours
            path = path.rpartition(".")[0]
        return replace(observed, record=replace(observed.record, source=forwards.get(path, "")))


@torch.no_grad()
def observe(model: nn.Module, *inputs: Any) -> Observation:
    """Run the model on these inputs. A tensor with several names is copied once for each change of its contents."""
    copies: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
    seen: list[tuple[Tensor, Observed]] = []
    given: dict[str, Observed] = {}
    returned: dict[str, Observed] = {}
    calls: dict[str, Call] = {}

    def copy_of(tensor: Tensor) -> Tensor:
        key = identity_of(tensor)
        if key[1] == UNCOUNTED:  # whether it was changed since, torch does not tell
            return tensor.detach().clone()
        # The tensor is kept beside its copy, so that its id is not given to another while the run goes on.
        if key not in copies:
            copies[key] = (tensor, tensor.detach().clone())
        return copies[key][1]

    def keep(path: str, record: TensorRecord, tensor: Tensor) -> None:
        if not isinstance(tensor, nn.Parameter):  # a helper's argument may be one
            seen.append((tensor, Observed(path, record, copy_of(tensor))))

    def keep_first(path: str, value: Any, role: str, into: dict[str, Observed]) -> None:
        first = next(walk_leaves("out", value), None)
        if first is not None:
            named = [each for tensor, each in seen if tensor is first[1] and each.module == path]
            into[path] = named[-1] if named else Observed(path, _unnamed(role, first[1]), copy_of(first[1]))

    def keep_input(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            calls[path] = Call(_copied(args), _copied(kwargs))
            keep_first(path, (*args, *kwargs.values()), "input", given)

        return hook

    def keep_output(path: str) -> Callable[..., None]:
        return lambda module, args, output: keep_first(path, output, "output", returned)

    with recording(model, observe=keep) as trace:
        # Registered after the recorder's, so that an unnamed output is `out` by now.
        handles = []
        for path, each in model.named_modules():
            handles.append(each.register_forward_pre_hook(keep_input(path), with_kwargs=True))
            handles.append(each.register_forward_hook(keep_output(path)))
        try:
            output = model(*(each.clone() if isinstance(each, Tensor) else each for each in inputs))
        finally:
            for handle in handles:
                handle.remove()
    containers = (path for path, each in model.named_modules() if type(each).forward is nn.Module.forward)
    tensors = [observed for _, observed in seen]
    return Observation(trace, output, tensors, given, returned, calls, frozenset(containers))


def find_logits(seen: Observation, shape: tuple[int, ...]) -> Observed | None:
    """What the model returned: the tensor of the logits' shape, else one with their last axis, else the first."""
    leaves = [value for _, value in walk_leaves("", seen.output)]
    shaped = [value for value in leaves if value.shape == shape]
    wide = [value for value in leaves if value.ndim and value.shape[-1] == shape[-1]]
    logits = next(iter(shaped or wide or leaves), None)
    if logits is None:
        return None
    for each in reversed(seen.tensors):
        if each.module == "" and each.value.shape == logits.shape and torch.equal(each.value, logits):
            return each
    return Observed("", TensorRecord("out", "output", tuple(logits.shape), str(logits.dtype)[6:]), logits.detach())


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # whatever a class of the user's raises
        return value


def _unnamed(role: str, tensor: Tensor) -> TensorRecord:
    return TensorRecord("out", role, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
