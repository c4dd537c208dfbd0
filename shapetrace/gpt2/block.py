"""One layer: attention, then the MLP, each reading the stream and adding to it."""

from torch import Tensor, nn

from shapetrace.gpt2.attention import Attention
from shapetrace.gpt2.config import Config
from shapetrace.gpt2.mlp import MLP
from shapetrace.gpt2.normalization import LayerNorm


class TransformerBlock(nn.Module):
    """What attention and the MLP read is normalised; what they add to is not."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.ln1 = LayerNorm(cfg)
        self.attn = Attention(cfg)
        self.ln2 = LayerNorm(cfg)
        self.mlp = MLP(cfg)

    def forward(
        self,
        resid_pre: Tensor,  # (batch, posn, d_model), as it arrives
    ) -> Tensor:
        resid_mid = self.attn(self.ln1(resid_pre)) + resid_pre  # resid_pre + attn_out
        resid_post = self.mlp(self.ln2(resid_mid)) + resid_mid  # resid_mid + mlp_out
        return resid_post
