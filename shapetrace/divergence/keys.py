"""Put the reference's weights into a model, and say what went where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from shapetrace.report import KeyReport


def compare_keys(model: nn.Module, state: Mapping[str, Tensor]) -> KeyReport:
    """How the state fits the model's parameters, and which of them hold other values than it does."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    own = model.state_dict(keep_vars=True)
    fitting = [name for name, each in parameters.items() if name in state and each.shape == state[name].shape]
    return KeyReport(
        loaded=len(fitting),
        missing=tuple(name for name in parameters if name not in state),
        unexpected=tuple(key for key in state if key not in own),
        mismatched=tuple(
            f"{name}: yours {tuple(each.shape)}, reference {tuple(state[name].shape)}"
            for name, each in parameters.items()
            if name in state and each.shape != state[name].shape
        ),
        buffers=tuple(key for key in own if key not in parameters and key not in state),
        different=tuple(name for name in fitting if not _same(parameters[name], state[name])),
    )


@contextmanager
def holding(model: nn.Module, state: Mapping[str, Tensor], share: bool = False) -> Iterator[None]:
    """Inside, the model's parameters hold the state's values, where it has any for them; afterwards what they held.

    share: they hold the state's own tensors, and not copies. Code that writes to its weights then writes to the state.
    Buffers stay as they are: they are the model's own constants, and may be what is wrong with it.
    """
    lent = [
        (parameter, parameter.data, state[name])
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if name in state and parameter.shape == state[name].shape
    ]
    # The Parameter objects stay: the model may know them by other names than its own.
    for parameter, _, value in lent:
        parameter.data = (
            value.detach().to(parameter.device) if share else value.detach().to(parameter.device, copy=True)
        )
    try:
        yield
    finally:
        for parameter, own, _ in reversed(lent):
            parameter.data = own


def _same(yours: Tensor, reference: Tensor) -> bool:
    return yours.data_ptr() == reference.data_ptr() or torch.equal(
        yours.detach().to(reference.dtype), reference.detach()
    )
