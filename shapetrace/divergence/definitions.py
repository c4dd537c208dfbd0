"""How each activation of GPT-2 is computed from those before it: what it reads, and a function of that.

A definition is data, so that it can be edited: another operand, another setting, an operand left out. What the edited
one computes can then be laid beside a tensor that is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from shapetrace.gpt2.config import Config

Change = Callable[[Tensor], Tensor]
TOKENS, POSITIONS = "tokens", "positions"


@dataclass(frozen=True, slots=True)
class Operand:
    """A known tensor by its name, as it is or changed."""

    name: str
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """One activation: `function(**operands, **settings)`, and then perhaps a change of the result."""

    name: str  # blocks.0.attn.hook_q
    axes: str  # b p n h
    function: Callable[..., Tensor]
    operands: Mapping[str, Operand]
    settings: Mapping[str, Any] = field(default_factory=dict)
    then: Change | None = None

    @property
    def tensor(self) -> str:
        """`q`."""
        return self.name.rpartition(".")[2].removeprefix("hook_")

    def reads(self) -> list[str]:
        return [operand.name for operand in self.operands.values()]

    def evaluate(self, values: Callable[[str], Tensor]) -> Tensor:
        """Its value, where `values` gives each operand by name."""
        given = {
            role: operand.change(values(operand.name)) if operand.change else values(operand.name)
            for role, operand in self.operands.items()
        }
        result = self.function(**given, **self.settings)
        return self.then(result) if self.then else result

    def with_operand(self, role: str, name: str = "", change: Change | None = None) -> Definition:
        """The same with another tensor in that role, or with that one changed."""
        return replace(self, operands={**self.operands, role: Operand(name or self.operands[role].name, change)})

    def with_settings(self, **settings: Any) -> Definition:
        return replace(self, settings={**self.settings, **settings})

    def followed_by(self, change: Change) -> Definition:
        first = self.then
        return replace(self, then=change if first is None else lambda each: change(first(each)))


def define_gpt2(config: Config, n_posn: int) -> dict[str, Definition]:
    """The definition of every activation, in the order in which they are computed, by hook name."""
    found = [
        _define("hook_embed", "b p m", look_up, table="embed.W_E", index=TOKENS),
        _define("hook_pos_embed", "b p m", look_up, table="pos_embed.W_pos", index=POSITIONS),
    ]
    terms = {"embed": "hook_embed", "pos_embed": "hook_pos_embed"}
    for layer in range(config.n_layers):
        found += _define_block(f"blocks.{layer}", terms, config, n_posn)
        terms = {"resid": f"blocks.{layer}.hook_resid_post"}
    found += _define_norm("ln_final", next(iter(terms.values())), config)
    unembed = {"x": "ln_final.hook_out", "weight": "unembed.W_U", "bias": "unembed.b_U"}
    found.append(_define("unembed.hook_out", "b p v", project, **unembed))
    return {each.name: each for each in found}


def _define_block(path: str, terms: dict[str, str], config: Config, n_posn: int) -> list[Definition]:
    attn, mlp = f"{path}.attn", f"{path}.mlp"
    factor = 1 / math.sqrt(config.d_head)
    visible = torch.ones(n_posn, n_posn, dtype=torch.bool).tril()
    return [
        _define(f"{path}.hook_resid_pre", "b p m", add, **terms),
        *_define_norm(f"{path}.ln1", f"{path}.hook_resid_pre", config),
        *(
            _define(
                f"{attn}.hook_{each}",
                "b p n h",
                project_heads,
                **{
                    "x": f"{path}.ln1.hook_out",
                    "weight": f"{attn}.W_{each.upper()}",
                    "bias": f"{attn}.b_{each.upper()}",
                },
            )
            for each in "qkv"
        ),
        replace(
            _define(f"{attn}.hook_attn_scores", "b n q k", score, q=f"{attn}.hook_q", k=f"{attn}.hook_k"),
            settings={"factor": factor, "visible": visible},
        ),
        replace(
            _define(f"{attn}.hook_pattern", "b n q k", take_softmax, scores=f"{attn}.hook_attn_scores"),
            settings={"axis": -1},
        ),
        _define(f"{attn}.hook_z", "b p n h", average, pattern=f"{attn}.hook_pattern", v=f"{attn}.hook_v"),
        _define(
            f"{path}.hook_attn_out", "b p m", merge_heads, z=f"{attn}.hook_z", weight=f"{attn}.W_O", bias=f"{attn}.b_O"
        ),
        _define(f"{path}.hook_resid_mid", "b p m", add, resid=f"{path}.hook_resid_pre", update=f"{path}.hook_attn_out"),
        *_define_norm(f"{path}.ln2", f"{path}.hook_resid_mid", config),
        _define(
            f"{mlp}.hook_pre", "b p f", project, x=f"{path}.ln2.hook_out", weight=f"{mlp}.W_in", bias=f"{mlp}.b_in"
        ),
        replace(
            _define(f"{mlp}.hook_post", "b p f", activate, x=f"{mlp}.hook_pre"), settings={"activation": gelu_tanh}
        ),
        _define(
            f"{path}.hook_mlp_out", "b p m", project, x=f"{mlp}.hook_post", weight=f"{mlp}.W_out", bias=f"{mlp}.b_out"
        ),
        _define(f"{path}.hook_resid_post", "b p m", add, resid=f"{path}.hook_resid_mid", update=f"{path}.hook_mlp_out"),
    ]


def _define_norm(path: str, x: str, config: Config) -> list[Definition]:
    names = {each: f"{path}.hook_{each}" for each in ("scale", "normalized", "out")}
    return [
        replace(_define(names["scale"], "b p 1", spread, x=x), settings={"eps": config.layer_norm_eps}),
        _define(names["normalized"], "b p m", normalise, x=x, scale=names["scale"]),
        _define(names["out"], "b p m", apply_gain, x=names["normalized"], gain=f"{path}.w", bias=f"{path}.b"),
    ]


def _define(name: str, axes: str, function: Callable[..., Tensor], **operands: str) -> Definition:
    return Definition(name, axes, function, {role: Operand(each) for role, each in operands.items()})


def look_up(table: Tensor, index: Tensor) -> Tensor:
    return table[index]


def add(**terms: Tensor) -> Tensor:
    return sum(terms.values(), torch.zeros((), dtype=torch.float64))


def spread(
    x: Tensor,
    *,
    eps: float,
    axis: int = -1,
    correction: int = 0,
    centred: bool = True,
    place: str = "inside the root",
) -> Tensor:
    """sqrt(var + eps): LayerNorm's denominator, `hook_scale`."""
    size = x.shape[axis]
    offset = x - x.mean(axis, keepdim=True) if centred else x
    variance = offset.square().sum(axis, keepdim=True) / (size - correction)
    if place == "without a root":
        return variance + eps
    return (variance + eps).sqrt() if place == "inside the root" else variance.sqrt() + eps


def normalise(x: Tensor, scale: Tensor, *, axis: int = -1, centred: bool = True) -> Tensor:
    return (x - x.mean(axis, keepdim=True) if centred else x) / scale


def apply_gain(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    return x * gain + bias


def project_heads(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.einsum("bpm,nmh->bpnh", x, weight) + bias


def score(q: Tensor, k: Tensor, *, factor: float, visible: Tensor, hidden: float = -math.inf) -> Tensor:
    scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) * factor
    return scores.masked_fill(~visible, hidden)


def take_softmax(scores: Tensor, *, axis: int) -> Tensor:
    return scores.softmax(axis)


def average(pattern: Tensor, v: Tensor) -> Tensor:
    return (pattern @ v.transpose(1, 2)).transpose(1, 2)


def merge_heads(z: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return z.flatten(2) @ weight.flatten(0, 1) + bias


def project(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x @ weight + bias


def activate(x: Tensor, *, activation: Change) -> Tensor:
    return activation(x)


def gelu_tanh(x: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x, approximate="tanh")
