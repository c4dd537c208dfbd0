"""TransformerLens 4: TransformerBridge over Hugging Face's GPT-2, built without a network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shapetrace.gpt2.config import Config
from shapetrace.weights.layouts import from_transformer_lens
from shapetrace.weights.layouts.tables import HUGGING_FACE


def build_bridge(config: Config, state: dict[str, Tensor], dtype: torch.dtype) -> Any:
    """A TransformerBridge with these weights: q, k and v of each layer are copied into one tensor, the rest is not.

    The state is used up, so that the copies do not stand beside what they were made of.
    """
    from accelerate import init_empty_weights
    from transformer_lens.model_bridge.sources import build_bridge_from_module
    from transformers import GPT2Config, GPT2LMHeadModel

    hugging_face_config = GPT2Config(
        n_layer=config.n_layers,
        n_embd=config.d_model,
        n_head=config.n_heads,
        n_positions=config.n_ctx,
        vocab_size=config.d_vocab,
        n_inner=config.d_mlp,
        layer_norm_epsilon=config.layer_norm_eps,
        tie_word_embeddings=False,
    )
    with init_empty_weights(include_buffers=False):  # a causal mask on the meta device would mask nothing
        model = GPT2LMHeadModel(hugging_face_config).eval()
    bias = state.pop("unembed.b_U")
    model.load_state_dict(from_transformer_lens(state, HUGGING_FACE), assign=True)
    bridge = build_bridge_from_module(model, "GPT2LMHeadModel", hf_config=hugging_face_config)
    # GPT-2 has no b_U; the bridge makes one of zeros.
    bridge.load_state_dict({"unembed.bias": bias}, strict=False)
    # `no_processing`: no folded LayerNorm, no centred weights. What is left is that masked scores are -inf.
    bridge.enable_compatibility_mode(no_processing=True)
    return bridge.to(dtype)
