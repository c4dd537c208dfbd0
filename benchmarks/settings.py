"""What overhead.py traces: a model's sizes, how many tokens, and how many rounds."""

from typing import NamedTuple

from shapetrace.gpt2 import Config


class Setting(NamedTuple):
    config: Config
    tokens: int
    rounds: int


TOY = Config(n_layers=2, d_model=64, n_heads=4, d_head=16, d_mlp=256, d_vocab=101, n_ctx=32)
SETTINGS = {
    "toy": Setting(TOY, 7, 41),
    "gpt2-small": Setting(Config(), 7, 21),
    "gpt2-small-1024": Setting(Config(), 1024, 5),
}
