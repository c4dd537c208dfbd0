"""One layer: attention, then the MLP, each reading a normalised copy of the stream and adding to it."""

from torch import Tensor, nn

from shapetrace.forge.attention import MultiHeadSelfAttention
from shapetrace.forge.config import Config
from shapetrace.forge.feed_forward import FeedForward
from shapetrace.forge.normalization import LayerNorm
from shapetrace.forge.swiglu import SwiGLU


class DecoderBlock(nn.Module):
    """Pre-norm: what is added to is never normalised itself."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.pre_attn_norm = LayerNorm(cfg)
        self.attn = MultiHeadSelfAttention(cfg)
        self.pre_mlp_norm = LayerNorm(cfg)
        self.mlp = SwiGLU(cfg) if cfg.activation == "swiglu" else FeedForward(cfg)

    def forward(
        self,
        resid_pre: Tensor,  # (batch, posn, d_model), as it arrives
    ) -> Tensor:
        resid_mid = resid_pre + self.attn(self.pre_attn_norm(resid_pre))  # (batch, posn, d_model)
        resid_post = resid_mid + self.mlp(self.pre_mlp_norm(resid_mid))  # (batch, posn, d_model)
        return resid_post
