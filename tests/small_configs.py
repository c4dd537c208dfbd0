"""The configuration of any architecture of transformers, made small by the names of its fields.

Nothing here knows a model: `hidden_size` becomes 32 wherever it stands, `num_hidden_layers` 2, `vocab_size` 128, and a
list with an entry for each layer keeps as many entries, different ones first.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from transformers import PretrainedConfig

VOCABULARY, WIDTH, HEADS, HEAD_WIDTH = 128, 32, 4, 8
LAYERS = "layers"

# The first pattern that is found in a field's name tells the most that its value may be.
COUNTS = (
    (r"vocab_size|num_embeddings$|codebook_size|num_tokens$", VOCABULARY),
    (r"index_topk|(^|mamba_|attention_)chunk_size", 8),
    (r"per_tok|top_?k$|topk_group|moe_k$|n_groups?$|num_selected", 2),
    (r"experts?$", 4),
    (r"shared_layers|dense_replace|dense_layers", 1),
    (r"layers?$|depths?$|blocks$|num_hidden|resampler_depth", LAYERS),
    (r"max_.*(position|length|len$|seq)|position_embeddings|n_positions|n_ctx|context_length|_window$|seq_?len", 64),
    (r"num_queries|num_query_tokens|num_latents|train_num_points|num_denoising|num_parallel_samples", 8),
)
SIDES = ((r"image_size|img_size|input_resolution", 32), (r"patch_size", 8))  # of an image
WIDTHS = (
    (r"(head_dim|dim_head|d_head|d_kv|head_size)$|qk_.*_dim|rotary_dim", HEAD_WIDTH),
    (r"heads?$|multi_query_group_num", HEADS),
    (r"rank$", WIDTH // 2),
    (r"intermediate|ffn|d_ff|mlp_dim|inner|d_ssm|lru_width", 2 * WIDTH),
    (r"hidden_size|d_model|n_embd|embed|_dim$|^dim$|width|_size$|hidden_dim", WIDTH),
)
# A smaller number would change what these mean, and not how large the model is.
KEPT = re.compile(
    r"type_vocab|kernel|stride|dilation|downsampl|upsampl|merge|grid|ratio|rate|temporal|tubelet|window_size|sampling"
    r"|expansion|label|_cost|coefficient|loss|mask_|_std|scale|offset|period|shared_experts|feature_size|num_mel_bins"
    r"|channels|shift|pad(ding)?_|chunk_size_feed|out_features|out_indices"
)
TOKEN = re.compile(r"(token|bos|eos|pad|sep|cls|mask|unk|blank).*_(id|index|idx)s?$|padding_idx")
UNLIMITED = 2**31


@dataclass(frozen=True, slots=True)
class Size:
    """How small: this many layers, and widths within their limits, or all divided by the same, or as they come."""

    layers: int = 2
    widths: str = "limited"  # limited, divided, kept
    tokens: Iterator[int] = field(default_factory=lambda: count(VOCABULARY - 1, -1))


def sizes() -> list[Size]:
    """The smallest first. Layers of many kinds need more of them, and widths that depend on one another other ones."""
    return [Size(), Size(2, "divided"), Size(8), Size(8, "divided"), Size(2, "kept")]


def make_small(default: PretrainedConfig, size: Size, **given: Any) -> PretrainedConfig:
    """Built anew, so that what the class derives from its fields is derived from the small ones."""
    common = {each.name for each in dataclasses.fields(PretrainedConfig)} - {"pad_token_id"}
    values, changed = vars(default), {}
    for each in dataclasses.fields(default):
        value = values.get(each.name)
        derived = each.default in (None, "auto") and not isinstance(value, PretrainedConfig | list | tuple)
        if each.init and each.name not in common and value is not None and not derived:
            changed[each.name] = _shrink(each.name, value, values, size)
        if each.name == "rope_parameters" and value and "rope_type" in value and size.widths != "kept":
            half = int(HEAD_WIDTH // 2 * value.get("partial_rotary_factor", 1))  # of a head's width
            changed[each.name] = value | {"mrope_section": [half - half // 4 * 2, half // 4, half // 4]}
        if each.name == "head_dim" and value is None:  # where the class itself leaves it open, as is usual
            changed["head_dim"] = HEAD_WIDTH
        if each.name == "num_key_value_heads" and value is None:
            changed["num_key_value_heads"] = HEADS // 2
    return type(default)(**changed | given)


def _shrink(name: str, value: Any, beside: dict[str, Any], size: Size) -> Any:
    if isinstance(value, PretrainedConfig):
        return make_small(value, size)
    if isinstance(value, list | tuple):
        return type(value)(_shrink_list(name, value, beside, size))
    if type(value) is not int:
        return value
    if TOKEN.search(name):
        # From the end of the vocabulary, so that different tokens stay different.
        return next(size.tokens) if value >= VOCABULARY else value
    limit = _limit_of(name, COUNTS)
    if limit == LAYERS or limit < UNLIMITED:
        return min(value, size.layers if limit == LAYERS else limit)
    if size.widths == "kept":
        return value
    limit = _limit_of(name, SIDES)
    if limit < UNLIMITED:
        return min(value, limit)
    limit = _limit_of(name, WIDTHS)
    if limit == UNLIMITED:
        return value
    if size.widths == "divided":
        return _divide(value, limit, beside)
    if re.search("(key_value|kv).*heads", name) and value < (beside.get("num_attention_heads") or 0):
        limit = HEADS // 2
    return min(value, limit)


def _limit_of(name: str, limits: tuple[tuple[str, Any], ...]) -> Any:
    if KEPT.search(name):
        return UNLIMITED
    return next((limit for pattern, limit in limits if re.search(pattern, name)), UNLIMITED)


def _divide(value: int, limit: int, beside: dict[str, Any]) -> int:
    """By what brings the heads and their width to their limits: products of the two stay products."""
    width = _first_of(beside, "hidden_size", "d_model", "n_embd", "dim") or WIDTH
    heads = _first_of(beside, "num_attention_heads", "n_head", "num_heads", "n_heads") or HEADS
    fewer, narrower = max(1, heads // HEADS), max(1, width // heads // HEAD_WIDTH)
    divisor = {HEADS: fewer, HEAD_WIDTH: narrower}.get(limit, fewer * narrower)
    return max(1, value // divisor)


def _first_of(values: dict[str, Any], *names: str) -> int:
    return next((values[name] for name in names if isinstance(values.get(name), int)), 0)


def _shrink_list(name: str, values: Any, beside: dict[str, Any], size: Size) -> list[Any]:
    if all(isinstance(each, PretrainedConfig) for each in values):
        return [make_small(each, size) for each in values]
    if TOKEN.search(name):
        return [_shrink(name, each, beside, size) for each in values]
    if len(values) > size.layers and len(values) == _first_of(beside, *_LAYER_NAMES):
        return _most_different(values, size.layers)
    if len(values) < 2 or not all(type(each) is int and each > 0 for each in values) or KEPT.search(name):
        return list(values)
    if re.search(r"depth|layers$|blocks$|repeats", name):  # of each stage
        return [min(each, 2) for each in values]
    if re.search(r"indices$|index(es)?$|layer_ids$", name):  # which of the layers
        return sorted({min(each, size.layers - 1) for each in values})
    if size.widths == "limited" and _limit_of(name, WIDTHS) < min(values):
        unit = math.gcd(*values)
        return [each // unit * (1 if "head" in name else HEAD_WIDTH) for each in values]
    return list(values)


_LAYER_NAMES = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "depth", "encoder_layers")


def _most_different(values: Any, number: int) -> list[Any]:
    """As many entries, each kind of layer before any comes a second time, in the order of the model."""
    first = {repr(each): index for index, each in reversed(list(enumerate(values)))}
    chosen = sorted(first.values())[:number]
    chosen += [index for index in range(len(values)) if index not in chosen][: number - len(chosen)]
    return [values[index] for index in sorted(chosen)]
