"""Each position's vector to mean 0 and variance 1, then a learned scale and perhaps a shift."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapetrace.forge.config import Config


class LayerNorm(nn.Module):
    """Ba et al. 2016, by torch's kernel; nn.LayerNorm with a bias that can be left out."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.eps = cfg.layer_norm_eps
        self.weight = nn.Parameter(torch.ones(cfg.d_model))  # (d_model)
        self.bias = nn.Parameter(torch.zeros(cfg.d_model)) if cfg.use_bias else None  # (d_model)

    def forward(
        self,
        hidden_state: Tensor,  # (batch, posn, d_model), as it arrives
    ) -> Tensor:
        out = F.layer_norm(hidden_state, self.weight.shape, self.weight, self.bias, self.eps)  # (batch, posn, d_model)
        return out
