"""What a model could be called with, as a guess for a message: read off its config or its first layer."""

from __future__ import annotations

from typing import Any

from torch import nn


def first_layer(model: nn.Module) -> nn.Module | None:
    """The first layer of a kind that says what it takes."""
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.RNNBase, nn.Embedding)
    return next((module for module in model.modules() if isinstance(module, kinds)), None)


def example_for(model: nn.Module) -> str:
    """A shape that the first layer takes."""
    module = first_layer(model)
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return f"float32[{','.join(map(str, (1, module.in_channels, *[32] * len(module.kernel_size))))}]"
    if isinstance(module, nn.Linear):
        return f"float32[1,{module.in_features}]"
    if isinstance(module, nn.RNNBase):
        return f"float32[1,7,{module.input_size}]"
    if isinstance(module, nn.Embedding):
        return f"int64[1,7]<{module.num_embeddings}"
    return "float32[1,7]"


def example_of_main(model: nn.Module, main: str) -> str:
    """A shape for the main input of one of transformers' models, from its config."""
    if main == "pixel_values":
        sizes = _find(model, "image_size") or 224
        height, width = sizes if isinstance(sizes, list | tuple) and len(sizes) == 2 else (sizes, sizes)
        frames = _find(model, "num_frames")
        shape = (1, *((frames,) if frames else ()), _find(model, "num_channels") or 3, height, width)
    elif main == "input_values":  # a spectrogram, or a second of sound
        bins, length = _find(model, "num_mel_bins"), _find(model, "max_length")
        shape = (1, length, bins) if bins and length else (1, 16000)
    elif main == "input_features":
        bins, positions = _find(model, "num_mel_bins"), _find(model, "max_source_positions")
        width = _find(model, "input_feat_per_channel") or _find(model, "feature_projection_input_dim") or bins or 80
        # Whisper's encoder halves the length, and takes nothing shorter than its longest.
        shape = (1, bins, 2 * positions) if bins and positions else (1, 100, width)
    else:
        return example_for(model)
    return f"float32[{','.join(map(str, shape))}]"


def _find(model: nn.Module, field: str) -> Any:
    """The field of the model's config, or of a part of that."""
    config = getattr(model, "config", None)
    parts = [getattr(config, each, None) for each in ("vision_config", "audio_config", "encoder", "backbone_config")]
    return next((getattr(each, field) for each in (config, *parts) if getattr(each, field, None)), None)
