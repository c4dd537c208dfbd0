"""Run compiled modules as they are written, so that their tensors can be seen."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext

import torch


def running_eagerly() -> AbstractContextManager[None]:
    """Inside, torch.compile stands aside; to import it is slow, and before anyone has, nothing is compiled."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance
