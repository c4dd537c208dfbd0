"""The sizes of a model in TransformerLens layout, read off its parameters."""

from __future__ import annotations

import re

from torch import nn

from shapetrace.errors import ShapetraceError
from shapetrace.gpt2.config import Config

_NAMES = ("embed.W_E", "pos_embed.W_pos", "blocks.0.attn.W_Q", "blocks.0.mlp.W_in")


def config_of(model: nn.Module) -> Config:
    """The config a GPT-2 with these parameters has; its LayerNorm eps is the model's `cfg.layer_norm_eps`, or 1e-5.

    Raises ShapetraceError where the parameters are not those of a GPT-2 in TransformerLens layout.
    """
    cfg = getattr(model, "cfg", None)
    if isinstance(cfg, Config):
        return cfg
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters(remove_duplicate=False)}
    absent = [name for name in _NAMES if name not in shapes]
    if absent:
        raise ShapetraceError(
            f"{type(model).__name__} has no parameter {', '.join(f'`{name}`' for name in absent)}",
            "a diff takes a GPT-2 with TransformerLens names: embed.W_E, pos_embed.W_pos, blocks.0.attn.W_Q, ...",
        )
    d_vocab, d_model = shapes["embed.W_E"]
    n_heads, _, d_head = shapes["blocks.0.attn.W_Q"]
    layers = {match[1] for match in (re.match(r"blocks\.(\d+)\.", name) for name in shapes) if match}
    return Config(
        d_model=d_model,
        d_vocab=d_vocab,
        n_ctx=shapes["pos_embed.W_pos"][0],
        d_head=d_head,
        d_mlp=shapes["blocks.0.mlp.W_in"][1],
        n_heads=n_heads,
        n_layers=len(layers),
        layer_norm_eps=float(getattr(cfg, "layer_norm_eps", 1e-5)),
    )
