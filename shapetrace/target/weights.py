"""Weights for a model that was built already."""

from __future__ import annotations

from pathlib import Path

from shapetrace.errors import WeightsError
from shapetrace.target.target import Advance, Note, Target
from shapetrace.weights.loading import load_weights, read_weights
from shapetrace.weights.seeded import draw_weights


def give_weights(outline: Target, weights: str, seed: int, note: Note, advance: Advance) -> Target:
    """A model that was built already with these weights: `auto`, `random`, or the path of a safetensors file.

    Raises WeightsError for a file that does not fit, and for `pretrained`, which this model cannot have.
    """
    model = outline.model
    if weights == "auto":
        return outline
    if weights == "pretrained":
        raise WeightsError(
            f"shapetrace knows of no pretrained weights for {outline.name}", "give the path of a .safetensors file"
        )
    if weights == "random":
        draw_weights(model, seed, advance)
        return Target(outline.name, model, f"random (seed {seed})")
    file = Path(weights)
    absent = load_weights(model, read_weights(file), file.name)
    if absent:
        note(f"{file.name} has no {', '.join(absent[:4])}{', ...' if absent[4:] else ''}: kept as built")
    return Target(outline.name, model, file.resolve().name, True)
