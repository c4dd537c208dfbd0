"""Run a model once and keep a copy of every tensor that got a name, and of what each module returned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from shapetrace.recorder import recording
from shapetrace.recorder.leaves import walk_leaves
from shapetrace.recorder.tensors import UNCOUNTED, identity_of
from shapetrace.trace import TensorRecord, Trace


@dataclass(frozen=True, slots=True)
class Observed:
    """A named tensor as it was when it got its name."""

    module: str
    record: TensorRecord
    value: Tensor

    @property
    def name(self) -> str:
        """Its full name: `blocks.0.attn.q`."""
        return f"{self.module}.{self.record.name}" if self.module else self.record.name


@dataclass(slots=True)
class Observation:
    """One run."""

    trace: Trace
    output: Any = None
    tensors: list[Observed] = field(default_factory=list)  # in the order in which they got their names
    outputs: dict[str, Observed] = field(default_factory=dict)  # by module: the first tensor that it returned last

    def of(self, module: str) -> list[Observed]:
        """The named tensors of one module."""
        return [each for each in self.tensors if each.module == module]


@torch.no_grad()
def observe(model: nn.Module, *inputs: Any) -> Observation:
    """Run the model on these inputs. A tensor with several names is copied once for each change of its contents."""
    copies: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
    seen: list[tuple[Tensor, Observed]] = []
    outputs: dict[str, Observed] = {}

    def copy_of(tensor: Tensor) -> Tensor:
        key = identity_of(tensor)
        if key[1] == UNCOUNTED:  # whether it was changed since, torch does not tell
            return tensor.detach().clone()
        # The tensor is kept beside its copy, so that its id is not given to another while the run goes on.
        if key not in copies:
            copies[key] = (tensor, tensor.detach().clone())
        return copies[key][1]

    def keep(path: str, record: TensorRecord, tensor: Tensor) -> None:
        seen.append((tensor, Observed(path, record, copy_of(tensor))))

    def keep_output(path: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            first = next(walk_leaves("out", output), None)
            if first is not None:
                named = [each for tensor, each in seen if tensor is first[1] and each.module == path]
                outputs[path] = named[-1] if named else Observed(path, _unnamed(first[1]), copy_of(first[1]))

        return hook

    with recording(model, observe=keep) as trace:
        # Registered after the recorder's, so that an unnamed output is `out` by now.
        handles = [each.register_forward_hook(keep_output(path)) for path, each in model.named_modules()]
        try:
            output = model(*(each.clone() if isinstance(each, Tensor) else each for each in inputs))
        finally:
            for handle in handles:
                handle.remove()
    return Observation(trace, output, [observed for _, observed in seen], outputs)


def _unnamed(tensor: Tensor) -> TensorRecord:
    return TensorRecord("out", "output", tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
