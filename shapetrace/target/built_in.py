"""The modular GPT-2, at the sizes of a preset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from shapetrace.errors import ShapetraceError, WeightsError
from shapetrace.gpt2 import Config, Transformer
from shapetrace.target.target import Advance, Note, Target, ignore_advance
from shapetrace.weights.loading import fit_weights, read_weights
from shapetrace.weights.presets import Preset, configure, find_preset, same_sizes
from shapetrace.weights.pretrained import find_pretrained
from shapetrace.weights.seeded import WithoutInitialising, seeded_state


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A preset, and the config that the settings make of it."""

    preset: Preset
    config: Config

    @classmethod
    def parse(cls, name: str, settings: tuple[str, ...] = ()) -> BuiltIn:
        """Raises ShapetraceError for an unknown model or setting."""
        preset = find_preset(name)
        return cls(preset, configure(preset.config, settings))

    def outline(self, seed: int = 0, meta: bool = False) -> Target:
        """Shapes only, without any memory; raises ShapetraceError where no tensor can have them."""
        try:
            with torch.device("meta"):
                return Target(self.preset.name, Transformer(self.config).eval(), "none (shapes only)")
        except (OverflowError, RuntimeError, TypeError):  # a number of entries that does not fit into 64 bits
            raise ShapetraceError("no tensor can have these sizes", "choose smaller ones with `--set`") from None

    def complete(self, outline: Target, weights: str, seed: int, note: Note, advance: Advance) -> Target:
        """The model with its weights; see `find_weights` for what they can be."""
        state, origin = self.find_weights(outline.model, weights, seed, note, advance)
        with WithoutInitialising():
            model = Transformer(self.config).eval()
        model.load_state_dict(state, strict=False, assign=True)
        return Target(self.preset.name, model, origin, not origin.startswith("random"))

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
        file, origin = self._find_file(weights, note)
        if file is not None:
            assert isinstance(outline, Transformer)
            state = fit_weights(outline, read_weights(file), origin)
            return {key: tensor.to(dtype) for key, tensor in state.items()}, origin
        try:
            return seeded_state(self.config, seed, dtype, advance), f"random (seed {seed})"
        except (MemoryError, RuntimeError):
            size = sum(each.numel() * dtype.itemsize for each in outline.parameters())
            raise WeightsError(
                f"{size:,} bytes of weights do not fit into memory", "see the shapes with `--meta`"
            ) from None

    def _find_file(self, weights: str, note: Note) -> tuple[Path | None, str]:
        """The file that holds the weights and what to call it; no file for random ones."""
        if weights == "random":
            return None, ""
        if weights not in ("auto", "pretrained"):
            return Path(weights), Path(weights).resolve().name
        try:
            if not same_sizes(self.config, self.preset):
                raise WeightsError(
                    f"no pretrained weights have these sizes, which are not {self.preset.name}'s",
                    "leave `--set` out, or use `--weights random`",
                )
            return find_pretrained(self.preset), f"pretrained ({self.preset.repositories[0]})"
        except WeightsError as error:
            if weights == "pretrained":
                raise
            note(f"{error.message}; going on with random weights")
            return None, ""
