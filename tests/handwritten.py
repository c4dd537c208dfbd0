"""A small GPT-2 as people write one, with TransformerLens' parameter names; tests change a line of it, and diff it."""

import math
from types import SimpleNamespace

import torch
from torch import nn

SIZES = SimpleNamespace(n_layers=2, d_model=40, n_heads=5, d_head=8, d_mlp=96, d_vocab=101, n_ctx=24)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(SIZES.d_model))
        self.b = nn.Parameter(torch.zeros(SIZES.d_model))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        std = torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)
        normed = (x - mean) / std
        return normed * self.w + self.b


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        heads, width, inner = SIZES.n_heads, SIZES.d_model, SIZES.d_head
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.randn(heads, width, inner)) for _ in range(3))
        self.b_Q, self.b_K, self.b_V = (nn.Parameter(torch.randn(heads, inner)) for _ in range(3))
        self.W_O = nn.Parameter(torch.randn(heads, inner, width))
        self.b_O = nn.Parameter(torch.randn(width))

    def forward(self, x):
        q = torch.einsum("bpm,nmh->bpnh", x, self.W_Q) + self.b_Q
        k = torch.einsum("bpm,nmh->bpnh", x, self.W_K) + self.b_K
        v = torch.einsum("bpm,nmh->bpnh", x, self.W_V) + self.b_V
        scores = torch.einsum("bqnh,bknh->bnqk", q, k) / math.sqrt(SIZES.d_head)
        future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        scores = scores.masked_fill(future, -math.inf)
        pattern = scores.softmax(-1)
        z = torch.einsum("bnqk,bknh->bqnh", pattern, v)
        return torch.einsum("bpnh,nhm->bpm", z, self.W_O) + self.b_O


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.W_in = nn.Parameter(torch.randn(SIZES.d_model, SIZES.d_mlp))
        self.b_in = nn.Parameter(torch.randn(SIZES.d_mlp))
        self.W_out = nn.Parameter(torch.randn(SIZES.d_mlp, SIZES.d_model))
        self.b_out = nn.Parameter(torch.randn(SIZES.d_model))

    def forward(self, x):
        pre = x @ self.W_in + self.b_in
        post = nn.functional.gelu(pre, approximate="tanh")
        return post @ self.W_out + self.b_out


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.attn, self.ln2, self.mlp = Norm(), Attention(), Norm(), MLP()

    def forward(self, x):
        middle = x + self.attn(self.ln1(x))
        return middle + self.mlp(self.ln2(middle))


class Embed(nn.Module):
    def __init__(self):
        super().__init__()
        self.W_E = nn.Parameter(torch.randn(SIZES.d_vocab, SIZES.d_model))

    def forward(self, tokens):
        return self.W_E[tokens]


class PosEmbed(nn.Module):
    def __init__(self):
        super().__init__()
        self.W_pos = nn.Parameter(torch.randn(SIZES.n_ctx, SIZES.d_model))

    def forward(self, tokens):
        return self.W_pos[: tokens.shape[1]]


class Unembed(nn.Module):
    def __init__(self):
        super().__init__()
        self.W_U = nn.Parameter(torch.randn(SIZES.d_model, SIZES.d_vocab))
        self.b_U = nn.Parameter(torch.randn(SIZES.d_vocab))

    def forward(self, x):
        return x @ self.W_U + self.b_U


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.pos_embed = Embed(), PosEmbed()
        self.blocks = nn.ModuleList([Block() for _ in range(SIZES.n_layers)])
        self.ln_final, self.unembed = Norm(), Unembed()

    def forward(self, tokens):
        stream = self.embed(tokens) + self.pos_embed(tokens)
        for block in self.blocks:
            stream = block(stream)
        return self.unembed(self.ln_final(stream))
