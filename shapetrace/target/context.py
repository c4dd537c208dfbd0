"""How many tokens a model takes at once: read off its config, or else off its table of positions."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

_FIELDS = (
    *("n_ctx", "block_size", "n_positions", "max_position_embeddings", "context_length", "max_seq_len"),
    *("max_sequence_length", "seq_len", "context_size", "max_len"),
)
_TABLES = re.compile(
    r"(^|\.)(wpe|W_pos|pos(ition(al)?)?s?(_?emb\w*|_?enc\w*|_table)?|embed_positions)(\.(weight|W_pos|emb\w*))*$", re.I
)


def context_of(model: nn.Module) -> int | None:
    """The longest text in tokens; None where the model does not tell, or takes any length."""
    for owner in (*(getattr(model, name, None) for name in ("cfg", "config", "args", "hparams")), model):
        for field in _FIELDS:
            size: Any = owner.get(field) if isinstance(owner, dict) else getattr(owner, field, None)
            if isinstance(size, int) and size > 0:
                return size
    for name, parameter in model.named_parameters():
        if _TABLES.search(name) and parameter.ndim >= 2:
            return max(parameter.shape[:-1])
    return None
