"""The built-in models: the four published GPT-2s, modular and as a forge, and the repository that holds each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from shapetrace import forge
from shapetrace.errors import ShapetraceError, suggest
from shapetrace.gpt2.config import Config

AnyConfig = Config | forge.Config
_Config = TypeVar("_Config", Config, forge.Config)

# What a size changes in the shape of some weight; `debug`, eps and init_range fit any weights.
_SIZES = ("d_model", "d_vocab", "n_ctx", "d_head", "d_mlp", "n_heads", "n_layers")
# What makes a forge compute something else.
_OPTIONS = ("activation", "positions", "use_bias", "scale_embedding")


@dataclass(frozen=True, slots=True)
class Preset:
    """A built-in model."""

    name: str
    config: AnyConfig
    repositories: tuple[str, ...]  # on the Hugging Face hub, the current name first


def _presets(size: str, repository: str, layers: int, heads: int, width: int) -> tuple[Preset, Preset]:
    """Sizes after Radford et al. 2019, table 2; d_head is 64 and d_mlp is 4 * d_model in all of them."""
    repositories = (f"openai-community/{repository}", repository)
    modular = Config(n_layers=layers, n_heads=heads, d_model=width, d_mlp=4 * width)
    fused = forge.Config(n_layers=layers, n_heads=heads, d_model=width)
    return Preset(f"gpt2-{size}", modular, repositories), Preset(f"forge-{size}", fused, repositories)


PRESETS = {
    preset.name: preset
    for pair in (
        _presets("small", "gpt2", 12, 12, 768),
        _presets("medium", "gpt2-medium", 24, 16, 1024),
        _presets("large", "gpt2-large", 36, 20, 1280),
        _presets("xl", "gpt2-xl", 48, 25, 1600),
    )
    for preset in pair
}


_LARGEST = 10_000_000  # no size of any model comes near
_MOST_LAYERS = 10_000  # nor to this; each is a dozen modules to build


def find_preset(name: str) -> Preset:
    """The built-in of that name; raises ShapetraceError where there is none."""
    if name not in PRESETS:
        raise ShapetraceError(f"there is no built-in model `{name}`", suggest(name, PRESETS))
    return PRESETS[name]


def configure(config: _Config, settings: tuple[str, ...]) -> _Config:
    """The config with `field=value` settings applied, such as `n_layers=2`.

    Raises ShapetraceError for a field that does not exist or a value that it cannot take.
    """
    kinds = get_type_hints(type(config))
    changes: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals:
            raise ShapetraceError(f"`{setting}` sets nothing", "write FIELD=VALUE, such as n_layers=2")
        if name not in kinds:
            raise ShapetraceError(f"a config has no field `{name}`", suggest(name, kinds))
        changes[name] = _read_value(name, kinds[name], text)
    return replace(config, **changes)


def gpt2_sizes(config: AnyConfig) -> dict[str, int]:
    """Its sizes under the names of GPT-2's."""
    own = {size: getattr(config, size, None) for size in _SIZES}
    if isinstance(config, forge.Config):
        own |= {"d_head": config.d_model // config.n_heads, "d_mlp": config.mlp_width()}
    return {size: int(value) for size, value in own.items() if value is not None}


def unlike_gpt2(config: AnyConfig) -> list[str]:
    """The options by which a forge computes something else than GPT-2, such as `activation=relu`."""
    default = forge.Config()
    return [
        f"{option}={str(getattr(config, option)).lower()}"
        for option in (_OPTIONS if isinstance(config, forge.Config) else ())
        if getattr(config, option) != getattr(default, option)
    ]


def same_sizes(config: AnyConfig, preset: Preset) -> bool:
    """Whether weights made for the preset fit this config."""
    return gpt2_sizes(config) == gpt2_sizes(preset.config)


def explain_count(config: Config, parameters: int) -> str:
    """Why the modular GPT-2 has more parameters than the number that GPT-2 is known by."""
    usual = parameters - config.d_vocab * (config.d_model + 1)
    return (
        f"Usually counted as {usual:,}: there W_U is W_E transposed and counted once, and there is no b_U. "
        "Here, as in TransformerLens, both are tensors of their own."
    )


def _read_value(name: str, kind: Any, text: str) -> int | float | bool | str:
    if get_origin(kind) is Literal:
        words = get_args(kind)
        if text not in words:
            raise ShapetraceError(f"`{name}` is one of {', '.join(words)}, not `{text}`", suggest(text, words))
        return text
    kind = get_args(kind)[0] if isinstance(kind, UnionType) else kind  # None is for what was not set
    largest = _MOST_LAYERS if name == "n_layers" else _LARGEST
    expected = {int: f"a whole number from 1 to {largest:,}", float: "a number from 0 up", bool: "true or false"}[kind]
    try:
        value = {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        value = None
    limits = {int: (1, largest), float: (0.0, 1e300), bool: (False, True)}[kind]
    if value is None or not limits[0] <= value <= limits[1]:
        raise ShapetraceError(f"`{name}` is {expected}, not `{text}`", f"for example `--set {name}={_EXAMPLES[kind]}`")
    return value


_EXAMPLES = {int: "4", float: "1e-5", bool: "true"}
