"""The sizes of a model in TransformerLens layout, read off its parameters."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from shapetrace.errors import ShapetraceError
from shapetrace.gpt2.config import Config
from shapetrace.reference import Reference

_RANKS = {"embed.W_E": 2, "pos_embed.W_pos": 2, "blocks.0.attn.W_Q": 3, "blocks.0.mlp.W_in": 2}


def config_of(model: nn.Module) -> Config:
    """The config of a GPT-2 with these parameters: as its `cfg` or `config` says, else read off the shapes, eps 1e-5.

    Raises ShapetraceError where the parameters are not those of a GPT-2 in TransformerLens layout.
    """
    cfg = getattr(model, "cfg", None) or getattr(model, "config", None)
    if isinstance(cfg, Config):
        return cfg
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters(remove_duplicate=False)}
    absent = [name for name, rank in _RANKS.items() if len(shapes.get(name, ())) != rank]
    if absent:
        raise ShapetraceError(
            f"{type(model).__name__} has no parameter "
            + ", ".join(f"`{name}` with {_RANKS[name]} axes" for name in absent),
            "a diff takes a GPT-2 with TransformerLens names: embed.W_E, pos_embed.W_pos, blocks.0.attn.W_Q, ...",
        )
    d_vocab, d_model = shapes["embed.W_E"]
    n_heads, _, d_head = shapes["blocks.0.attn.W_Q"]
    layers = {match[1] for match in (re.match(r"blocks\.(\d+)\.", name) for name in shapes) if match}
    read_off = Config(
        d_model=d_model,
        d_vocab=d_vocab,
        n_ctx=shapes["pos_embed.W_pos"][0],
        d_head=d_head,
        d_mlp=shapes["blocks.0.mlp.W_in"][1],
        n_heads=n_heads,
        n_layers=len(layers),
    )
    # What the model's own config says comes first: a parameter of another shape is a mistake, and is reported by name.
    told = {each.name: getattr(cfg, each.name, None) for each in fields(Config)}
    changes: dict[str, Any] = {name: value for name, value in told.items() if isinstance(value, int | float)}
    return replace(read_off, **changes)


def check_values(model: nn.Module, tokens: Tensor, config: Config) -> None:
    """Raise ShapetraceError unless the model and the tokens have values, and the tokens are some of the model's."""
    if any(each.is_meta for each in (*model.parameters(), *model.buffers(), tokens)):
        raise ShapetraceError(
            "a diff compares values, and there are none on the meta device", "build the model on the CPU"
        )
    if tokens.ndim != 2 or not tokens.numel() or tokens.is_floating_point() or tokens.dtype == torch.bool:
        what = f"{str(tokens.dtype).removeprefix('torch.')} {tuple(tokens.shape)}"
        raise ShapetraceError(
            f"tokens are whole numbers of shape (batch, posn), not {what}", "such as torch.tensor([[1, 2]])"
        )
    if not (int(tokens.min()) >= 0 and int(tokens.max()) < config.d_vocab):
        raise ShapetraceError(
            f"token ids go from 0 to {config.d_vocab - 1}; here they go from {int(tokens.min())} to {int(tokens.max())}"
        )
    if tokens.shape[1] > config.n_ctx:
        raise ShapetraceError(f"{tokens.shape[1]} tokens are more than n_ctx = {config.n_ctx}", "give fewer")


def check_reference(reference: Reference, config: Config, dtype: torch.dtype) -> None:
    """Raise ShapetraceError where the reference cannot stand beside a model of this size and dtype."""
    its_dtype = next(iter(reference.state().values())).dtype
    if its_dtype != dtype:
        raise ShapetraceError(f"the reference is {its_dtype} and the model {dtype}", "bring both to one dtype")
    other = [size for size in _SIZES if getattr(reference.config, size) != getattr(config, size)]
    if other:
        told = ", ".join(f"{size} {getattr(config, size)} beside {getattr(reference.config, size)}" for size in other)
        raise ShapetraceError(
            f"the reference has other sizes than the model: {told}", "build it with the model's config"
        )


_SIZES = ("n_layers", "d_model", "n_heads", "d_head", "d_mlp", "d_vocab")
