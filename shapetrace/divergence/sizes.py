"""The layout and the sizes of a model, read off its parameters and its config."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import nn

from shapetrace.errors import ShapetraceError
from shapetrace.gpt2.config import Config
from shapetrace.weights.layouts import Layout, find_layout, layout_from_map, read_map

# By our name for a size: what configs call it.
_SYNONYMS = {
    "n_layers": ("n_layers", "n_layer", "num_layers", "num_hidden_layers", "depth"),
    "n_heads": ("n_heads", "n_head", "num_heads", "num_attention_heads", "heads"),
    "d_model": ("d_model", "n_embd", "emb_dim", "embed_dim", "hidden_size", "dim"),
    "d_vocab": ("d_vocab", "vocab_size", "n_vocab"),
    "n_ctx": ("n_ctx", "block_size", "n_positions", "context_length", "max_position_embeddings", "max_seq_len"),
    "d_mlp": ("d_mlp", "n_inner", "d_ff", "intermediate_size", "hidden_dim"),
    "d_head": ("d_head", "head_dim"),
}
# By our name for a size: the letter that tables of layouts have for it.
_LETTERS = {"d_model": "m", "d_vocab": "v", "n_ctx": "c", "d_mlp": "f", "n_heads": "n", "d_head": "h"}
# By our name for a size: the parameter that tells it.
_TELLING = {"d_vocab": "embed.W_E", "n_ctx": "pos_embed.W_pos", "d_mlp": "mlp.W_in"}
_MATRICES = ("mlp.W_in",)  # those that nn.Linear keeps transposed
_BIASES = ("bias", "qkv_bias", "use_bias", "attn_bias")
Shape = tuple[int, ...]


def layout_of(model: nn.Module, weights_map: Mapping[str, Any] | str | Path | None = None) -> Layout:
    """The layout that the map describes, else the known one; raises ShapetraceError where there is none."""
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters(remove_duplicate=False)}
    layout = find_layout(shapes)
    if weights_map is not None:
        return layout_from_map(read_map(weights_map), shapes, layout)
    if layout is None:
        keys = "".join(f"\n  {name} {shape}" for name, shape in list(shapes.items())[:24])
        more = f"\n  ... and {len(shapes) - 24} more" if len(shapes) > 24 else ""
        raise ShapetraceError(
            f"{type(model).__name__}'s parameters are in no known layout of GPT-2:{keys}{more}",
            "known are TransformerLens', Hugging Face's, nanoGPT's, forge's and the textbook's; for another one give "
            "`--weights-map FILE.yaml` (`weights_map` from Python), your key to TransformerLens' name, a line each: "
            "`tok.weight: embed.W_E`",
        )
    return layout


def config_of(model: nn.Module, layout: Layout, n_heads: int | None = None) -> Config:
    """The config of a GPT-2 with these parameters; eps is GPT-2's, 1e-5.

    A size comes from the shapes; where they disagree among themselves, or do not tell, from the model's `cfg` or
    `config`, or an attribute of its attention. Raises ShapetraceError where a size cannot be known, such as n_heads
    where q, k and v of all heads lie in one matrix.
    """
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters(remove_duplicate=False)}
    read, told = _read_sizes(layout, shapes), told_sizes(model)
    sizes = {name: _decide(name, read.get(letter, Counter()), told) for name, letter in _LETTERS.items()}
    sizes["n_layers"] = len({layer for slot in layout.slots for layer in re.findall(r"blocks\.(\d+)\.", slot.names[0])})
    if n_heads is not None:
        sizes["n_heads"] = n_heads
    if sizes["n_heads"] is None:
        sizes["n_heads"] = next(_attributes(model, _SYNONYMS["n_heads"]), None)
    width, heads = sizes["d_model"], sizes["n_heads"]
    if heads is None:
        raise ShapetraceError(
            f"{type(model).__name__} does not tell how many attention heads it has: its matrices hold all of them",
            "give `--n-heads` (`n_heads` from Python), or keep it as `n_heads`, `n_head` or `num_heads` on the "
            "config or on the attention",
        )
    if sizes["d_head"] is None and width is not None:
        if heads < 1 or width % heads:
            raise ShapetraceError(f"{heads} heads cannot share a d_model of {width}", "give another `--n-heads`")
        sizes["d_head"] = width // heads
    unknown = [name for name, size in sizes.items() if size is None]
    if unknown or not sizes["n_layers"]:
        raise ShapetraceError(
            f"{type(model).__name__}'s parameters do not tell {', '.join(unknown) or 'its layers'}"
            + _describe_strangers(layout, shapes),
            _hint_at(unknown, layout, shapes),
        )
    known: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
    return Config(**known)


def _describe_strangers(layout: Layout, shapes: Mapping[str, Shape]) -> str:
    strangers = _strangers(layout, shapes)
    told = "".join(f"\n  {name} {shapes[name]}" for name in strangers[:12])
    more = f"\n  ... and {len(strangers) - 12} more" if len(strangers) > 12 else ""
    return f"; these have no place in the {layout.name} layout:{told}{more}" if strangers else ""


def _hint_at(unknown: list[str], layout: Layout, shapes: Mapping[str, Shape]) -> str:
    """A line for the weights map that would tell the first size that is unknown."""
    name = next((_TELLING[each] for each in unknown if each in _TELLING), None)
    slot = next((each for each in layout.absent if name and each.names[0].endswith(name)), None)
    strangers = [each for each in _strangers(layout, shapes) if slot and len(shapes[each]) == len(slot.ours.split())]
    near = get_close_matches(slot.key, strangers, n=1, cutoff=0.3) if slot else []
    if slot is None or not near:
        return "a diff takes a GPT-2: embeddings, blocks of attention and MLP, and a head"
    turned = slot.ours != slot.theirs and name in _MATRICES
    value = f"{{name: {slot.names[0]}, transpose: true}}" if turned else slot.names[0]
    return (
        f"`{slot.key}` would tell it. Rename yours, or say which one it is by `--weights-map FILE.yaml` (`weights_map` "
        f"from Python), a line each: `{near[0]}: {value}`"
    )


def _strangers(layout: Layout, shapes: Mapping[str, Shape]) -> list[str]:
    placed = {slot.key for slot in layout.slots} | {*layout.constants}
    return [name for name in shapes if name not in placed]


def told_sizes(model: nn.Module) -> dict[str, int]:
    """What the model's own `cfg` or `config` says, an object or a mapping, under our names."""
    given = _config_values(model)
    found = {name: next((given[each] for each in names if each in given), None) for name, names in _SYNONYMS.items()}
    return {name: value for name, value in found.items() if isinstance(value, int) and not isinstance(value, bool)}


def says_no_bias(model: nn.Module) -> bool:
    """Whether the model's own config says that it has no biases, or that q, k and v have none."""
    given = _config_values(model)
    return any(given.get(name) is False for name in _BIASES)


def _config_values(model: nn.Module) -> Mapping[str, Any]:
    for name in ("cfg", "config"):
        config = getattr(model, name, None)
        if isinstance(config, Mapping):
            return config
        if config is not None:
            synonyms = {each for names in _SYNONYMS.values() for each in names} | {*_BIASES}
            return {each: getattr(config, each) for each in synonyms if getattr(config, each, None) is not None}
    return {}


def _read_sizes(layout: Layout, shapes: Mapping[str, Shape]) -> dict[str, Counter[int]]:
    """By letter: the sizes that shapes give it, and how often."""
    found: dict[str, Counter[int]] = defaultdict(Counter)
    for slot in layout.slots:
        axes = re.findall(r"\([^)]*\)|\w+", slot.theirs)
        if len(axes) == len(shapes[slot.key]):
            for axis, size in zip(axes, shapes[slot.key], strict=True):
                found[axis][size] += 1
    return found


def _decide(name: str, read: Counter[int], told: Mapping[str, int]) -> int | None:
    """What the shapes say, and of two such the one that the config has too."""
    if told.get(name) in read or not read:
        return told.get(name)
    return read.most_common(1)[0][0]


def _attributes(model: nn.Module, names: tuple[str, ...]) -> Iterator[int]:
    for module in model.modules():
        for name in names:
            value = getattr(module, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                yield value
