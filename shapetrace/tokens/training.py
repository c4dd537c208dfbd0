"""Learn the merges of a byte-level byte-pair encoding from a text."""

from __future__ import annotations

import json
from pathlib import Path

from shapetrace.errors import ShapetraceError
from shapetrace.tokens.building import BOS, build_tokenizer
from shapetrace.tokens.symbols import SYMBOLS
from shapetrace.tokens.tokenizer import Tokenizer

_FEWEST = len(SYMBOLS) + 1  # the bytes, and <|endoftext|>


def read_corpus(path: str) -> str:
    """The text of a file, as it is to the byte; raises ShapetraceError where it cannot be read or holds none."""
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise ShapetraceError(f"cannot read `{path}`: {error.strerror}", "check the path") from None
    except UnicodeDecodeError as error:
        raise ShapetraceError(
            f"`{path}` is not UTF-8: byte {error.start:,} is 0x{error.object[error.start]:02x}", "convert it first"
        ) from None
    if not text:
        raise ShapetraceError(f"`{path}` is empty", "give a text to learn from")
    return text


def train_tokenizer(text: str, vocabulary: int, name: str = "the trained tokenizer") -> Tokenizer:
    """The encoder whose merges are learned from the text, with so many ids, or fewer where no pair is left to merge.

    The text is split into chunks as GPT-2 splits it, and into bytes. Then, again and again, the pair of neighbours that
    is found most often within the chunks becomes a new piece (Sennrich et al. 2016, algorithm 1). Ids are the bytes
    themselves, from 256 on what the merges make, in their order, and `<|endoftext|>`, which is never learned from.
    Raises ShapetraceError for a vocabulary that does not hold the bytes.
    """
    from tokenizers import Tokenizer as Engine
    from tokenizers import models, pre_tokenizers, trainers

    if vocabulary < _FEWEST:
        raise ShapetraceError(
            f"a vocabulary of {vocabulary:,} is too small: 256 bytes and {BOS} have an id each",
            f"make it {_FEWEST} or more",
        )
    parts = text.split(BOS)
    # The trainer makes room for as many ids as it is told of, and each merge takes a byte from the text at least.
    size = min(vocabulary - 1, len(SYMBOLS) + sum(len(part.encode()) for part in parts))
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=list(SYMBOLS.values()), show_progress=False)
    learner = Engine(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learner.train_from_iterator(parts, trainer)
    merges = json.loads(learner.to_str())["model"]["merges"]
    return build_tokenizer(name, [(left, right) for left, right in merges])
