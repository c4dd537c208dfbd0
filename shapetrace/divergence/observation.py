"""Run a model once and keep a copy of every tensor that got a name, and of what each module was given and returned."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn

from shapetrace.divergence.call_sites import find_site, is_argument
from shapetrace.recorder import recording
from shapetrace.recorder.leaves import walk_leaves
from shapetrace.recorder.tensors import UNCOUNTED, identity_of, name_of
from shapetrace.recorder.user_code import user_code_of
from shapetrace.sharding import whole_of
from shapetrace.trace import TensorRecord, Trace


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """A named tensor as it was when it got its name."""

    module: str
    record: TensorRecord
    value: Tensor
    site: str = ""  # of what a module or a helper was given, or a module returned: the line of yours that called it

    def at_call(self, site: str = "") -> Observed:
        """The same at the line that called, where one did."""
        return replace(self, record=replace(self.record, source=site or self.site or self.record.source))

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
    returned: dict[str, tuple[Tensor, ...]] = field(default_factory=dict)  # by module: all that it returned last
    calls: dict[str, Call] = field(default_factory=dict)
    repeated: set[str] = field(default_factory=set)  # modules that ran more than once
    containers: frozenset[str] = frozenset()  # modules without a forward: what they hold is used by others

    def within(self, module: str) -> list[Observed]:
        """The named tensors of a module and of those inside it."""
        return [each for each in self.tensors if is_within(each.module, module)]

    def ran_again(self, module: str) -> bool:
        """Whether the module, or one around it, ran more than once: its names are bound anew in each run."""
        return any(is_within(module, each) for each in self.repeated)

    def given_before(self, seen: Observed, module: str) -> Observed:
        """What the module was given in the run in which the tensor got its name."""
        if module in self.repeated:
            before = takewhile(lambda each: each is not seen, self.tensors)
            given = [each for each in before if each.module == module and each.record.role == "input"]
            return given[-1] if given else self.inputs[module]
        return self.inputs[module]

    def around(self, scope: str) -> str:
        """The module, or the nearest one around it that can run."""
        while scope in self.containers and scope:
            scope = scope.rpartition(".")[0]
        return scope

    def in_source(self, observed: Observed, scope: str = "") -> Observed:
        """The same tensor as the statement that made it names it: a binding, or the return of a module of yours.

        One that has no name, such as an argument or what a library's module returns, stands at the call; one that was
        made by a module which has nothing to do with the scope, where the module around both takes it.
        """
        same = [each for each in self.tensors if each.value is observed.value]
        made = [each for each in same if each.record.role != "input" and each.record.source]
        if made and not (is_within(made[0].module, scope) or is_within(scope, made[0].module)):
            made = [each for each in made if is_within(scope, each.module)]
        if made:
            return made[0]
        return observed.at_call(next((each.site for each in (*same, observed) if each.site), ""))


def is_within(module: str, other: str) -> bool:
    """Whether a module, by its path, is another one or inside it."""
    return not other or f"{module}.".startswith(f"{other}.")


@torch.no_grad()
def observe(model: nn.Module, *inputs: Any) -> Observation:
    """Run the model on these inputs, where it is. A tensor with several names is copied once for each change of its
    contents, to the CPU: there all is compared.
    """
    first = next(model.parameters(), None)
    device = torch.device("cpu") if first is None else first.device
    copies: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
    seen: list[tuple[Tensor, Observed]] = []
    given: dict[str, Observed] = {}
    returned: dict[str, Observed] = {}
    everything: dict[str, tuple[Tensor, ...]] = {}
    calls: dict[str, Call] = {}
    repeated: set[str] = set()
    is_watched = user_code_of(model)

    def copy_of(tensor: Tensor) -> Tensor:
        key = identity_of(tensor)
        if key[1] == UNCOUNTED:  # whether it was changed since, torch does not tell
            return whole_of(tensor.detach()).to("cpu", copy=True)
        # The tensor is kept beside its copy, so that its id is not given to another while the run goes on.
        if key not in copies:
            copies[key] = (tensor, whole_of(tensor.detach()).to("cpu", copy=True))
        return copies[key][1]

    def keep(path: str, record: TensorRecord, tensor: Tensor) -> None:
        if isinstance(tensor, nn.Parameter):  # a helper's argument may be one
            return
        site = ""
        if is_argument(record):  # of a helper, which has been entered
            record, site = replace(record, role="input"), find_site(is_watched, outside=1)
        elif record.role != "local":
            site = find_site(is_watched)
        seen.append((tensor, Observed(path, record, copy_of(tensor), site)))

    def keep_first(path: str, value: Any, role: str, into: dict[str, Observed]) -> None:
        first = next(walk_leaves("out", value), None)
        if first is not None:
            named = [each for tensor, each in seen if tensor is first[1] and each.module == path]
            unnamed = Observed(path, _unnamed(role, first[1]), copy_of(first[1]), find_site(is_watched))
            into[path] = named[-1] if named else unnamed

    def keep_input(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if path in calls:
                repeated.add(path)
            calls[path] = Call(_copied(args), _copied(kwargs))
            keep_first(path, (*args, *kwargs.values()), "input", given)

        return hook

    def keep_output(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            everything[path] = tuple(copy_of(leaf) for _, leaf in walk_leaves("out", output))
            keep_first(path, output, "output", returned)

        return hook

    with recording(model, observe=keep) as trace:
        # Registered after the recorder's, so that an unnamed output is `out` by now.
        handles = []
        for path, each in model.named_modules():
            handles.append(each.register_forward_pre_hook(keep_input(path), with_kwargs=True))
            handles.append(each.register_forward_hook(keep_output(path)))
        try:
            output = model(*(each.to(device, copy=True) if isinstance(each, Tensor) else each for each in inputs))
        finally:
            for handle in handles:
                handle.remove()
    containers = (path for path, each in model.named_modules() if type(each).forward is nn.Module.forward)
    tensors = [observed for _, observed in seen]
    return Observation(trace, output, tensors, given, returned, everything, calls, repeated, frozenset(containers))


def find_logits(seen: Observation, shape: tuple[int, ...]) -> Observed | None:
    """What the model returned: the tensor of the logits' shape, else one with their last axis, else the first."""
    leaves = [whole_of(value) for _, value in walk_leaves("", seen.output)]
    shaped = [value for value in leaves if value.shape == shape]
    wide = [value for value in leaves if value.ndim and value.shape[-1] == shape[-1]]
    logits = next(iter(shaped or wide or leaves), None)
    if logits is None:
        return None
    for each in reversed(seen.tensors):
        if each.module == "" and each.value.shape == logits.shape and torch.equal(each.value, logits.cpu()):
            return each
    return Observed(
        "", TensorRecord("out", "output", tuple(logits.shape), str(logits.dtype)[6:]), logits.detach().cpu()
    )


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # whatever a class of the user's raises
        return value


def _unnamed(role: str, tensor: Tensor) -> TensorRecord:
    return TensorRecord("out", role, tuple(tensor.shape), name_of(tensor.dtype))
