"""The installed transformer_lens as a Reference."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor

from shapetrace.errors import ShapetraceError
from shapetrace.gpt2.config import Config
from shapetrace.reference.bridge import build_bridge
from shapetrace.reference.hooked import build_hooked
from shapetrace.reference.reference import LensReference, Reference


def build_reference(
    config: Config, state: dict[str, Tensor], weights: str = "", device: torch.device | None = None
) -> Reference:
    """transformer_lens at these sizes with these weights, whichever generation is installed, on that device or the CPU.

    state: TransformerLens names to tensors, all of one dtype; used up, as the reference may hold the tensors.
    Raises ShapetraceError where no generation from 3.9 to 4 is installed, or where heads do not make up d_model: the
    bridge is built over Hugging Face's GPT-2, which has n_heads * d_head = d_model.
    """
    installed = installed_version()
    dtype = next(iter(state.values())).dtype
    name = f"transformer_lens {installed}"
    with _quietly():
        if installed.startswith("3."):
            hooked = build_hooked(config, state, dtype).to(device or "cpu")
            return LensReference(name, "HookedTransformer", config, weights, hooked, hooked.state_dict)
        if config.n_heads * config.d_head != config.d_model:
            raise ShapetraceError(
                f"{name} has no GPT-2 with n_heads * d_head = {config.n_heads * config.d_head} "
                f"and d_model = {config.d_model}",
                "choose sizes where they are equal, or install transformer-lens 3.9",
            )
        bridge = build_bridge(config, state, dtype).to(device or "cpu")
        return LensReference(name, "TransformerBridge", config, weights, bridge, bridge.tl_parameters)


def installed_version() -> str:
    """The version of transformer_lens; raises ShapetraceError for one that cannot be a reference."""
    try:
        installed = version("transformer-lens")
    except PackageNotFoundError:
        raise ShapetraceError("transformer_lens is not installed", "pip install 'transformer-lens>=3.9,<5'") from None
    major, minor = (int(part) for part in installed.split(".")[:2])
    if (major, minor) < (3, 9) or major > 4:
        raise ShapetraceError(
            f"transformer_lens {installed} is installed; a diff is known to be right with 3.9 to 4",
            "pip install 'transformer-lens>=3.9,<5'",
        )
    return installed


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """What transformer_lens prints, logs and draws while it builds is its own affair."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        with contextlib.redirect_stdout(io.StringIO()), torch.random.fork_rng(devices=[]):
            yield
    finally:
        logging.disable(before)
