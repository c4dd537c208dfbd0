"""GPT-2 as separate modules, leaf to root, with TransformerLens names."""

from shapetrace.gpt2.attention import Attention
from shapetrace.gpt2.block import TransformerBlock
from shapetrace.gpt2.config import Config
from shapetrace.gpt2.embedding import Embed, PosEmbed
from shapetrace.gpt2.mlp import MLP, gelu_new
from shapetrace.gpt2.normalization import LayerNorm
from shapetrace.gpt2.transformer import Transformer
from shapetrace.gpt2.unembedding import Unembed

__all__ = [
    "MLP",
    "Attention",
    "Config",
    "Embed",
    "LayerNorm",
    "PosEmbed",
    "Transformer",
    "TransformerBlock",
    "Unembed",
    "gelu_new",
]
