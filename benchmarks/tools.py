"""The tools that are timed beside each other, each as its own documentation uses it, and what each names.

A tool is prepared outside the clock, `run` is what is timed, and `count` reads the number of tensors off what the run
itself gave back.
"""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


class Tool:
    """One way to look at the tensors of a forward."""

    package: str  # what has to be installed for it
    name: str
    names: str  # which tensors it names

    def __init__(self, model: nn.Module, tokens: Tensor):
        self.model, self.tokens = model, tokens

    def enter(self) -> None:
        """What comes before the run and is not its cost."""

    def run(self) -> Any:
        raise NotImplementedError  # of the base: each tool has its own

    def leave(self) -> None:
        """Leave torch as it was, for the plain forward that is measured next."""

    def count(self, result: Any) -> int:
        raise NotImplementedError  # of the base: each tool has its own


class Record(Tool):
    """All that `record` does: describe the model, run it, close the trace."""

    package, name, names = "shapetrace", "shapetrace.record", "every name that user code binds"

    def run(self) -> Any:
        from shapetrace import record

        return record(self.model, self.tokens)

    def count(self, result: Any) -> int:
        """As the last line of `shapetrace run` says it: without parameters and buffers."""
        from shapetrace.trace import tensors_of, walk_calls

        calls = [call for root in result.calls for call in walk_calls(root)]
        return sum(each.has_shape for call in calls for each in tensors_of(call))


class Recording(Record):
    """The forward alone, as in a training loop that runs many of them in one recording."""

    name = "  the forward inside `recording`"

    def enter(self) -> None:
        from shapetrace import recording

        self.recording = recording(self.model)
        self.trace = self.recording.__enter__()

    def run(self) -> Any:
        self.model(self.tokens)
        return self.trace

    def leave(self) -> None:
        self.recording.__exit__(None, None, None)


class RecordMeta(Record):
    """What `shapetrace run --meta` does: the same model without memory."""

    name = "  record on the meta device"

    def __init__(self, model: nn.Module, tokens: Tensor):
        super().__init__(twin(model, "meta"), tokens.to("meta"))


class Hooks(Tool):
    """What one would write by hand: a forward hook on every module that keeps shapes."""

    package, name, names = "torch", "a hook on every module", "module outputs"

    def run(self) -> Any:
        seen: list[tuple[str, torch.Size]] = []
        handles = [
            module.register_forward_hook(lambda _, __, out, path=path: seen.append((path, out.shape)))
            for path, module in self.model.named_modules()
        ]
        self.model(self.tokens)
        for handle in handles:
            handle.remove()
        return seen

    def count(self, result: Any) -> int:
        return len(result)


class TorchInfo(Tool):
    package, name, names = "torchinfo", "torchinfo.summary", "module outputs"

    def run(self) -> Any:
        from torchinfo import summary

        return summary(self.model, input_data=self.tokens, verbose=0)

    def count(self, result: Any) -> int:
        """Rows with an output's shape; a ModuleList has a row without."""
        return sum(bool(layer.output_size) for layer in result.summary_list)


class NNsightTrace(Tool):
    """Its own module tree over the same weights: NNsight wraps forwards for good."""

    package, name, names = "nnsight", "nnsight trace, cache", "module outputs"

    def __init__(self, model: nn.Module, tokens: Tensor):
        from nnsight import NNsight

        super().__init__(NNsight(twin(model)), tokens)

    def run(self) -> Any:
        with self.model.trace(self.tokens) as tracer:
            cache = tracer.cache()
        return cache  # noqa: RET504 - nnsight runs the block apart

    def count(self, result: Any) -> int:
        """Tensors among the cached outputs."""
        return sum(isinstance(leaf, Tensor) for path in result.keys() for leaf in tree_leaves(result[path].output))  # noqa: SIM118


class NNsightScan(NNsightTrace):
    """Fake tensors, nothing computed. Only models that can be built without weights have `scan`, so one of those."""

    name = "nnsight scan, cache"

    def __init__(self, model: nn.Module, tokens: Tensor):
        from nnsight.modeling.mixins.meta import Meta

        Tool.__init__(self, Meta(twin(model)), tokens)

    def run(self) -> Any:
        with self.model.scan(self.tokens) as tracer:
            cache = tracer.cache()
        return cache  # noqa: RET504 - nnsight runs the block apart


class TorchLens(Tool):
    """It wraps torch's functions at the first trace and leaves them so; for the plain forward they are unwrapped."""

    package, name, names = "torchlens", "torchlens.trace, nothing saved", "every operation"
    saved = "none"

    def enter(self) -> None:
        from torchlens.backends.torch.wrappers import wrap_torch

        wrap_torch()

    def run(self) -> Any:
        import torchlens

        return torchlens.trace(
            self.model, self.tokens, capture=torchlens.options.CaptureOptions(layers_to_save=self.saved)
        )

    def leave(self) -> None:
        from torchlens.backends.torch.wrappers import unwrap_torch

        unwrap_torch()

    def count(self, result: Any) -> int:
        """The tensors of its log, inputs and buffers included."""
        return len(result)


class TorchLensSaved(TorchLens):
    """Its default: every output is copied."""

    name = "torchlens.trace"
    saved = "all"


class TorchLensRecord(TorchLens):
    """Its mode for tight loops: operations without the graph between them."""

    name = "torchlens.record"

    def run(self) -> Any:
        import torchlens

        return torchlens.record(self.model, self.tokens, save=lambda context: True)


class ModelDebugger(Tool):
    """Hugging Face's: statistics and values of what goes in and out, written to two JSON files."""

    package, name, names = "transformers", "model_addition_debugger", "module inputs, leaves' outputs"

    def __init__(self, model: nn.Module, tokens: Tensor):
        super().__init__(model, tokens)
        self.folder = tempfile.TemporaryDirectory()

    def run(self) -> Any:
        from transformers.model_debugging_utils import model_addition_debugger_context

        with model_addition_debugger_context(self.model, debug_path=self.folder.name, do_prune_layers=False):
            self.model.forward(self.tokens)
        return Path(self.folder.name)

    def count(self, result: Any) -> int:
        """The shapes in the summary that it wrote."""
        (summary,) = result.glob("*_SUMMARY.json")
        return summary.read_text(encoding="utf-8").count('"shape": "torch.Size')


TOOLS: tuple[type[Tool], ...] = (
    Record,
    Recording,
    RecordMeta,
    Hooks,
    TorchInfo,
    NNsightTrace,
    NNsightScan,
    ModelDebugger,
    TorchLensRecord,
    TorchLens,
    TorchLensSaved,
)


def twin(model: nn.Module, device: str = "cpu") -> nn.Module:
    """A second tree of modules over the same weights, or over none where the device is `meta`."""
    parameters = {id(each): nn.Parameter(each.to(device), each.requires_grad) for each in model.parameters()}
    return copy.deepcopy(model, parameters | {id(each): each.to(device) for each in model.buffers()})
