"""A tokenizer from its merge list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shapetrace.tokens.symbols import SYMBOLS
from shapetrace.tokens.tokenizer import Tokenizer

BOS = "<|endoftext|>"  # ends a text, and begins one too


def build_tokenizer(name: str, merges: Sequence[tuple[str, str]], byte_order: Iterable[int] = range(256)) -> Tokenizer:
    """The encoder of these merges. Its ids are, in order: the 256 bytes, what each merge makes, `<|endoftext|>`.

    Text is split as GPT-2 splits it (Radford et al. 2019): contractions, words, numbers, other signs, each with the
    space before it, and runs of white space.
    """
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Engine

    # Two merges can make the same piece: it has one id, that of the first.
    pieces = dict.fromkeys([*(SYMBOLS[byte] for byte in byte_order), *(left + right for left, right in merges)])
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    engine = Engine(models.BPE(vocab=vocabulary, merges=list(merges)))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens([AddedToken(BOS, normalized=True)])
    return Tokenizer(name, engine, BOS)
