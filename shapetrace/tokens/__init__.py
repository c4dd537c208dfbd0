"""Text to token ids and back, step by step; GPT-2's tokenizer comes with the package, others are read."""

from shapetrace.tokens.gpt2 import BOS, VOCABULARY, decode_each, encode, load_gpt2, words_of
from shapetrace.tokens.ids import read_ids
from shapetrace.tokens.stream import TextStream
from shapetrace.tokens.tokenizer import Chunk, Merge, Tokenizer

__all__ = [
    "BOS",
    "VOCABULARY",
    "Chunk",
    "Merge",
    "TextStream",
    "Tokenizer",
    "decode_each",
    "encode",
    "load_gpt2",
    "read_ids",
    "words_of",
]
