"""Token ids to vectors: what each token is (Embed) and where it stands (PosEmbed)."""

import einops
import torch
from torch import Tensor, nn

from shapetrace.gpt2.config import Config


class Embed(nn.Module):
    """Each token id becomes its row of W_E."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.W_E = nn.Parameter(torch.empty(cfg.d_vocab, cfg.d_model))  # (d_vocab, d_model), one row per vocab entry
        nn.init.normal_(self.W_E, std=cfg.init_range)

    def forward(
        self,
        tokens: Tensor,  # (batch, posn), token ids
    ) -> Tensor:
        out = self.W_E[tokens]  # (batch, posn, d_model), the row of each token
        return out


class PosEmbed(nn.Module):
    """Each position becomes its row of W_pos, whichever token stands there."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.W_pos = nn.Parameter(torch.empty(cfg.n_ctx, cfg.d_model))  # (n_ctx, d_model), one row per position
        nn.init.normal_(self.W_pos, std=cfg.init_range)

    def forward(
        self,
        tokens: Tensor,  # (batch, posn), only the shape is read
    ) -> Tensor:
        batch, seq_len = tokens.shape
        sliced = self.W_pos[:seq_len]  # (posn, d_model), the first rows
        out = einops.repeat(
            sliced,
            "posn d_model -> batch posn d_model",
            batch=batch,
        )  # (batch, posn, d_model), for each sequence
        return out
