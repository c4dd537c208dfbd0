"""The sizes and the variants of a forge; the defaults are GPT-2 small's."""

from dataclasses import dataclass
from typing import Literal, get_args

Activation = Literal["relu", "gelu", "gelu_tanh", "swiglu"]
Attention = Literal["sdpa", "manual"]
Positions = Literal["learned", "sinusoidal"]


@dataclass(frozen=True)
class Config:
    """Sizes under the names that the modular GPT-2 has for them. Each head is d_model / n_heads wide."""

    d_model: int = 768  # width of the residual stream, a multiple of n_heads
    n_heads: int = 12
    n_layers: int = 12
    n_ctx: int = 1024  # the longest sequence
    d_vocab: int = 50257
    d_mlp: int | None = None  # width inside the MLP; None: 4 * d_model, or for SwiGLU 8/3 of it
    activation: Activation = "gelu_tanh"  # gelu is the exact one, with erf
    attention: Attention = "sdpa"  # sdpa: torch's fused kernel
    positions: Positions = "learned"
    use_bias: bool = True  # in every projection and LayerNorm; the head never has one
    scale_embedding: bool = False  # token vectors times sqrt(d_model), as in Vaswani et al. 2017, section 3.4
    drop_prob: float = 0.0  # of each dropout, in training mode
    layer_norm_eps: float = 1e-5
    init_range: float = 0.02  # standard deviation of a fresh weight

    def __post_init__(self) -> None:
        for field, kind in (("activation", Activation), ("attention", Attention), ("positions", Positions)):
            if getattr(self, field) not in get_args(kind):
                raise ValueError(f"{field} is one of {', '.join(get_args(kind))}, not {getattr(self, field)!r}")

    def mlp_width(self) -> int:
        """d_mlp, or what follows from d_model.

        SwiGLU has three matrices where the others have two: with 8/3 for 4 it has as many parameters (Shazeer 2020),
        here rounded up to a multiple of 8.
        """
        if self.d_mlp is not None:
            return self.d_mlp
        return -(-self.d_model // 3) * 8 if self.activation == "swiglu" else 4 * self.d_model
