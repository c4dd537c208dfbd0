"""The gated MLP: what one projection expands, another one lets through."""

from torch import Tensor, nn

from shapetrace.forge.config import Config


class SwiGLU(nn.Module):
    """(silu(x W_gate) * x W_up) W_down, each with its bias where there are biases (Shazeer 2020)."""

    def __init__(self, cfg: Config):
        super().__init__()
        width = cfg.mlp_width()
        self.mlp_gate_proj = nn.Linear(cfg.d_model, width, bias=cfg.use_bias)
        self.mlp_up_proj = nn.Linear(cfg.d_model, width, bias=cfg.use_bias)
        self.activation = nn.SiLU()  # x sigmoid(x)
        self.mlp_down_proj = nn.Linear(width, cfg.d_model, bias=cfg.use_bias)
        self.mlp_dropout = nn.Dropout(cfg.drop_prob)

    def forward(
        self,
        normed: Tensor,  # (batch, posn, d_model)
    ) -> Tensor:
        gate = self.activation(self.mlp_gate_proj(normed))  # (batch, posn, d_mlp)
        pre = self.mlp_up_proj(normed)  # (batch, posn, d_mlp)
        post = gate * pre  # (batch, posn, d_mlp), entry by entry
        mlp_out = self.mlp_down_proj(post)  # (batch, posn, d_model)
        return self.mlp_dropout(mlp_out)  # (batch, posn, d_model)
