"""Run compiled modules as they are written, so that their tensors can be seen."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn


def running_eagerly(model: nn.Module) -> AbstractContextManager[None]:
    """Inside, torch.compile stands aside; to import it is slow, so only where someone has compiled something."""
    compiled = any(getattr(module, "_compiled_call_impl", None) is not None for module in model.modules())
    if not compiled and "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance
