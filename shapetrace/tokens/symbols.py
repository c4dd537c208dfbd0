"""The characters that stand for the 256 bytes in a merge table (Radford et al. 2019, in their code)."""

from __future__ import annotations

_VISIBLE = (*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1))
_HIDDEN = tuple(byte for byte in range(256) if byte not in _VISIBLE)

# A byte stands for itself where it is a visible character of Latin-1, else the next character from U+0100 on does.
SYMBOLS = {**{byte: chr(byte) for byte in _VISIBLE}, **{byte: chr(256 + at) for at, byte in enumerate(_HIDDEN)}}
BYTES = {symbol: byte for byte, symbol in SYMBOLS.items()}
GPT2_ORDER = (*_VISIBLE, *_HIDDEN)  # GPT-2's ids begin with the bytes in this order


def to_bytes(piece: str) -> bytes:
    """`Ġcat` -> b" cat"; raises KeyError where a character stands for no byte."""
    return bytes(BYTES[symbol] for symbol in piece)


def write_word(piece: bytes) -> str:
    """As text; bytes that are only part of a character are written `\\xe2`."""
    return piece.decode("utf-8", "backslashreplace")
