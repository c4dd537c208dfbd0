"""The fused decoder, at the sizes of a preset."""

from __future__ import annotations

from dataclasses import dataclass

from shapetrace.forge import Config, Transformer
from shapetrace.initialising import WithoutInitialising
from shapetrace.target.built_in import checking_memory, find_file, outline
from shapetrace.target.target import Advance, Note, Target
from shapetrace.weights.loading import load_weights, read_weights
from shapetrace.weights.presets import Preset, configure, find_preset
from shapetrace.weights.seeded import draw_weights


@dataclass(frozen=True, slots=True)
class Forge:
    """A preset, and the config that the settings make of it."""

    preset: Preset
    config: Config

    @classmethod
    def parse(cls, name: str, settings: tuple[str, ...] = ()) -> Forge:
        """Raises ShapetraceError for an unknown model or setting."""
        preset = find_preset(name)
        assert isinstance(preset.config, Config)
        return cls(preset, configure(preset.config, settings))

    def outline(self, seed: int = 0, meta: bool = False) -> Target:
        """Shapes only, without any memory; raises ShapetraceError for sizes that no forge can have."""
        return outline(self.preset.name, lambda: Transformer(self.config))

    def complete(self, outline: Target, weights: str, seed: int, note: Note, advance: Advance) -> Target:
        """The model with its weights: GPT-2's pretrained ones, random ones, or those of a file in any known layout.

        Raises WeightsError for weights that cannot be had or do not fit.
        """
        file, origin = find_file(self.preset, self.config, weights, note)
        with checking_memory(outline.model), WithoutInitialising():
            model = Transformer(self.config).eval()
        if file is None:
            draw_weights(model, seed, advance)
            return Target(self.preset.name, model, f"random (seed {seed})")
        load_weights(model, read_weights(file), origin, _explain)
        return Target(self.preset.name, model, origin, True)


def _explain(missing: list[str], unexpected: list[str], mismatched: list[str]) -> str:
    """Weights of another forge, or of no GPT-2 at all, where every name is another one."""
    if missing and unexpected and not mismatched and not any(name.startswith("layers.") for name in unexpected):
        return "a file has the forge's names (token_embedding.weight), or GPT-2's weights in another known layout"
    return (
        "say with `--set` what the weights were made with, such as `--set n_layers=2`, `--set activation=swiglu` or "
        "`--set use_bias=false`"
    )
