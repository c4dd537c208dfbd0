"""What a model is compared with: a GPT-2 whose activations are known by TransformerLens' names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from shapetrace.gpt2.config import Config


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """What the reference computed on some tokens. Everything is a copy, on the CPU."""

    activations: dict[str, Tensor]  # by hook name, in the order of `activation_names`
    inputs: dict[str, Tensor]  # by module path: the tensor that the module was given first
    outputs: dict[str, Tensor]  # by module path
    logits: Tensor  # (batch, posn, d_vocab)


class Reference(Protocol):
    """A GPT-2 with weights, which can be run."""

    @property
    def name(self) -> str:
        """transformer_lens 4.3.0."""

    @property
    def config(self) -> Config:
        """Its sizes."""

    @property
    def weights(self) -> str:
        """Where the values came from, in words."""

    def state(self) -> dict[str, Tensor]:
        """Its weights under TransformerLens' classic names, `blocks.0.attn.W_Q` and so on."""

    def run(self, tokens: Tensor) -> ReferenceRun:
        """Run it on tokens of shape (batch, posn)."""


@dataclass(frozen=True, slots=True)
class LensReference:
    """A transformer_lens model, the same for each generation of it."""

    name: str  # transformer_lens 4.3.0
    kind: str  # TransformerBridge or HookedTransformer
    config: Config
    weights: str  # where the values came from, in words
    model: Any
    read_state: Callable[[], dict[str, Tensor]]

    def state(self) -> dict[str, Tensor]:
        """Its state_dict under the classic names, `blocks.0.attn.W_Q` and so on; no copies."""
        return self.read_state()

    @torch.no_grad()
    def run(self, tokens: Tensor) -> ReferenceRun:
        """Run it on tokens of shape (batch, posn)."""
        activations: dict[str, Tensor] = {}
        inputs: dict[str, Tensor] = {}
        outputs: dict[str, Tensor] = {}

        def activation_keeper(name: str) -> Callable[..., None]:
            # By the name that was asked for: the bridge resolves some to a hook that calls itself otherwise.
            def keep(tensor: Tensor, hook: Any) -> None:
                activations[name] = tensor.detach().to("cpu", copy=True)

            return keep

        def module_keeper(path: str) -> Callable[..., None]:
            def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
                given = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
                if given is not None:
                    inputs[path] = given.detach().to("cpu", copy=True)
                outputs[path] = (output[0] if isinstance(output, tuple) else output).detach().to("cpu", copy=True)

            return keep

        names = activation_names(self.config.n_layers)
        handles = [
            self.model.get_submodule(path).register_forward_hook(module_keeper(path), with_kwargs=True)
            for path in module_paths(self.config.n_layers)
        ]
        try:
            hooks = [(name, activation_keeper(name)) for name in names if not name.endswith(".hook_out")]
            device = next(self.model.parameters()).device
            logits = self.model.run_with_hooks(tokens.to(device), fwd_hooks=hooks)
        finally:
            for handle in handles:
                handle.remove()
        for path, output in outputs.items():
            activations[f"{path}.hook_out"] = (
                output  # of a LayerNorm: after its w and b, where TransformerLens 3 has no hook
            )
        return ReferenceRun(
            {name: activations[name] for name in names}, inputs, outputs, logits.detach().to("cpu", copy=True)
        )


def module_paths(n_layers: int) -> list[str]:
    """The modules that both generations have, in the order in which they run."""
    layers = [
        path
        for layer in range(n_layers)
        for path in (*(f"blocks.{layer}.{name}" for name in ("ln1", "attn", "ln2", "mlp")), f"blocks.{layer}")
    ]
    return ["embed", "pos_embed", *layers, "ln_final", "unembed"]


def activation_names(n_layers: int) -> list[str]:
    """The hooks that both generations have, in the order in which they are computed, with each LayerNorm's output."""
    layers = [f"blocks.{layer}.{name}" for layer in range(n_layers) for name in _BLOCK]
    return ["hook_embed", "hook_pos_embed", *layers, *(f"ln_final.{name}" for name in _NORM), "unembed.hook_out"]


_NORM = ("hook_scale", "hook_normalized", "hook_out")
_BLOCK = (
    "hook_resid_pre",
    *(f"ln1.{name}" for name in _NORM),
    *(f"attn.hook_{name}" for name in ("q", "k", "v", "attn_scores", "pattern", "z")),
    "hook_attn_out",
    "hook_resid_mid",
    *(f"ln2.{name}" for name in _NORM),
    "mlp.hook_pre",
    "mlp.hook_post",
    "hook_mlp_out",
    "hook_resid_post",
)
