"""The whole GPT-2: token ids in, logits out; it owns no parameter of its own."""

from torch import Tensor, nn

from shapetrace.gpt2.block import TransformerBlock
from shapetrace.gpt2.config import Config
from shapetrace.gpt2.embedding import Embed, PosEmbed
from shapetrace.gpt2.normalization import LayerNorm
from shapetrace.gpt2.unembedding import Unembed


class Transformer(nn.Module):
    """Embed, run the blocks in sequence, normalise, unembed."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        self.embed = Embed(cfg)
        self.pos_embed = PosEmbed(cfg)
        self.blocks = nn.ModuleList([TransformerBlock(cfg) for _ in range(cfg.n_layers)])
        self.ln_final = LayerNorm(cfg)
        self.unembed = Unembed(cfg)

    def forward(
        self,
        tokens: Tensor,  # (batch, posn), token ids
    ) -> Tensor:
        residual = self.embed(tokens) + self.pos_embed(tokens)  # (batch, posn, d_model), what + where
        for block in self.blocks:
            residual = block(residual)  # (batch, posn, d_model), after one more block
        logits = self.unembed(self.ln_final(residual))  # (batch, posn, d_vocab), one score per vocab entry
        return logits
