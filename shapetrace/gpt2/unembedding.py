"""The final stream to one score per vocabulary entry."""

import einops
import torch
from torch import Tensor, nn

from shapetrace.gpt2.config import Config


class Unembed(nn.Module):
    """x W_U + b_U; GPT-2 has no b_U, so it is frozen at 0 and only keeps TransformerLens' key."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.W_U = nn.Parameter(torch.empty(cfg.d_model, cfg.d_vocab))  # (d_model, d_vocab)
        nn.init.normal_(self.W_U, std=cfg.init_range)
        self.b_U = nn.Parameter(torch.zeros(cfg.d_vocab), requires_grad=False)  # (d_vocab), 0 in GPT-2

    def forward(
        self,
        normalized_resid_final: Tensor,  # (batch, posn, d_model)
    ) -> Tensor:
        logits = (
            einops.einsum(
                normalized_resid_final,
                self.W_U,
                "batch posn d_model, d_model d_vocab -> batch posn d_vocab",
            )
            + self.b_U
        )  # one score per vocab entry
        return logits
