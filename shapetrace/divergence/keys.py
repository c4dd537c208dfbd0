"""Put the reference's weights into a model, and say what went where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from shapetrace.report import KeyReport


def compare_keys(model: nn.Module, state: Mapping[str, Tensor]) -> KeyReport:
    """How the state fits the model, and which parameters hold other values than it does."""
    own = model.state_dict(keep_vars=True)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    fitting = [key for key in own if key in state and own[key].shape == state[key].shape]
    return KeyReport(
        loaded=len(fitting),
        missing=tuple(key for key in own if key not in state and key in parameters),
        unexpected=tuple(key for key in state if key not in own),
        mismatched=tuple(
            f"{key}: yours {tuple(own[key].shape)}, reference {tuple(state[key].shape)}"
            for key in own
            if key in state and own[key].shape != state[key].shape
        ),
        buffers=tuple(key for key in own if key not in state and key not in parameters),
        different=tuple(key for key in fitting if key in parameters and not _same(own[key], state[key])),
    )


@contextmanager
def holding(model: nn.Module, state: Mapping[str, Tensor]) -> Iterator[None]:
    """Inside, the model holds the state's own tensors, where it has places for them; afterwards what it held."""
    before = [(each, dict(each._parameters), dict(each._buffers)) for each in model.modules()]
    own = model.state_dict()
    fitting = {key: tensor for key, tensor in state.items() if key in own and own[key].shape == tensor.shape}
    model.load_state_dict(fitting, strict=False, assign=True)
    try:
        yield
    finally:
        for module, parameters, buffers in before:
            module._parameters.update(parameters)
            module._buffers.update(buffers)


def _same(yours: Tensor, reference: Tensor) -> bool:
    return yours.data_ptr() == reference.data_ptr() or torch.equal(
        yours.detach().to(reference.dtype), reference.detach()
    )
