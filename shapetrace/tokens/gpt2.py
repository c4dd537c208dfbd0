"""GPT-2's tokenizer, without a network: the merge table comes with the package."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from functools import cache
from importlib import resources

from shapetrace.tokens.building import BOS, build_tokenizer
from shapetrace.tokens.symbols import GPT2_ORDER
from shapetrace.tokens.tokenizer import Tokenizer

__all__ = ["BOS", "VOCABULARY", "decode_each", "encode", "load_gpt2", "words_of"]

VOCABULARY = 50257  # ids: 256 bytes, 50,000 merges, and <|endoftext|>


@cache
def load_gpt2() -> Tokenizer:
    """GPT-2's byte-pair encoder (Radford et al. 2019, section 2.2), built from its 50,000 merges."""
    packed = resources.files("shapetrace").joinpath("data/gpt2_merges.txt.gz").read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").splitlines()[1:]  # the first line is a header
    merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines)]
    return build_tokenizer("GPT-2's tokenizer", merges, GPT2_ORDER)


def encode(text: str, bos: bool = True) -> tuple[int, ...]:
    """The ids of the text, by default after `<|endoftext|>`.

    >>> encode("The cat sat on the mat")
    (50256, 464, 3797, 3332, 319, 262, 2603)
    """
    return load_gpt2().encode(text, bos)


def decode_each(ids: Iterable[int]) -> tuple[str, ...]:
    """The text of each id on its own; bytes that are only part of a character are written `\\xe2`."""
    return load_gpt2().words(ids)


def words_of(ids: Iterable[int], vocabulary: int | None, tokenizer: Tokenizer | None = None) -> tuple[str, ...]:
    """What the ids stand for in the tokenizer that was chosen.

    Where none was: GPT-2's words where the vocabulary's size is GPT-2's, else `<id 44>`. GPT-2's is often made a little
    larger, up to a multiple of 128, for speed.
    """
    if tokenizer is not None:
        return tokenizer.words(ids)
    is_gpt2 = vocabulary is not None and VOCABULARY <= vocabulary <= -(-VOCABULARY // 128) * 128
    return decode_each(ids) if is_gpt2 else tuple(f"<id {each}>" for each in ids)
