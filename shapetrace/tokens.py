"""Text to GPT-2's token ids and back, without a network: the merge table comes with the package."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCABULARY = 50257  # ids: 256 bytes, 50,000 merges, and
BOS = "<|endoftext|>"  # GPT-2's only special token: it ends a text, and begins one too


def encode(text: str, bos: bool = True) -> tuple[int, ...]:
    """The ids of the text, by default after `<|endoftext|>`.

    >>> encode("The cat sat on the mat")
    (50256, 464, 3797, 3332, 319, 262, 2603)
    """
    return tuple(load_tokenizer().encode(BOS + text if bos else text).ids)


def decode_each(ids: Iterable[int]) -> tuple[str, ...]:
    """The text of each id on its own; bytes that are only part of a character are written `\\xe2`."""
    tokenizer = load_tokenizer()
    byte_of = {symbol: byte for byte, symbol in enumerate(_byte_symbols())}

    def text_of(index: int) -> str:
        piece = tokenizer.id_to_token(index)
        if piece is None:
            return f"<id {index}>"
        if piece == BOS:
            return BOS
        return bytes(byte_of[symbol] for symbol in piece).decode("utf-8", "backslashreplace")

    return tuple(text_of(index) for index in ids)


def words_of(ids: Iterable[int], vocabulary: int | None) -> tuple[str, ...]:
    """What the ids of a vocabulary of that size stand for: GPT-2's words where it is GPT-2's, else `<id 44>`.

    GPT-2's is often made a little larger, up to a multiple of 128, for speed.
    """
    is_gpt2 = vocabulary is not None and VOCABULARY <= vocabulary <= -(-VOCABULARY // 128) * 128
    return decode_each(ids) if is_gpt2 else tuple(f"<id {each}>" for each in ids)


@cache
def load_tokenizer() -> Tokenizer:
    """GPT-2's byte-pair encoder (Radford et al. 2019, section 2.2), built from its 50,000 merges.

    Ids are, in order: the 256 bytes, each merge's result, `<|endoftext|>`.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    merges = [(left, right) for left, _, right in (line.partition(" ") for line in _merge_lines())]
    pieces = [symbol for _, symbol in sorted(zip(_id_order(), _byte_symbols(), strict=True))]
    pieces += [left + right for left, right in merges]
    tokenizer = Tokenizer(models.BPE(vocab={piece: index for index, piece in enumerate(pieces)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(BOS, normalized=True)])
    return tokenizer


def _merge_lines() -> list[str]:
    packed = resources.files("shapetrace").joinpath("data/gpt2_merges.txt.gz").read_bytes()
    return gzip.decompress(packed).decode("utf-8").splitlines()[1:]  # the first line is a header


def _printable() -> list[int]:
    """The bytes that stand for themselves in the merge table: the visible ones of Latin-1."""
    return [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]


def _byte_symbols() -> list[str]:
    """The character that stands for each byte: itself where it is visible, else the next one from U+0100 on."""
    visible = set(_printable())
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in visible else chr(next(hidden)) for byte in range(256)]


def _id_order() -> list[int]:
    """The id of each byte: visible bytes come first, in the order of the table."""
    order = _printable() + [byte for byte in range(256) if byte not in set(_printable())]
    ids = {byte: index for index, byte in enumerate(order)}
    return [ids[byte] for byte in range(256)]
