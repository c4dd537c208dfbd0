"""Short inputs that a model of transformers might take, made from its configuration, likeliest first."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

LENGTH = 7
Inputs = dict[str, Tensor]


def likely_inputs(model: nn.Module) -> Iterator[Inputs]:
    """What the forward knows the names of."""
    parameters = inspect.signature(model.forward).parameters.values()
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    names = {each.name for each in parameters}
    for inputs in _guesses(model):
        if names.issuperset(inputs) or (takes_any and len(inputs) == 1):
            yield inputs


def _guesses(model: nn.Module) -> Iterator[Inputs]:
    """Texts, images, sounds or other numbers, as `main_input_name` says, with whatever else the forward insists on."""
    config, main = model.config, model.main_input_name
    extra = _demanded(model)
    text = _text(model) | extra
    makers = {"input_ids": _texts, "pixel_values": _images, "pixel_values_videos": _images}
    for each in makers.get(main, _sounds)(model, main):
        yield each | {name: value for name, value in extra.items() if name not in each}
        if main != "input_ids":
            yield each | {"decoder_input_ids": text["input_ids"]}
            yield each | text
    if setting(config, "image_size", "patch_size"):
        yield from (text | each for each in _images(model, "pixel_values"))
    if setting(config, "num_mel_bins"):
        yield from (text | each for each in _sounds(model, "input_features"))


def setting(config: PretrainedConfig, *names: str) -> Any:
    """The first of these fields that the configuration, or a part of it, has."""
    parts = list(parts_of(config))
    return next((vars(part)[name] for name in names for part in parts if vars(part).get(name)), None)


def parts_of(config: PretrainedConfig) -> Iterator[PretrainedConfig]:
    """The configuration and those in it, each level before the next."""
    level = [config]
    while level:
        yield from level
        level = [inner for each in level for inner in vars(each).values() if isinstance(inner, PretrainedConfig)]


def _text(model: nn.Module) -> Inputs:
    text = {"input_ids": torch.arange(11, 11 + LENGTH)[None]}
    if model.config.is_encoder_decoder:
        text["decoder_input_ids"] = torch.arange(21, 21 + LENGTH - 2)[None]
    return text


def _texts(model: nn.Module, main: str) -> Iterator[Inputs]:
    text = _text(model)
    yield text
    books = setting(model.config, "num_codebooks", "num_channels")
    if books:
        ids = text[main]
        for shape in ((books, LENGTH), (1, books, LENGTH), (1, LENGTH, books)):
            several = ids if shape[-1] == LENGTH else ids[..., None]
            yield {name: several.expand(shape) for name in text}


def _images(model: nn.Module, main: str) -> Iterator[Inputs]:
    config = model.config
    channels = setting(config, "num_channels", "in_channels", "in_chans")
    channels = channels if isinstance(channels, int) else 3
    size = setting(config, "image_size", "img_size", "input_size", "crop_size")
    size = list(size.values()) if isinstance(size, dict) else size
    size = tuple(size[-2:]) if isinstance(size, list | tuple) and len(size) > 1 else (size, size)
    frames = setting(config, "num_frames", "frames_per_clip") or 2
    for high, wide in dict.fromkeys((size, (64, 64), (224, 224))):
        if isinstance(high, int) and isinstance(wide, int):
            yield {main: torch.randn(1, channels, high, wide)}
            yield {main: torch.randn(1, frames, channels, high, wide)}


def _sounds(model: nn.Module, main: str) -> Iterator[Inputs]:
    """Waves, spectrograms whichever way round, and series of time."""
    config = model.config
    bins = setting(
        config,
        "feature_projection_input_dim",
        "num_mel_bins",
        "input_feat_per_channel",
        "feature_size",
        "input_dim",
        "num_input_channels",
    )
    bins = bins if isinstance(bins, int) else 80
    frames = setting(config, "max_source_positions", "max_length")
    lengths = [2 * frames] if isinstance(frames, int) else []
    lengths += [each for each in (setting(config, "context_length"), 100, 1024) if isinstance(each, int)]
    shapes = [(1, 4000), (1, 1, 4000), (1, 1, 24000)]
    shapes += [shape for length in lengths for shape in ((1, bins, length), (1, length, bins), (1, 1, length, bins))]
    for shape in shapes:
        yield {main: torch.randn(shape)}


def _demanded(model: nn.Module) -> Inputs:
    """What the forward has no default for, and a box around each token where boxes are known at all."""
    parameters = inspect.signature(model.forward).parameters.values()
    named = [each.name for each in parameters if each.default is each.empty or each.name in ("bbox", "input_boxes")]
    made = {name: _make(name, model) for name in named if name != model.main_input_name}
    return {name: value for name, value in made.items() if value is not None}


def _make(name: str, model: nn.Module) -> Tensor | None:
    config = model.config
    width = setting(config, "hidden_size", "d_model", "embed_dim") or 32
    if name.endswith("input_ids"):
        return torch.arange(11, 11 + LENGTH)[None]
    if name in ("bbox", "input_boxes"):
        return torch.arange(4).expand(1, LENGTH, 4)
    if "mask" in name:
        return torch.ones(1, LENGTH, dtype=torch.long)
    if name.endswith(("embeds", "hidden_states", "embeddings")):
        patch = _entries_of_a_patch(model)
        return (
            torch.randn(16, patch)
            if "grid_thw" in inspect.signature(model.forward).parameters
            else torch.randn(1, LENGTH, width)
        )
    if name.endswith("grid_thw"):
        return torch.tensor([[1, 4, 4]])
    if name.startswith("pixel_values"):
        return next(_images(model, name))[name]
    if name.startswith("input_features"):
        return next(_sounds(model, name))[name]
    return None


def _entries_of_a_patch(model: nn.Module) -> int:
    """Of a patch that is given flat, with its frames."""
    config = model.config
    sides = [setting(config, "in_channels", "num_channels") or 3, setting(config, "temporal_patch_size") or 1]
    patch = setting(config, "patch_size") or 8
    entries = patch * patch
    for each in sides:
        entries *= each if isinstance(each, int) else 1
    return entries
