"""Position vectors that are not learned."""

import torch
from torch import Tensor, nn

from shapetrace.forge.config import Config


class SinusoidalEmbedding(nn.Module):
    """sin(posn / 10000^(2i / d_model)) in column 2i, its cosine in column 2i + 1 (Vaswani et al. 2017, section 3.5)."""

    table: Tensor

    def __init__(self, cfg: Config):
        super().__init__()
        even = torch.arange(0, cfg.d_model, 2)  # (pairs), the first column of each pair
        angles = torch.outer(torch.arange(cfg.n_ctx), 10000.0 ** (-even / cfg.d_model))  # (n_ctx, pairs)
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)  # (n_ctx, d_model), pair after pair
        self.register_buffer("table", table[:, : cfg.d_model], persistent=False)  # (n_ctx, d_model)

    def forward(
        self,
        positions: Tensor,  # (posn)
    ) -> Tensor:
        out = self.table[positions]  # (posn, d_model)
        return out
