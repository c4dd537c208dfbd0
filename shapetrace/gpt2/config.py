"""The sizes of a GPT-2; the defaults are GPT-2 small's."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """Sizes as in Radford et al. 2019, table 2, under TransformerLens names."""

    d_model: int = 768  # width of the residual stream
    debug: bool = False  # free for a script of yours to read; no module here does
    layer_norm_eps: float = 1e-5  # added to the variance, so that the root is never 0
    d_vocab: int = 50257  # 256 bytes, 50,000 merges, <|endoftext|>
    init_range: float = 0.02  # standard deviation of a fresh weight
    n_ctx: int = 1024  # positions that W_pos has a row for
    d_head: int = 64  # width of one head's q, k and v
    d_mlp: int = 3072  # width inside the MLP, 4 * d_model
    n_heads: int = 12
    n_layers: int = 12
