"""Attention as one writes it, with its shapes behind the lines. Two of them were true once."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, n_embd=64, n_head=4):
        super().__init__()
        self.n_head = n_head
        self.qkv = nn.Linear(n_embd, 3 * n_embd)
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(C, dim=2)  # (B, T, C) each
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  # (B, T, nh, hs)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  # (B, nh, T, hs)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  # (B, nh, T, hs)
        att = q @ k.mT  # (B, nh, T, hs) x (B, nh, hs, T) -> (B, nh, T, T)
        mask = torch.ones(T, T).triu(1).bool()  # (T, T)
        att = att.masked_fill(mask, float("-inf")).softmax(dim=-1)  # (B, nh, T, T)
        y = (att @ v).transpose(1, 2).reshape(B, T, C)  # (B, T, T)
        return self.proj(y)  # (B, T, C)
