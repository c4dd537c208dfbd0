"""Small GPT-2s in the layouts that are not TransformerLens': nanoGPT's, minGPT's and the textbook's names."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class GPTConfig:
    block_size: int = 24
    vocab_size: int = 101
    n_layer: int = 2
    n_head: int = 5
    n_embd: int = 40
    dropout: float = 0.0
    bias: bool = True
    flash: bool = True
    activation: str = "tanh"


class NanoNorm(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.attn_dropout, self.resid_dropout = nn.Dropout(config.dropout), nn.Dropout(config.dropout)
        self.n_head, self.flash = config.n_head, config.flash
        size = config.block_size
        self.register_buffer("bias", torch.ones(size, size).tril().view(1, 1, size, size))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (each.view(B, T, self.n_head, -1).transpose(1, 2) for each in self.c_attn(x).chunk(3, dim=-1))
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            att = q @ k.mT / math.sqrt(k.shape[-1])
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = self.attn_dropout(att.softmax(-1))
            y = att @ v
        y = y.transpose(1, 2).reshape(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class NanoMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.gelu = nn.GELU(approximate=config.activation)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x):
        x = self.c_fc(x)
        x = self.gelu(x)
        return self.c_proj(x)


class NanoBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.attn = NanoNorm(config.n_embd, config.bias), CausalSelfAttention(config)
        self.ln_2, self.mlp = NanoNorm(config.n_embd, config.bias), NanoMLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x


class NanoGPT(nn.Module):
    """nn.Linear under Hugging Face's names, the head tied to the embedding, logits of the last position only."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        parts = {
            "wte": nn.Embedding(config.vocab_size, config.n_embd),
            "wpe": nn.Embedding(config.block_size, config.n_embd),
            "h": nn.ModuleList([NanoBlock(config) for _ in range(config.n_layer)]),
            "ln_f": NanoNorm(config.n_embd, config.bias),
        }
        self.transformer = nn.ModuleDict(parts)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        pos = torch.arange(idx.shape[1])
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        return self.lm_head(x[:, [-1]]), None


class MinBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        parts = {
            "c_fc": nn.Linear(config.n_embd, 4 * config.n_embd),
            "c_proj": nn.Linear(4 * config.n_embd, config.n_embd),
            "act": nn.GELU(approximate=config.activation),
        }
        self.mlp = nn.ModuleDict(parts)
        self.mlpf = lambda x: self.mlp.c_proj(self.mlp.act(self.mlp.c_fc(x)))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlpf(self.ln_2(x))
        return x


class MinGPT(nn.Module):
    """Its config is not kept: how many heads there are, only the attention knows. The head is not tied."""

    def __init__(self, config):
        super().__init__()
        parts = {
            "wte": nn.Embedding(config.vocab_size, config.n_embd),
            "wpe": nn.Embedding(config.block_size, config.n_embd),
            "h": nn.ModuleList([MinBlock(config) for _ in range(config.n_layer)]),
            "ln_f": nn.LayerNorm(config.n_embd),
        }
        self.transformer = nn.ModuleDict(parts)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, idx):
        pos = torch.arange(idx.shape[1]).unsqueeze(0)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads, length, qkv_bias):
        super().__init__()
        self.num_heads = heads
        self.W_query, self.W_key, self.W_value = (nn.Linear(width, width, bias=qkv_bias) for _ in range(3))
        self.out_proj = nn.Linear(width, width)
        self.register_buffer("mask", torch.ones(length, length).triu(1))

    def forward(self, x):
        batch, length, width = x.shape
        keys, queries, values = self.W_key(x), self.W_query(x), self.W_value(x)
        keys = keys.view(batch, length, self.num_heads, -1).transpose(1, 2)
        queries = queries.view(batch, length, self.num_heads, -1).transpose(1, 2)
        values = values.view(batch, length, self.num_heads, -1).transpose(1, 2)
        attn_scores = queries @ keys.transpose(2, 3)
        attn_scores.masked_fill_(self.mask.bool()[:length, :length], -torch.inf)
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        context_vec = (attn_weights @ values).transpose(1, 2).reshape(batch, length, width)
        return self.out_proj(context_vec)


class TextbookNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        norm_x = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)
        return self.scale * norm_x + self.shift


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        return self.layers(x)


class TextbookBlock(nn.Module):
    def __init__(self, width, heads, length, qkv_bias):
        super().__init__()
        self.att, self.ff = MultiHeadAttention(width, heads, length, qkv_bias), FeedForward(width)
        self.norm1, self.norm2 = TextbookNorm(width), TextbookNorm(width)

    def forward(self, x):
        shortcut = x
        x = self.att(self.norm1(x))
        x = x + shortcut
        shortcut = x
        x = self.ff(self.norm2(x))
        return x + shortcut


class Textbook(nn.Module):
    def __init__(self, qkv_bias=True):
        super().__init__()
        self.tok_emb, self.pos_emb = nn.Embedding(101, 40), nn.Embedding(24, 40)
        self.trf_blocks = nn.Sequential(*[TextbookBlock(40, 5, 24, qkv_bias) for _ in range(2)])
        self.final_norm, self.out_head = TextbookNorm(40), nn.Linear(40, 101, bias=False)

    def forward(self, in_idx):
        x = self.tok_emb(in_idx) + self.pos_emb(torch.arange(in_idx.shape[1]))
        return self.out_head(self.final_norm(self.trf_blocks(x)))
