"""A small GPT-2 with TransformerLens' names for its weights, one class a part; the tests change single lines of it."""

from dataclasses import dataclass

import torch
from einops import einsum
from torch import nn


@dataclass
class Sizes:
    n_layers: int = 2
    n_heads: int = 3
    d_head: int = 8
    d_model: int = 24
    d_mlp: int = 40
    d_vocab: int = 61
    n_ctx: int = 16
    eps: float = 1e-5


def weight(*shape):
    return nn.Parameter(torch.randn(shape) * 0.1)


class LayerNorm(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.eps = sizes.eps
        self.w, self.b = weight(sizes.d_model), weight(sizes.d_model)

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        scale = (centred.pow(2).mean(-1, keepdim=True) + self.eps).sqrt()
        normal = centred / scale
        return normal * self.w + self.b


class Embed(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.W_E = weight(sizes.d_vocab, sizes.d_model)

    def forward(self, ids):
        return self.W_E[ids]


class PosEmbed(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.W_pos = weight(sizes.n_ctx, sizes.d_model)

    def forward(self, ids):
        return self.W_pos[: ids.size(1)].expand(ids.size(0), -1, -1)


class Attention(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.d_head = sizes.d_head
        heads = (sizes.n_heads, sizes.d_model, sizes.d_head)
        self.W_Q, self.W_K, self.W_V = weight(*heads), weight(*heads), weight(*heads)
        self.b_Q, self.b_K, self.b_V = (weight(sizes.n_heads, sizes.d_head) for _ in range(3))
        self.W_O, self.b_O = weight(sizes.n_heads, sizes.d_head, sizes.d_model), weight(sizes.d_model)

    def forward(self, x):
        query = einsum(x, self.W_Q, "b p m, n m h -> b p n h") + self.b_Q
        key = einsum(x, self.W_K, "b p m, n m h -> b p n h") + self.b_K
        value = einsum(x, self.W_V, "b p m, n m h -> b p n h") + self.b_V
        scores = einsum(query, key, "b q n h, b k n h -> b n q k") / self.d_head**0.5
        hidden = torch.ones(scores.shape[-2:]).triu(1).bool()
        scores = scores.masked_fill(hidden, -torch.inf)
        pattern = scores.softmax(-1)
        mixed = einsum(pattern, value, "b n q k, b k n h -> b q n h")
        return einsum(mixed, self.W_O, "b q n h, n h m -> b q m") + self.b_O


class MLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.W_in, self.b_in = weight(sizes.d_model, sizes.d_mlp), weight(sizes.d_mlp)
        self.W_out, self.b_out = weight(sizes.d_mlp, sizes.d_model), weight(sizes.d_model)

    def forward(self, x):
        pre = x @ self.W_in + self.b_in
        post = nn.functional.gelu(pre, approximate="tanh")
        return post @ self.W_out + self.b_out


class Block(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.ln1, self.attn = LayerNorm(sizes), Attention(sizes)
        self.ln2, self.mlp = LayerNorm(sizes), MLP(sizes)

    def forward(self, x):
        mid = x + self.attn(self.ln1(x))
        return mid + self.mlp(self.ln2(mid))


class Unembed(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.W_U, self.b_U = weight(sizes.d_model, sizes.d_vocab), weight(sizes.d_vocab)

    def forward(self, x):
        return x @ self.W_U + self.b_U


class Model(nn.Module):
    def __init__(self, sizes=Sizes()):  # noqa: B008 - never changed
        super().__init__()
        self.cfg = sizes
        self.embed, self.pos_embed = Embed(sizes), PosEmbed(sizes)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.n_layers))
        self.ln_final, self.unembed = LayerNorm(sizes), Unembed(sizes)

    def forward(self, ids):
        x = self.embed(ids) + self.pos_embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.unembed(self.ln_final(x))
