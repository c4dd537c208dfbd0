"""Text that comes token by token: a token may end in the middle of a character."""

from __future__ import annotations

import codecs


class TextStream:
    """Bytes to text as they come; the bytes of a character that is not whole yet are held back."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, piece: bytes) -> str:
        """What can be shown now; bytes that can be part of no character are U+FFFD."""
        return self._decoder.decode(piece)

    def end(self) -> str:
        """What was held back, where it never became whole: U+FFFD."""
        return self._decoder.decode(b"", final=True)
