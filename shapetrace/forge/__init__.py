"""A decoder with fused projections and a tied head, leaf to root; with its defaults it computes what GPT-2 does."""

from shapetrace.forge.attention import MultiHeadSelfAttention
from shapetrace.forge.block import DecoderBlock
from shapetrace.forge.config import Config
from shapetrace.forge.feed_forward import FeedForward
from shapetrace.forge.normalization import LayerNorm
from shapetrace.forge.positions import SinusoidalEmbedding
from shapetrace.forge.swiglu import SwiGLU
from shapetrace.forge.transformer import Transformer

__all__ = [
    "Config",
    "DecoderBlock",
    "FeedForward",
    "LayerNorm",
    "MultiHeadSelfAttention",
    "SinusoidalEmbedding",
    "SwiGLU",
    "Transformer",
]
