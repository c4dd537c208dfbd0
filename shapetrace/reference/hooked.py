"""TransformerLens 3: HookedTransformer."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from shapetrace.gpt2.config import Config


def build_hooked(config: Config, state: dict[str, Tensor], dtype: torch.dtype) -> Any:
    """A HookedTransformer that holds these tensors themselves, without a copy."""
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that it goes away in 4.0, where we use the bridge
        model = HookedTransformer(
            HookedTransformerConfig(
                n_layers=config.n_layers,
                d_model=config.d_model,
                n_ctx=config.n_ctx,
                d_head=config.d_head,
                n_heads=config.n_heads,
                d_mlp=config.d_mlp,
                d_vocab=config.d_vocab,
                eps=config.layer_norm_eps,
                act_fn="gelu_new",
                normalization_type="LN",
                init_weights=False,
                dtype=dtype,
            )
        )
    model.load_state_dict(state, strict=False, assign=True)
    return model.eval()
