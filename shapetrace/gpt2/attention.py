"""Causal self-attention: the one place where positions exchange information."""

import einops
import torch
from torch import Tensor, nn

from shapetrace.gpt2.config import Config


class Attention(nn.Module):
    """Each position asks (q), earlier positions answer (k), and their content (v) is mixed by the match."""

    IGNORE: Tensor

    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        heads, width, inner = cfg.n_heads, cfg.d_model, cfg.d_head
        self.W_Q = nn.Parameter(torch.empty(heads, width, inner))  # (n_heads, d_model, d_head)
        self.W_K = nn.Parameter(torch.empty(heads, width, inner))  # (n_heads, d_model, d_head)
        self.W_V = nn.Parameter(torch.empty(heads, width, inner))  # (n_heads, d_model, d_head)
        self.W_O = nn.Parameter(torch.empty(heads, inner, width))  # (n_heads, d_head, d_model)
        self.b_Q = nn.Parameter(torch.zeros(heads, inner))  # (n_heads, d_head)
        self.b_K = nn.Parameter(torch.zeros(heads, inner))  # (n_heads, d_head)
        self.b_V = nn.Parameter(torch.zeros(heads, inner))  # (n_heads, d_head)
        self.b_O = nn.Parameter(torch.zeros(width))  # (d_model), added after the sum
        for weight in (self.W_Q, self.W_K, self.W_V, self.W_O):
            nn.init.normal_(weight, std=cfg.init_range)
        self.register_buffer("IGNORE", torch.tensor(float("-inf")))  # the score of a hidden key

    def forward(
        self,
        normalized_resid_pre: Tensor,  # (batch, posn, d_model)
    ) -> Tensor:
        q = (
            einops.einsum(
                normalized_resid_pre,
                self.W_Q,
                "batch posn d_model, n_heads d_model d_head -> batch posn n_heads d_head",
            )
            + self.b_Q
        )  # (batch, posn, n_heads, d_head)
        k = (
            einops.einsum(
                normalized_resid_pre,
                self.W_K,
                "batch posn d_model, n_heads d_model d_head -> batch posn n_heads d_head",
            )
            + self.b_K
        )  # (batch, posn, n_heads, d_head)
        v = (
            einops.einsum(
                normalized_resid_pre,
                self.W_V,
                "batch posn d_model, n_heads d_model d_head -> batch posn n_heads d_head",
            )
            + self.b_V
        )  # (batch, posn, n_heads, d_head)

        attn_scores = einops.einsum(
            q,
            k,
            "batch query n_heads d_head, batch key n_heads d_head -> batch n_heads query key",
        )  # (batch, n_heads, query, key)
        attn_scores_masked = self.apply_causal_mask(attn_scores / self.cfg.d_head**0.5)  # (batch, n_heads, query, key)
        attn_pattern = attn_scores_masked.softmax(-1)  # rows sum to 1 over visible keys

        z = einops.einsum(
            v,
            attn_pattern,
            "batch key n_heads d_head, batch n_heads query key -> batch query n_heads d_head",
        )  # average of v, by the pattern
        attn_out = (
            einops.einsum(
                z,
                self.W_O,
                "batch posn n_heads d_head, n_heads d_head d_model -> batch posn d_model",
            )
            + self.b_O
        )  # back to the stream's width
        return attn_out

    def apply_causal_mask(
        self,
        attn_scores: Tensor,  # divided by sqrt(d_head)
    ) -> Tensor:
        """Set the score of every later position to IGNORE, in place, and return the scores."""
        all_ones = torch.ones(attn_scores.size(-2), attn_scores.size(-1), device=attn_scores.device)  # (query, key)
        mask = torch.triu(all_ones, diagonal=1).bool()  # True = in the future, hidden
        attn_scores.masked_fill_(mask, self.IGNORE)  # the future at -inf
        return attn_scores
