"""What each layout calls the parameters of GPT-2, and how it arranges them.

A row is: the key, `#` for the layer; the TransformerLens names, under `blocks.#.` where the key has a layer; their
axes; and, after an arrow, the axes of the tensor under the key. Several names under one key are `parts` of it.
m is d_model, n n_heads, h d_head, f d_mlp, v d_vocab, c n_ctx.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    names: str
    axes: str


@dataclass(frozen=True, slots=True)
class Table:
    """A layout as it is written down."""

    name: str
    optional_prefix: str  # some of its models have it before some keys
    rows: tuple[Row, ...]
    constants: tuple[str, ...] = ()  # buffers that are no weights
    outside: tuple[str, ...] = ()  # keys that never have the optional prefix
    optional: tuple[str, ...] = ()  # how the names of biases end that its models often do without


_NORM_AXES = "m -> m"

TRANSFORMER_LENS = Table(
    "TransformerLens",
    "",
    (
        Row("embed.W_E", "embed.W_E", "v m -> v m"),
        Row("pos_embed.W_pos", "pos_embed.W_pos", "c m -> c m"),
        *(Row(f"blocks.#.{norm}.{each}", f"{norm}.{each}", _NORM_AXES) for norm in ("ln1", "ln2") for each in "wb"),
        *(Row(f"blocks.#.attn.W_{each}", f"attn.W_{each}", "n m h -> n m h") for each in "QKV"),
        Row("blocks.#.attn.W_O", "attn.W_O", "n h m -> n h m"),
        *(Row(f"blocks.#.attn.b_{each}", f"attn.b_{each}", "n h -> n h") for each in "QKV"),
        Row("blocks.#.attn.b_O", "attn.b_O", "m -> m"),
        Row("blocks.#.mlp.W_in", "mlp.W_in", "m f -> m f"),
        Row("blocks.#.mlp.b_in", "mlp.b_in", "f -> f"),
        Row("blocks.#.mlp.W_out", "mlp.W_out", "f m -> f m"),
        Row("blocks.#.mlp.b_out", "mlp.b_out", "m -> m"),
        *(Row(f"ln_final.{each}", f"ln_final.{each}", _NORM_AXES) for each in "wb"),
        Row("unembed.W_U", "unembed.W_U", "m v -> m v"),
        Row("unembed.b_U", "unembed.b_U", "v -> v"),
    ),
    ("blocks.#.attn.mask", "blocks.#.attn.IGNORE"),
)

# Hugging Face's GPT-2 keeps its matrices as Conv1D has them, (in, out); nanoGPT and minGPT, under the same names, as
# nn.Linear has them, (out, in): `linear` turns the one table into the other.
_MATRICES = (
    Row("h.#.attn.c_attn.weight", "attn.W_Q attn.W_K attn.W_V", "parts n m h -> m (parts n h)"),
    Row("h.#.attn.c_proj.weight", "attn.W_O", "n h m -> (n h) m"),
    Row("h.#.mlp.c_fc.weight", "mlp.W_in", "m f -> m f"),
    Row("h.#.mlp.c_proj.weight", "mlp.W_out", "f m -> f m"),
)
_VECTORS = (
    Row("wte.weight", "embed.W_E", "v m -> v m"),
    Row("wpe.weight", "pos_embed.W_pos", "c m -> c m"),
    Row("h.#.ln_1.weight", "ln1.w", _NORM_AXES),
    Row("h.#.ln_1.bias", "ln1.b", _NORM_AXES),
    Row("h.#.attn.c_attn.bias", "attn.b_Q attn.b_K attn.b_V", "parts n h -> (parts n h)"),
    Row("h.#.attn.c_proj.bias", "attn.b_O", "m -> m"),
    Row("h.#.ln_2.weight", "ln2.w", _NORM_AXES),
    Row("h.#.ln_2.bias", "ln2.b", _NORM_AXES),
    Row("h.#.mlp.c_fc.bias", "mlp.b_in", "f -> f"),
    Row("h.#.mlp.c_proj.bias", "mlp.b_out", "m -> m"),
    Row("ln_f.weight", "ln_final.w", _NORM_AXES),
    Row("ln_f.bias", "ln_final.b", _NORM_AXES),
    Row("lm_head.weight", "unembed.W_U", "m v -> v m"),
    Row("lm_head.bias", "unembed.b_U", "v -> v"),
)
_MASKS = ("h.#.attn.bias", "h.#.attn.masked_bias")
_HEAD = ("lm_head.weight", "lm_head.bias")


def reverse_axes(axes: str) -> str:
    """`m (n h)` -> `(n h) m`."""
    return " ".join(reversed(re.findall(r"\([^)]*\)|\w+", axes)))


def _linear(row: Row) -> Row:
    """The same matrix as nn.Linear keeps it: `m f -> m f` becomes `m f -> f m`."""
    ours, theirs = row.axes.split(" -> ")
    return Row(row.key, row.names, f"{ours} -> {reverse_axes(theirs)}")


HUGGING_FACE = Table("Hugging Face", "transformer.", (*_MATRICES, *_VECTORS), _MASKS, _HEAD)
NANO_GPT = Table("nanoGPT", "transformer.", (*map(_linear, _MATRICES), *_VECTORS), _MASKS, _HEAD)

# The layout of the most-used textbook implementation.
TEXTBOOK = Table(
    "textbook",
    "",
    (
        Row("tok_emb.weight", "embed.W_E", "v m -> v m"),
        Row("pos_emb.weight", "pos_embed.W_pos", "c m -> c m"),
        *(
            row
            for word, letter in (("query", "Q"), ("key", "K"), ("value", "V"))
            for row in (
                Row(f"trf_blocks.#.att.W_{word}.weight", f"attn.W_{letter}", "n m h -> (n h) m"),
                Row(f"trf_blocks.#.att.W_{word}.bias", f"attn.b_{letter}", "n h -> (n h)"),
            )
        ),
        Row("trf_blocks.#.att.out_proj.weight", "attn.W_O", "n h m -> m (n h)"),
        Row("trf_blocks.#.att.out_proj.bias", "attn.b_O", "m -> m"),
        Row("trf_blocks.#.ff.layers.0.weight", "mlp.W_in", "m f -> f m"),
        Row("trf_blocks.#.ff.layers.0.bias", "mlp.b_in", "f -> f"),
        Row("trf_blocks.#.ff.layers.2.weight", "mlp.W_out", "f m -> m f"),
        Row("trf_blocks.#.ff.layers.2.bias", "mlp.b_out", "m -> m"),
        *(
            Row(f"trf_blocks.#.norm{number}.{theirs}", f"ln{number}.{ours}", _NORM_AXES)
            for number in "12"
            for theirs, ours in (("scale", "w"), ("shift", "b"))
        ),
        Row("final_norm.scale", "ln_final.w", _NORM_AXES),
        Row("final_norm.shift", "ln_final.b", _NORM_AXES),
        Row("out_head.weight", "unembed.W_U", "m v -> v m"),
        Row("out_head.bias", "unembed.b_U", "v -> v"),
    ),
    ("trf_blocks.#.att.mask",),
    optional=("attn.b_Q", "attn.b_K", "attn.b_V"),  # `qkv_bias` is False by default
)

# The layout of `shapetrace.forge`.
FORGE = Table(
    "forge",
    "",
    (
        Row("token_embedding.weight", "embed.W_E", "v m -> v m"),
        Row("position_embedding.weight", "pos_embed.W_pos", "c m -> c m"),
        Row("layers.#.attn.qkv_proj.weight", "attn.W_Q attn.W_K attn.W_V", "parts n m h -> (parts n h) m"),
        Row("layers.#.attn.qkv_proj.bias", "attn.b_Q attn.b_K attn.b_V", "parts n h -> (parts n h)"),
        Row("layers.#.attn.attn_out_proj.weight", "attn.W_O", "n h m -> m (n h)"),
        Row("layers.#.attn.attn_out_proj.bias", "attn.b_O", "m -> m"),
        Row("layers.#.mlp.mlp_up_proj.weight", "mlp.W_in", "m f -> f m"),
        Row("layers.#.mlp.mlp_up_proj.bias", "mlp.b_in", "f -> f"),
        Row("layers.#.mlp.mlp_down_proj.weight", "mlp.W_out", "f m -> m f"),
        Row("layers.#.mlp.mlp_down_proj.bias", "mlp.b_out", "m -> m"),
        *(
            Row(f"layers.#.{norm}.{theirs}", f"{ln}.{ours}", _NORM_AXES)
            for norm, ln in (("pre_attn_norm", "ln1"), ("pre_mlp_norm", "ln2"))
            for theirs, ours in (("weight", "w"), ("bias", "b"))
        ),
        Row("final_norm.weight", "ln_final.w", _NORM_AXES),
        Row("final_norm.bias", "ln_final.b", _NORM_AXES),
        Row("lm_head.weight", "unembed.W_U", "m v -> v m"),
        Row("lm_head.bias", "unembed.b_U", "v -> v"),
    ),
    ("layers.#.attn.causal_mask",),
)

TABLES = (TRANSFORMER_LENS, HUGGING_FACE, NANO_GPT, TEXTBOOK, FORGE)
