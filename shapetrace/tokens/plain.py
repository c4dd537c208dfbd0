"""An encoding, a decoding and a training as JSON tells them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shapetrace.tokens.symbols import write_word
from shapetrace.tokens.tokenizer import Chunk, Merge, Tokenizer


def encoding_to_plain(tokenizer: Tokenizer, chunks: Sequence[Chunk], steps: bool = False) -> dict[str, Any]:
    """The ids, and each chunk with its bytes (hexadecimal), ids and pieces; with steps its merges too."""
    plain = []
    for chunk in chunks:
        merges = {"merges": [_merge(each) for each in tokenizer.merges_of(chunk)]} if steps else {}
        plain.append({**_piece(chunk.content), "ids": list(chunk.ids), "pieces": _words(chunk.pieces), **merges})
    ids = [index for chunk in chunks for index in chunk.ids]
    return {
        **{"tokenizer": tokenizer.name, "vocabulary": tokenizer.size},
        **{"text": tokenizer.decode(ids), "ids": ids, "chunks": plain},
    }


def decoding_to_plain(tokenizer: Tokenizer, ids: Sequence[int]) -> dict[str, Any]:
    """The text, and each id with its bytes, its piece and what it is merged of."""
    plain = []
    for index in ids:
        made = tokenizer.made_of(index)
        merged = {"rank": made[0], "merged_of": _words(made[1:])} if made else {}
        plain.append({"id": index, **_piece(tokenizer.bytes_of(index)), **merged})
    return {
        **{"tokenizer": tokenizer.name, "vocabulary": tokenizer.size},
        **{"text": tokenizer.decode(ids), "tokens": plain},
    }


def training_to_plain(tokenizer: Tokenizer, content: str, ids: Sequence[int]) -> dict[str, Any]:
    """The merge list, and what the tokenizer makes of the text that it was learned from."""
    merges = [_words(made[1:]) for made in map(tokenizer.made_of, range(tokenizer.size)) if made]
    return {
        **{"tokenizer": tokenizer.name, "vocabulary": tokenizer.size, "merges": merges},
        **{"bytes": len(content.encode()), "tokens": len(ids), "decodes_exactly": tokenizer.decode(ids) == content},
    }


def _piece(content: bytes) -> dict[str, str]:
    return {"text": write_word(content), "bytes": content.hex(" ")}


def _merge(merge: Merge) -> dict[str, Any]:
    return {"rank": merge.rank, "merged_of": _words((merge.left, merge.right)), "pieces": _words(merge.pieces)}


def _words(pieces: Sequence[bytes]) -> list[str]:
    return [write_word(each) for each in pieces]
