"""The modular GPT-2, at the sizes of a preset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from shapetrace.errors import ShapetraceError, WeightsError
from shapetrace.gpt2 import Config, Transformer
from shapetrace.initialising import WithoutInitialising
from shapetrace.meta import on_meta
from shapetrace.target.target import Advance, Note, Target, ignore_advance
from shapetrace.weights.loading import fit_weights, read_weights
from shapetrace.weights.presets import AnyConfig, Preset, configure, find_preset, same_sizes, unlike_gpt2
from shapetrace.weights.pretrained import find_pretrained
from shapetrace.weights.seeded import draw_weights, seeded_state


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A preset, and the config that the settings make of it."""

    preset: Preset
    config: Config

    @classmethod
    def parse(cls, name: str, settings: tuple[str, ...] = ()) -> BuiltIn:
        """Raises ShapetraceError for an unknown model or setting."""
        preset = find_preset(name)
        assert isinstance(preset.config, Config)
        return cls(preset, configure(preset.config, settings))

    def outline(self, seed: int = 0, meta: bool = False) -> Target:
        """Shapes only, without any memory; raises ShapetraceError where no tensor can have them."""
        return outline(self.preset.name, lambda: Transformer(self.config))

    def complete(self, outline: Target, weights: str, seed: int, note: Note, advance: Advance) -> Target:
        """The model with its weights; see `find_weights` for what they can be."""
        file, origin = find_file(self.preset, self.config, weights, note)
        assert isinstance(outline.model, Transformer)
        state = fit_weights(outline.model, read_weights(file), origin) if file is not None else None
        with checking_memory(outline.model), WithoutInitialising():
            model = Transformer(self.config).eval()
            if state is None:
                draw_weights(model, seed, advance)
                return Target(self.preset.name, model, f"random (seed {seed})")
        model.load_state_dict(state, strict=False, assign=True)
        return Target(self.preset.name, model, origin, True)

    def find_weights(
        self,
        outline: nn.Module,
        weights: str,
        seed: int,
        note: Note,
        advance: Advance = ignore_advance,
        dtype: torch.dtype = torch.float32,
    ) -> tuple[dict[str, Tensor], str]:
        """A tensor for each parameter of the model, and where they came from in words.

        weights: `auto` takes the pretrained ones where they can be had within seconds and the sizes are theirs, and
        else draws random ones; `pretrained` insists; `random` never asks the network; anything else is the path of a
        safetensors file.
        Raises WeightsError for weights that cannot be had or do not fit.
        """
        file, origin = find_file(self.preset, self.config, weights, note)
        if file is not None:
            assert isinstance(outline, Transformer)
            state = fit_weights(outline, read_weights(file), origin)
            return {key: tensor.to(dtype) for key, tensor in state.items()}, origin
        with checking_memory(outline, dtype):
            return seeded_state(self.config, seed, dtype, advance), f"random (seed {seed})"


def outline(name: str, build: Callable[[], nn.Module]) -> Target:
    """What `build` makes, without any memory; raises ShapetraceError for sizes that no model can have."""
    try:
        with on_meta():
            return Target(name, build().eval(), "none (shapes only)")
    except ValueError as error:  # sizes that do not go together
        raise ShapetraceError(str(error), "choose others with `--set`") from None
    except (OverflowError, RuntimeError, TypeError):  # a number of entries that does not fit into 64 bits
        raise ShapetraceError("no tensor can have these sizes", "choose smaller ones with `--set`") from None


@contextmanager
def checking_memory(model: nn.Module, dtype: torch.dtype = torch.float32) -> Iterator[None]:
    """Inside, memory for the model's weights is taken; raises WeightsError where there is not enough."""
    try:
        yield
    except (MemoryError, RuntimeError):
        size = sum(each.numel() * dtype.itemsize for each in model.parameters())
        raise WeightsError(
            f"{size:,} bytes of weights do not fit into memory", "see the shapes with `--meta`"
        ) from None


def find_file(preset: Preset, config: AnyConfig, weights: str, note: Note) -> tuple[Path | None, str]:
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
        if unlike_gpt2(config):
            raise WeightsError(
                f"no pretrained weights are for {', '.join(unlike_gpt2(config))}",
                "leave `--set` out, or use `--weights random`",
            )
        return find_pretrained(preset), f"pretrained ({preset.repositories[0]})"
    except WeightsError as error:
        if weights == "pretrained":
            raise
        note(f"{error.message}; going on with random weights")
        return None, ""
