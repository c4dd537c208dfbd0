"""Put the reference's weights into a model, and say what went where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher

import torch
from einops import EinopsError
from torch import Tensor, nn

from shapetrace.errors import ShapetraceError
from shapetrace.gpt2 import Config, Transformer
from shapetrace.meta import on_meta
from shapetrace.report import KeyReport
from shapetrace.sharding import fill, is_distributed, whole_of
from shapetrace.weights.layouts import Layout

# A layout may do without these: the head is then the embedding, and its bias 0.
_HEAD, _HEAD_BIAS = "unembed.W_U", "unembed.b_U"
_NEAR = 0.6  # of 1: how alike two names are that may be meant for each other, as in difflib


@dataclass(frozen=True, slots=True)
class Fitting:
    """How a model keeps GPT-2's weights, and which of them it does without on purpose."""

    layout: Layout
    tied: bool  # its head is its embedding
    without: frozenset[str]  # TransformerLens names that are 0 for it

    def adapt(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """The reference's weights for such a model: tied, and 0 where it has none."""
        for name in self.without:
            if name in state:
                state[name] = torch.zeros_like(state[name])
        if self.tied:
            state[_HEAD] = state["embed.W_E"].T.contiguous()
        return state

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The state under the model's own keys; what the model has no place for under the key that it would have."""
        slots = [
            slot for slot in (*self.layout.slots, *self.layout.absent) if all(name in state for name in slot.names)
        ]
        spare = {
            name
            for slot in self.layout.absent
            for name in slot.names
            if name in self.without or (self.tied and name == _HEAD)
        }
        converted = {slot.key: slot.pack(state) for slot in slots if not spare & {*slot.names}}
        if self.layout.name == "TransformerLens":
            covered = {name for slot in (*self.layout.slots, *self.layout.absent) for name in slot.names}
            converted |= {name: tensor for name, tensor in state.items() if name not in covered}
        return converted


def fit_layout(model: nn.Module, layout: Layout, no_bias: bool) -> Fitting:
    """Whether the head is tied, and what is absent on purpose.

    That is a bias of the head, those that models in this layout often do without, if it has none of them, and all where
    the config says so.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    placed = {slot.key for slot in layout.slots}
    strangers = [each.shape for key, each in parameters.items() if key not in placed]
    embedding, head = layout.slot_of("embed.W_E"), layout.slot_of(_HEAD)
    if head is not None:
        tied = embedding is not None and parameters[head.key] is parameters[embedding.key]
    else:  # a head of another name is none of the embedding's
        tied = embedding is None or not {parameters[embedding.key].shape, parameters[embedding.key].shape[::-1]} & {
            *strangers
        }
    biases = {name for slot in layout.absent for name in slot.names if name.rpartition(".")[2].startswith("b")}
    if no_bias:
        return Fitting(layout, tied, frozenset(biases))
    has_some = any(name.endswith(layout.optional) for slot in layout.slots for name in slot.names)
    has_some = has_some or any(len(shape) == 1 for shape in strangers)
    optional = () if has_some else layout.optional
    return Fitting(layout, tied, frozenset(name for name in biases if name == _HEAD_BIAS or name.endswith(optional)))


def compare_keys(model: nn.Module, state: Mapping[str, Tensor], fitting: Fitting | None = None) -> KeyReport:
    """How the state, under the model's keys, fits its parameters, and which of them hold other values than it does."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    own = _own_keys(model)
    fitting_names = [name for name, each in parameters.items() if name in state and each.shape == state[name].shape]
    missing = tuple(name for name in parameters if name not in state)
    unexpected = tuple(key for key in state if key not in own)
    return KeyReport(
        loaded=len(fitting_names),
        missing=missing,
        unexpected=unexpected,
        mismatched=tuple(
            f"{name}: yours {tuple(each.shape)}, reference {tuple(state[name].shape)}"
            for name, each in parameters.items()
            if name in state and each.shape != state[name].shape
        ),
        buffers=tuple(key for key in own if key not in parameters and key not in state),
        different=tuple(name for name in fitting_names if not is_same(parameters[name], state[name])),
        tied=_tied(parameters, fitting) if fitting else (),
        suggestions=tuple(
            f"`{name}`: did you mean `{near.rpartition('.')[2] if _owner(near) == _owner(name) else near}`?"
            for name, near in nearest_names(parameters, state).items()
        ),
    )


def nearest_names(parameters: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, str]:
    """For each parameter that got nothing: the key of the state without a place that it is likely meant to be.

    None where two keys are as near, or where another parameter is nearer to it.
    """
    spare = [key for key in state if key not in parameters]
    claims = []
    for name, parameter in parameters.items():
        if name not in state:
            alike = [key for key in spare if state[key].shape == parameter.shape and layer_of(key) == layer_of(name)]
            beside = [key for key in alike if _owner(key) == _owner(name)]
            near = sorted(((_likeness(name, key), key) for key in beside or alike or spare), reverse=True)
            is_only = len(near) == 1 and bool(alike)
            if near and (is_only or (near[0][0] >= _NEAR and (len(near) == 1 or near[0][0] > near[1][0]))):
                claims.append((*near[0], name))
    found: dict[str, str] = {}
    for _, key, name in sorted(claims, reverse=True):
        if key not in found.values():
            found[name] = key
    return {name: found[name] for name in parameters if name in found}


def _likeness(name: str, key: str) -> float:
    return SequenceMatcher(None, name, key).ratio()


def layer_of(key: str) -> list[str]:
    """`trf_blocks.0.norm1.scale` -> `['0']`."""
    return re.findall(r"(?<=\.)\d+(?=\.)", key)[:1]


def own_state(model: nn.Module, fitting: Fitting, config: Config, dtype: torch.dtype) -> dict[str, Tensor]:
    """Copies on the CPU of the model's own weights under TransformerLens names, 0 where it has none.

    Raises ShapetraceError where one does not fit the sizes.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    with on_meta():
        shapes = {name: each.shape for name, each in Transformer(config).named_parameters()}
    state = {name: torch.zeros(shape, dtype=dtype) for name, shape in shapes.items()}
    for slot in fitting.layout.slots:
        try:
            parts = slot.unpack(whole_of(parameters[slot.key].detach()), config.n_heads)
        except EinopsError:
            parts = {}
        for name in slot.names:
            if name not in parts or parts[name].shape != state[name].shape:
                raise ShapetraceError(
                    f"`{slot.key}` {tuple(parameters[slot.key].shape)} does not hold {name} {tuple(state[name].shape)}",
                    "diff it with random weights first: they tell what is wrong with the shapes",
                )
            state[name] = parts[name].to("cpu", dtype, copy=True)
    return fitting.adapt(state)


@contextmanager
def holding(model: nn.Module, state: Mapping[str, Tensor], share: bool = False) -> Iterator[None]:
    """Inside, the model's parameters hold the state's values, where it has any for them; afterwards what they held.

    share: they hold the state's own tensors, and not copies. Code that writes to its weights then writes to the state.
    Buffers stay as they are: they are the model's own constants, and may be what is wrong with it.
    """
    lent = [
        (parameter, _held_by(parameter), state[name])
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if name in state and parameter.shape == state[name].shape
    ]
    # The Parameter objects stay: the model may know them by other names than its own.
    for parameter, own, value in lent:
        if is_distributed(parameter):
            fill(parameter, value)
        else:
            parameter.data = value.detach().to(own.device, own.dtype, copy=not share)
    try:
        yield
    finally:
        for parameter, own, _ in reversed(lent):
            if is_distributed(parameter):
                fill(parameter, own)
            else:
                parameter.data = own


def _held_by(parameter: nn.Parameter) -> Tensor:
    """The data itself; of a DTensor, whose parts are written in place, a copy."""
    return parameter.detach().clone() if is_distributed(parameter) else parameter.data


def _own_keys(model: nn.Module) -> list[str]:
    """What the state_dict holds; a module that refers to its parent has none."""
    buffers = [
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        for name, buffer in module._buffers.items()
        if buffer is not None and name not in module._non_persistent_buffers_set
    ]
    return [*dict(model.named_parameters(remove_duplicate=False)), *buffers]


def _tied(parameters: Mapping[str, Tensor], fitting: Fitting) -> tuple[str, ...]:
    head, embedding = fitting.layout.slot_of(_HEAD), fitting.layout.slot_of("embed.W_E")
    if not fitting.tied or embedding is None:
        return ()
    return (f"{head.key if head else 'the head'} is tied to {embedding.key}",)


def _owner(key: str) -> str:
    return key.rpartition(".")[0]


def is_same(yours: Tensor, reference: Tensor) -> bool:
    """Whether a parameter holds the reference's values, rounded to its own dtype."""
    if yours.shape != reference.shape:
        return False
    # A parameter of fewer digits holds a value that was rounded to them.
    held, given = whole_of(yours.detach()), reference.detach().to(yours.device, yours.dtype)
    return held.data_ptr() == given.data_ptr() or torch.equal(held, given)
