"""Find the attention patterns of a run: by value, whatever their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from shapetrace import forge
from shapetrace.errors import ShapetraceError
from shapetrace.inputs import Inputs
from shapetrace.patterns import Pattern, choose_heads, choose_layer, number_layers, without_heads
from shapetrace.running import trace_target
from shapetrace.target import Target
from shapetrace.trace import TensorRecord, Trace, write_source

_SLACK = 1e-2  # how far from 1 a row's sum may be: bfloat16 has three digits
_FUSED = {
    functional.scaled_dot_product_attention,
    functional.multi_head_attention_forward,
    torch._native_multi_head_attention,
    torch._transformer_encoder_layer_fwd,
}


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """A tensor that is a pattern, as (head, query, key)."""

    module: str
    record: TensorRecord
    value: Tensor


@dataclass(frozen=True, slots=True)
class Patterns:
    """What a run of the model showed."""

    name: str
    trace: Trace
    why_none: tuple[str, str]  # what to tell where there is none, and what can be done
    layers: tuple[tuple[str, list[_Found]], ...] = ()  # the module, and what it showed: of each head where each is one

    def choose(self, layer: int | None, head: int | None, module: str | None = None) -> Pattern:
        """The pattern of that layer or module, of the first layer by default; of all heads, or of one.

        Raises ShapetraceError where there is none, or no such layer or head.
        """
        if not self.layers:
            raise ShapetraceError(*self.why_none)
        numbered = number_layers([path for path, _ in self.layers])
        at = choose_layer(numbered, layer, module, self.name)
        number, path = numbered[at]
        found = self.layers[at][1]
        value, record = torch.cat([each.value for each in found]), found[0].record
        heads = {head: tuple(map(tuple, value[head].tolist())) for head in choose_heads(len(value), head, path)}
        return Pattern(number, path, record.name, write_source(record.source), len(value), heads)


def find_patterns(target: Target, inputs: Inputs, seed: int = 0) -> Patterns:
    """Call the target once, and keep each tensor that gets a name and is an attention pattern.

    That is one without negative entries, (..., query, key), whose rows sum to 1; its axes may also stand elsewhere. Of
    the names that a pattern has in a module and those around it, the one that its forward gives it counts. What the
    forward raises is the trace's `error`.
    """
    seen: list[_Found] = []
    positions = len(inputs.given.ids) if inputs.given else 0

    def keep(path: str, record: TensorRecord, tensor: Tensor) -> None:
        heads = as_heads(tensor, positions)
        if heads is not None:
            _add(seen, _Found(path, record, heads))

    mode = _FusedAttention()
    with mode:
        trace = trace_target(target, inputs, seed=seed, observe=keep)
    return Patterns(target.name, trace, _why_none(target, mode.ran), tuple(_as_layers(seen)))


def _add(seen: list[_Found], new: _Found) -> None:
    """Keep the pattern, unless it is there: as what a module was given or has returned, or of each of the heads."""
    same = [old for old in seen if old.value.shape == new.value.shape and torch.equal(old.value, new.value)]
    if new.record.role == "local":
        same = [old for old in same if _is_around(new.module, old.module)]
        if same and all(old.record.role != "local" for old in same):
            seen[seen.index(same[0])] = new  # by identity: eq=False
            for old in same[1:]:
                seen.remove(old)
            return
    elif new.record.role == "output":
        parent = new.module.rpartition(".")[0]
        same = [old for old in same if _is_around(parent, old.module) or _is_around(old.module, new.module)]
    if not same and not any(_is_average(new, old) for old in seen):
        seen.append(new)


def _is_average(new: _Found, old: _Found) -> bool:
    """Whether it is the mean over the heads, which some modules return."""
    is_one = len(new.value) == 1 < len(old.value) and new.value.shape[1:] == old.value.shape[1:]
    return is_one and torch.allclose(old.value.mean(0), new.value[0], atol=1e-5)


def _is_around(outer: str, inner: str) -> bool:
    return not outer or f"{inner}.".startswith(f"{outer}.")


def _as_layers(seen: list[_Found]) -> Iterator[tuple[str, list[_Found]]]:
    """One layer for each pattern; where each head is a module of its own, one for all heads beside each other."""
    layers: dict[tuple[str, int], list[_Found]] = {}
    calls: Counter[str] = Counter()
    for found in seen:
        path = without_heads(found.module) if len(found.value) == 1 else found.module
        layers.setdefault((path, calls[found.module]), []).append(found)
        calls[found.module] += 1
    return ((path, each) for (path, _), each in layers.items())


@torch.no_grad()
def as_heads(tensor: Tensor, positions: int) -> Tensor | None:
    """A copy as (head, query, key) where the tensor is an attention pattern, else None; positions: of the text."""
    if not tensor.is_floating_point() or tensor.layout != torch.strided or tensor.is_meta or tensor.ndim < 2:
        return None
    for query, key in _axes(tensor, positions):
        value = tensor.detach().movedim((query, key), (-2, -1))
        if bool((value >= 0).all()) and bool(((value.sum(-1) - 1).abs() < _SLACK).all()):
            heads = value.reshape(-1, *value.shape[-2:]).to("cpu", torch.float32, copy=True)
            is_unit = tensor.ndim == 2 and torch.equal(heads[0], torch.eye(*heads[0].shape))
            return None if is_unit else heads
    return None


def _axes(tensor: Tensor, positions: int) -> list[tuple[int, int]]:
    """Where query and key may stand: last, or, of the text's size, elsewhere."""
    last = tensor.ndim - 1
    axes = [(last - 1, last)] if tensor.shape[-1] == tensor.shape[-2] or tensor.ndim > 3 else []
    of_text = [axis for axis in range(tensor.ndim) if positions > 1 and tensor.shape[axis] == positions]
    pairs = [(query, key) for key in reversed(of_text) for query in reversed(of_text) if query != key]
    return [*axes, *(pair for pair in pairs if pair not in axes)]


class _FusedAttention(TorchFunctionMode):
    """Notices attention that is one operation."""

    def __init__(self) -> None:
        super().__init__()
        self.ran = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ran = self.ran or func in _FUSED
        return func(*args, **(kwargs or {}))


def _why_none(target: Target, fused: bool) -> tuple[str, str]:
    """What to tell where there is no pattern, and what can be done."""
    if not fused:
        return (
            f"{target.name} shows no attention pattern: no tensor with a name has rows of weights that sum to 1",
            "bind what the softmax returns to a name, such as `att = scores.softmax(-1)`",
        )
    why = f"{target.name} shows no attention pattern: its attention is fused into one operation, which makes none"
    if isinstance(target.model, forge.Transformer):
        return why, "run it step by step: `--set attention=manual`"
    if target.name.startswith("hf:"):
        joined = f"{target.name}{'&' if '?' in target.name else '?'}attn_implementation=eager"
        return why, f"run it with the attention that does: --model '{joined}'"
    return why, (
        "compute it step by step where you want to see it: `att = q @ k.mT / math.sqrt(q.size(-1))`, the mask, "
        "`att = att.softmax(-1)`"
    )
