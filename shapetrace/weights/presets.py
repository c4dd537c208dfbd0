"""The four published GPT-2s: their sizes, and the repository that holds each."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from shapetrace.errors import ShapetraceError, suggest
from shapetrace.gpt2.config import Config

# What a size changes in the shape of some weight; `debug`, eps and init_range fit any weights.
_SIZES = ("d_model", "d_vocab", "n_ctx", "d_head", "d_mlp", "n_heads", "n_layers")


@dataclass(frozen=True, slots=True)
class Preset:
    """A built-in model."""

    name: str
    config: Config
    repositories: tuple[str, ...]  # on the Hugging Face hub, the current name first


def _preset(name: str, repository: str, layers: int, heads: int, width: int) -> Preset:
    """Sizes after Radford et al. 2019, table 2; d_head is 64 and d_mlp is 4 * d_model in all of them."""
    config = Config(n_layers=layers, n_heads=heads, d_model=width, d_mlp=4 * width)
    return Preset(name, config, (f"openai-community/{repository}", repository))


PRESETS = {
    preset.name: preset
    for preset in (
        _preset("gpt2-small", "gpt2", 12, 12, 768),
        _preset("gpt2-medium", "gpt2-medium", 24, 16, 1024),
        _preset("gpt2-large", "gpt2-large", 36, 20, 1280),
        _preset("gpt2-xl", "gpt2-xl", 48, 25, 1600),
    )
}


_LARGEST = 10_000_000  # no size of any model comes near


def find_preset(name: str) -> Preset:
    """The built-in of that name; raises ShapetraceError where there is none."""
    if name not in PRESETS:
        raise ShapetraceError(f"there is no built-in model `{name}`", suggest(name, PRESETS))
    return PRESETS[name]


def configure(config: Config, settings: tuple[str, ...]) -> Config:
    """The config with `field=value` settings applied, such as `n_layers=2`.

    Raises ShapetraceError for a field that does not exist or a value that it cannot take.
    """
    kinds = {each.name: type(getattr(config, each.name)) for each in fields(config)}
    changes: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals:
            raise ShapetraceError(f"`{setting}` sets nothing", "write FIELD=VALUE, such as n_layers=2")
        if name not in kinds:
            raise ShapetraceError(f"a config has no field `{name}`", suggest(name, kinds))
        changes[name] = _read_value(name, kinds[name], text)
    return replace(config, **changes)


def same_sizes(config: Config, preset: Preset) -> bool:
    """Whether weights made for the preset fit this config."""
    return all(getattr(config, size) == getattr(preset.config, size) for size in _SIZES)


def explain_count(config: Config, parameters: int) -> str:
    """Why the modular GPT-2 has more parameters than the number that GPT-2 is known by."""
    usual = parameters - config.d_vocab * (config.d_model + 1)
    return (
        f"Usually counted as {usual:,}: there W_U is W_E transposed and counted once, and there is no b_U. "
        "Here, as in TransformerLens, both are tensors of their own."
    )


def _read_value(name: str, kind: type, text: str) -> int | float | bool:
    expected = {int: f"a whole number from 1 to {_LARGEST:,}", float: "a number from 0 up", bool: "true or false"}[kind]
    try:
        value = {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        value = None
    limits = {int: (1, _LARGEST), float: (0.0, 1e300), bool: (False, True)}[kind]
    if value is None or not limits[0] <= value <= limits[1]:
        raise ShapetraceError(f"`{name}` is {expected}, not `{text}`", f"for example `--set {name}={_EXAMPLES[kind]}`")
    return value


_EXAMPLES = {int: "4", float: "1e-5", bool: "true"}
