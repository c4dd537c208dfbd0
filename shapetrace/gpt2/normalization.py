"""Each position's vector to mean 0 and variance 1, then a learned scale and shift."""

import torch
from torch import Tensor, nn

from shapetrace.gpt2.config import Config


class LayerNorm(nn.Module):
    """(residual - mean) / sqrt(var + eps) * w + b, over d_model, with var over N (Ba et al. 2016)."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        self.w = nn.Parameter(torch.ones(cfg.d_model))  # (d_model), the same at every posn
        self.b = nn.Parameter(torch.zeros(cfg.d_model))  # (d_model), the same at every posn

    def forward(
        self,
        residual: Tensor,  # (batch, posn, d_model), as it arrives
    ) -> Tensor:
        residual_mean = residual.mean(dim=-1, keepdim=True)  # (batch, posn, 1)
        variance = residual.var(dim=-1, keepdim=True, unbiased=False)  # (batch, posn, 1), over N, not N - 1
        residual_std = (variance + self.cfg.layer_norm_eps).sqrt()  # (batch, posn, 1)
        residual = (residual - residual_mean) / residual_std  # mean 0 and variance 1 per position
        out = residual * self.w + self.b  # * w + b
        return out
