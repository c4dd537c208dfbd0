"""A byte-level byte-pair encoding: text to ids, ids to bytes, and the merges between them one by one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from shapetrace.errors import ShapetraceError
from shapetrace.tokens.symbols import SYMBOLS, to_bytes, write_word

if TYPE_CHECKING:
    import tokenizers

Ranks = dict[tuple[str, str], int]  # of two pieces the number of the merge that joins them, from 1


@dataclass(frozen=True, slots=True)
class Merge:
    """One step of an encoding: a pair of neighbours becomes one piece, wherever it stands in the chunk."""

    rank: int  # its place in the merge list, from 1: of all pairs in the chunk the lowest is merged first
    left: bytes
    right: bytes
    pieces: tuple[bytes, ...]  # the chunk's, after it


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the text that is encoded by itself."""

    content: bytes
    ids: tuple[int, ...]
    pieces: tuple[bytes, ...]
    is_special: bool = False  # a token that stands for no text, such as <|endoftext|>


@dataclass(frozen=True)
class Tokenizer:
    """What a text is split by, and the merge list (Sennrich et al. 2016; over bytes, Radford et al. 2019).

    Any text has an encoding, for its bytes have one.
    """

    name: str  # as messages have it: `GPT-2's tokenizer`
    engine: tokenizers.Tokenizer = field(repr=False)
    bos: str | None = None  # the special token that a text begins with

    @cached_property
    def size(self) -> int:
        """How many ids there are, from 0 on."""
        return self.engine.get_vocab_size()

    def encode(self, text: str, bos: bool = True) -> tuple[int, ...]:
        """The ids of the text, by default after the special token with which it begins, where there is one."""
        begun = (self.bos or "") + text if bos else text
        return tuple(self.engine.encode(begun, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text; what is no whole character comes out as U+FFFD. Raises ShapetraceError for what is no id."""
        return b"".join(map(self.bytes_of, ids)).decode("utf-8", "replace")

    def bytes_of(self, index: int) -> bytes:
        """What the id stands for; raises ShapetraceError where there is no such id."""
        piece = self._piece(index)
        if piece is None:
            raise ShapetraceError(f"{index:,} is no id of {self.name}", f"its ids go from 0 to {self.size - 1:,}")
        return piece.encode() if piece in self._added else to_bytes(piece)

    def _piece(self, index: int) -> str | None:
        return self.engine.id_to_token(index) if 0 <= index < 2**32 else None

    def words(self, ids: Iterable[int]) -> tuple[str, ...]:
        """What each id stands for by itself, as text; `<id 60000>` where it is none of these."""
        return tuple(f"<id {each}>" if self._piece(each) is None else write_word(self.bytes_of(each)) for each in ids)

    def split(self, text: str) -> tuple[Chunk, ...]:
        """The text's chunks, each with its ids."""
        encoded = self.engine.encode(text, add_special_tokens=False)
        by_chunk = groupby(zip(encoded.word_ids, encoded.ids, strict=True), key=lambda pair: pair[0])
        return tuple(self._chunk(tuple(index for _, index in pairs)) for _, pairs in by_chunk)

    def _chunk(self, ids: tuple[int, ...]) -> Chunk:
        pieces = tuple(map(self.bytes_of, ids))
        return Chunk(b"".join(pieces), ids, pieces, self.engine.id_to_token(ids[0]) in self._added)

    def merges_of(self, chunk: Chunk) -> Iterator[Merge]:
        """How the chunk's bytes become its pieces, one merge after the other."""
        whole = "".join(SYMBOLS[byte] for byte in chunk.content)
        if chunk.is_special or (self._model["ignore_merges"] and self.engine.token_to_id(whole) is not None):
            return  # taken as a whole
        pieces: list[str] = list(whole)
        while pairs := [pair for pair in pairwise(pieces) if pair in self.ranks]:
            left, right = min(pairs, key=self.ranks.__getitem__)
            pieces = _join(pieces, left, right)
            yield Merge(self.ranks[left, right], to_bytes(left), to_bytes(right), tuple(map(to_bytes, pieces)))

    def made_of(self, index: int) -> tuple[int, bytes, bytes] | None:
        """The merge that makes the id: its rank and its two parts; None of a single byte and of a special token."""
        piece = self.engine.id_to_token(index)
        if piece not in self._makers:
            return None
        left, right = self._makers[piece]
        return self.ranks[left, right], to_bytes(left), to_bytes(right)

    def id_of(self, piece: bytes) -> int:
        """The id of a piece; raises ShapetraceError where none stands for it."""
        index = self.engine.token_to_id("".join(SYMBOLS[byte] for byte in piece))
        if index is None:
            raise ShapetraceError(f"{self.name} has no id for {write_word(piece)!r}", "encode it: it takes several")
        return index

    @cached_property
    def ranks(self) -> Ranks:
        """The merge list, by pair."""
        pairs = (tuple(each.split(" ")) if isinstance(each, str) else tuple(each) for each in self._model["merges"])
        return {(left, right): rank for rank, (left, right) in enumerate(pairs, 1)}

    @cached_property
    def _makers(self) -> dict[str, tuple[str, str]]:
        return {left + right: (left, right) for left, right in reversed(self.ranks)}  # the first merge, where several

    @cached_property
    def _added(self) -> frozenset[str]:
        return frozenset(each.content for each in self.engine.get_added_tokens_decoder().values())

    @cached_property
    def _model(self) -> dict[str, Any]:
        model: dict[str, Any] = json.loads(self.engine.to_str())["model"]
        return model


def _join(pieces: Sequence[str], left: str, right: str) -> list[str]:
    """Each pair of left and right as one piece, from the left on, no piece in two pairs."""
    joined: list[str] = []
    at = 0
    while at < len(pieces):
        is_pair = at + 1 < len(pieces) and pieces[at] == left and pieces[at + 1] == right
        joined.append(left + right if is_pair else pieces[at])
        at += 2 if is_pair else 1
    return joined
