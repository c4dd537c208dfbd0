"""Whether a model takes token ids, and which: read off its config, or else off its embedding."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

_FIELDS = ("vocab_size", "d_vocab", "n_vocab", "padded_vocab_size", "vocabulary_size", "num_embeddings")
_OTHER_TABLES = re.compile(
    r"pos|wpe|type|seg|label|class|cls|cond|time|step|sigma|noise|lang|speaker|user|item|task|domain|level|dist|rel_|bias",
    re.I,
)
_ANY_TABLE = re.compile(r"\d+|emb\w*|table|lut|weight", re.I)  # names that do not say of what
_TABLES = re.compile(r"(^|\.)(W_E|wte|tok\w*|embed\w*|word\w*)$")


def vocabulary_of(model: nn.Module) -> int | None:
    """How many token ids there are; None for a model that takes none, as far as can be seen."""
    for owner in ("cfg", "config", "args", "hparams"):
        size = _size_in(getattr(model, owner, None))
        if size is not None:
            return size
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and not _OTHER_TABLES.search(_telling(name)):
            return int(module.num_embeddings)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and _TABLES.search(name) and not _OTHER_TABLES.search(_telling(name)):
            return int(parameter.shape[0])
    return None


def _telling(name: str) -> str:
    """The part of a module's path that says what it is: `encoder.label_emb`; of `y_embed.table`, the parent too."""
    *parents, last = name.split(".")
    return f"{parents[-1]}.{last}" if parents and _ANY_TABLE.fullmatch(last) else last


def _size_in(config: Any) -> int | None:
    text = getattr(config, "get_text_config", None)
    for each in (config, text() if callable(text) else None):
        for field in _FIELDS:
            size = each.get(field) if isinstance(each, dict) else getattr(each, field, None)
            if isinstance(size, int) and size > 0:
                return size
    return None
