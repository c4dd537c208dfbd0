"""The whole forge: token ids in; the last position's logits out, or with targets all logits and the loss."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapetrace.forge.block import DecoderBlock
from shapetrace.forge.config import Config
from shapetrace.forge.normalization import LayerNorm
from shapetrace.forge.positions import SinusoidalEmbedding


class Transformer(nn.Module):
    """Embed, run the layers in sequence, normalise, and score each vocab entry by its own embedding."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        learned = cfg.positions == "learned"
        self.token_embedding = nn.Embedding(cfg.d_vocab, cfg.d_model)
        self.position_embedding = nn.Embedding(cfg.n_ctx, cfg.d_model) if learned else SinusoidalEmbedding(cfg)
        self.embed_dropout = nn.Dropout(cfg.drop_prob)
        self.layers = nn.ModuleList([DecoderBlock(cfg) for _ in range(cfg.n_layers)])
        self.final_norm = LayerNorm(cfg)
        self.lm_head = nn.Linear(cfg.d_model, cfg.d_vocab, bias=False)
        self.lm_head.weight = self.token_embedding.weight  # (d_vocab, d_model), one tensor with two names
        self.apply(self._initialise)

    def _initialise(self, module: nn.Module) -> None:
        """Normal weights and biases of 0, as in GPT-2."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.cfg.init_range)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(
        self,
        token_ids: Tensor,  # (batch, posn)
        targets: Tensor | None = None,  # (batch, posn), the next token at each position; -1 counts for nothing
    ) -> tuple[Tensor, Tensor | None]:
        positions = torch.arange(token_ids.shape[1], device=token_ids.device)  # (posn)
        tok_vec = self.token_embedding(token_ids)  # (batch, posn, d_model)
        if self.cfg.scale_embedding:
            tok_vec = tok_vec * math.sqrt(self.cfg.d_model)  # (batch, posn, d_model), times sqrt(d_model)
        pos_vec = self.position_embedding(positions)  # (posn, d_model), the same for each sequence
        hidden_state = self.embed_dropout(tok_vec + pos_vec)  # (batch, posn, d_model), what + where
        for layer in self.layers:
            hidden_state = layer(hidden_state)  # (batch, posn, d_model), after one more layer
        hidden_state = self.final_norm(hidden_state)  # (batch, posn, d_model)
        if targets is None:
            logits = self.lm_head(hidden_state[:, [-1]])  # (batch, 1, d_vocab), of the last position only
            return logits, None
        logits = self.lm_head(hidden_state)  # (batch, posn, d_vocab)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)  # (), mean over the targets
        return logits, loss
