"""Causal self-attention with one projection for q, k and v of all heads."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapetrace.forge.config import Config


class MultiHeadSelfAttention(nn.Module):
    """softmax(q k^T / sqrt(d_head), causal) v in each head (Vaswani et al. 2017), by torch's kernel or by hand."""

    causal_mask: Tensor

    def __init__(self, cfg: Config):
        super().__init__()
        if cfg.d_model % cfg.n_heads:
            raise ValueError(f"d_model = {cfg.d_model} is no multiple of n_heads = {cfg.n_heads}")
        self.cfg = cfg
        self.qkv_proj = nn.Linear(cfg.d_model, 3 * cfg.d_model, bias=cfg.use_bias)
        self.attn_out_proj = nn.Linear(cfg.d_model, cfg.d_model, bias=cfg.use_bias)
        self.attn_dropout = nn.Dropout(cfg.drop_prob)
        self.resid_dropout = nn.Dropout(cfg.drop_prob)
        if cfg.attention == "manual":  # the fused kernel makes its own
            visible = torch.ones(cfg.n_ctx, cfg.n_ctx, dtype=torch.bool).tril()  # (query, key), True up to the diagonal
            self.register_buffer("causal_mask", visible, persistent=False)  # (n_ctx, n_ctx), True = visible

    def forward(
        self,
        normed: Tensor,  # (batch, posn, d_model)
    ) -> Tensor:
        batch, posn, d_model = normed.shape
        n_heads, d_head = self.cfg.n_heads, d_model // self.cfg.n_heads
        qkv = self.qkv_proj(normed)  # (batch, posn, 3 * d_model)
        q, k, v = qkv.split(d_model, dim=-1)  # (batch, posn, d_model) each
        q = q.view(batch, posn, n_heads, d_head).transpose(1, 2)  # (batch, n_heads, posn, d_head)
        k = k.view(batch, posn, n_heads, d_head).transpose(1, 2)  # (batch, n_heads, posn, d_head)
        v = v.view(batch, posn, n_heads, d_head).transpose(1, 2)  # (batch, n_heads, posn, d_head)
        attend = self.attend if self.cfg.attention == "manual" else self.attend_fused
        z = attend(q, k, v)  # (batch, n_heads, posn, d_head), averages of v
        z = z.transpose(1, 2).reshape(batch, posn, d_model)  # (batch, posn, d_model), head after head
        attn_out = self.attn_out_proj(z)  # (batch, posn, d_model)
        return self.resid_dropout(attn_out)  # (batch, posn, d_model)

    def attend_fused(
        self,
        q: Tensor,  # (batch, n_heads, posn, d_head)
        k: Tensor,  # (batch, n_heads, posn, d_head)
        v: Tensor,  # (batch, n_heads, posn, d_head)
    ) -> Tensor:
        """By torch's kernel, which never writes the scores down."""
        drop_prob = self.attn_dropout.p if self.training else 0.0
        return F.scaled_dot_product_attention(  # (batch, n_heads, posn, d_head)
            q, k, v, dropout_p=drop_prob, is_causal=True
        )

    def attend(
        self,
        q: Tensor,  # (batch, n_heads, posn, d_head)
        k: Tensor,  # (batch, n_heads, posn, d_head)
        v: Tensor,  # (batch, n_heads, posn, d_head)
    ) -> Tensor:
        """Step by step."""
        posn, d_head = q.shape[-2:]
        attn_scores = q @ k.transpose(-2, -1) / math.sqrt(d_head)  # (batch, n_heads, query, key)
        visible = self.causal_mask[:posn, :posn]  # (query, key)
        attn_scores = attn_scores.masked_fill(~visible, -math.inf)  # (batch, n_heads, query, key), the future at -inf
        attn_pattern = attn_scores.softmax(dim=-1)  # (batch, n_heads, query, key), rows sum to 1
        return self.attn_dropout(attn_pattern) @ v  # (batch, n_heads, posn, d_head)
