"""Expand to d_mlp, apply the non-linearity, project back: each position on its own."""

import einops
import torch
from torch import Tensor, nn

from shapetrace.gpt2.config import Config


def gelu_new(pre: Tensor) -> Tensor:
    """GPT-2's GELU: the tanh approximation of Hendrycks and Gimpel 2016, section 2; any shape, same shape out."""
    return nn.functional.gelu(pre, approximate="tanh")


class MLP(nn.Module):
    """gelu_new(x W_in + b_in) W_out + b_out."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.W_in = nn.Parameter(torch.empty(cfg.d_model, cfg.d_mlp))  # (d_model, d_mlp)
        self.b_in = nn.Parameter(torch.zeros(cfg.d_mlp))  # (d_mlp)
        self.W_out = nn.Parameter(torch.empty(cfg.d_mlp, cfg.d_model))  # (d_mlp, d_model)
        self.b_out = nn.Parameter(torch.zeros(cfg.d_model))  # (d_model)
        for weight in (self.W_in, self.W_out):
            nn.init.normal_(weight, std=cfg.init_range)

    def forward(
        self,
        normalized_resid_mid: Tensor,  # (batch, posn, d_model)
    ) -> Tensor:
        pre = (
            einops.einsum(
                normalized_resid_mid,
                self.W_in,
                "batch posn d_model, d_model d_mlp -> batch posn d_mlp",
            )
            + self.b_in
        )  # 4x wider than the residual stream
        post = gelu_new(pre)  # gelu_new, same shape
        mlp_out = (
            einops.einsum(
                post,
                self.W_out,
                "batch posn d_mlp, d_mlp d_model -> batch posn d_model",
            )
            + self.b_out
        )  # back to (batch, posn, d_model)
        return mlp_out
