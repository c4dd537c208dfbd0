"""A model as it is named on the command line, built and with weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from shapetrace.errors import ShapetraceError, WeightsError
from shapetrace.gpt2 import Config, Transformer
from shapetrace.weights.loading import fit_weights, read_weights
from shapetrace.weights.presets import Preset, configure, find_preset, same_sizes
from shapetrace.weights.pretrained import find_pretrained
from shapetrace.weights.seeded import WithoutInitialising, seeded_state


@dataclass(frozen=True, slots=True)
class Target:
    """A model that is ready to run."""

    name: str
    model: Transformer
    weights: str  # where the values came from, in words
    are_trained: bool  # whether its predictions mean anything

    @property
    def config(self) -> Config:
        return self.model.cfg


def build_on_meta(name: str, settings: tuple[str, ...] = ()) -> Target:
    """The model without any memory behind its weights: shapes only, at any size.

    Raises ShapetraceError for an unknown model or setting.
    """
    config = configure(find_preset(name).config, settings)
    try:
        with torch.device("meta"):
            return Target(name, Transformer(config).eval(), "none (shapes only)", False)
    except (OverflowError, RuntimeError, TypeError):  # a number of entries that does not fit into 64 bits
        raise ShapetraceError("no tensor can have these sizes", "choose smaller ones with `--set`") from None


def build_target(
    name: str,
    settings: tuple[str, ...] = (),
    weights: str = "auto",
    seed: int = 0,
    note: Callable[[str], None] = lambda text: None,
    advance: Callable[[int], None] = lambda entries: None,
) -> Target:
    """The model with its weights; see `find_weights` for what they can be.

    Raises ShapetraceError for an unknown model or setting, WeightsError for weights that cannot be had or do not fit.
    """
    state, origin = find_weights(name, settings, weights, seed, note, advance)
    with WithoutInitialising():
        model = Transformer(configure(find_preset(name).config, settings)).eval()
    model.load_state_dict(state, strict=False, assign=True)
    return Target(name, model, origin, not origin.startswith("random"))


def find_weights(
    name: str,
    settings: tuple[str, ...] = (),
    weights: str = "auto",
    seed: int = 0,
    note: Callable[[str], None] = lambda text: None,
    advance: Callable[[int], None] = lambda entries: None,
    dtype: torch.dtype = torch.float32,
) -> tuple[dict[str, Tensor], str]:
    """A tensor for each parameter of the model, and where they came from in words.

    weights: `auto` takes the pretrained ones where they can be had within seconds and the sizes are theirs, and else
    draws random ones; `pretrained` insists; `random` never asks the network; anything else is the path of a safetensors
    file. `note` is told what the reader of the result should know, `advance` the entries drawn so far.
    """
    preset = find_preset(name)
    config = configure(preset.config, settings)
    file, origin = _find_file(weights, preset, config, note)
    if file is None:
        try:
            return seeded_state(config, seed, dtype, advance), f"random (seed {seed})"
        except (MemoryError, RuntimeError):
            size = count_of_bytes(build_on_meta(name, settings).model)
            raise WeightsError(
                f"{size:,} bytes of weights do not fit into memory", "see the shapes with `--meta`"
            ) from None
    state = fit_weights(build_on_meta(name, settings).model, read_weights(file), origin)
    return {key: tensor.to(dtype) for key, tensor in state.items()}, origin


def _find_file(weights: str, preset: Preset, config: Config, note: Callable[[str], None]) -> tuple[Path | None, str]:
    """The file that holds the weights and what to call it; no file for random ones."""
    if weights == "random":
        return None, ""
    if weights not in ("auto", "pretrained"):
        return Path(weights), Path(weights).resolve().name
    try:
        if not same_sizes(config, preset):
            raise WeightsError(
                f"no pretrained weights have these sizes, which are not {preset.name}'s",
                "leave `--set` out, or use `--weights random`",
            )
        return find_pretrained(preset), f"pretrained ({preset.repositories[0]})"
    except WeightsError as error:
        if weights == "pretrained":
            raise
        note(f"{error.message}; going on with random weights")
        return None, ""


def count_of_bytes(model: Transformer) -> int:
    """Memory that the parameters take, or would take."""
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
