"""The MLP: expand, apply the non-linearity, project back, each position on its own."""

from torch import Tensor, nn

from shapetrace.forge.config import Config


class FeedForward(nn.Module):
    """activation(x W_up + b_up) W_down + b_down."""

    def __init__(self, cfg: Config):
        super().__init__()
        width = cfg.mlp_width()
        self.mlp_up_proj = nn.Linear(cfg.d_model, width, bias=cfg.use_bias)
        self.activation = {
            "relu": nn.ReLU(),
            "gelu": nn.GELU(),  # x Phi(x), with erf
            "gelu_tanh": nn.GELU(approximate="tanh"),  # GPT-2's: Hendrycks and Gimpel 2016, section 2
        }[cfg.activation]
        self.mlp_down_proj = nn.Linear(width, cfg.d_model, bias=cfg.use_bias)
        self.mlp_dropout = nn.Dropout(cfg.drop_prob)

    def forward(
        self,
        normed: Tensor,  # (batch, posn, d_model)
    ) -> Tensor:
        pre = self.mlp_up_proj(normed)  # (batch, posn, d_mlp)
        post = self.activation(pre)  # (batch, posn, d_mlp)
        mlp_out = self.mlp_down_proj(post)  # (batch, posn, d_model)
        return self.mlp_dropout(mlp_out)  # (batch, posn, d_model)
