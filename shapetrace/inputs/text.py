"""A text as the token ids of a model."""

from __future__ import annotations

from shapetrace.errors import ShapetraceError
from shapetrace.tokens import Tokenizer, load_gpt2
from shapetrace.tokens.text import check_text
from shapetrace.trace import InputRecord

_WAY_OUT = "or give the model's own ids, such as `--ids 1,2,3`"


def tokenize(
    text: str,
    name: str,
    vocabulary: int | None,
    context: int | None = None,
    bos: bool = True,
    tokenizer: Tokenizer | None = None,
) -> InputRecord:
    """The text as token ids, GPT-2's if no other tokenizer is given, for the model of that name, its number of ids and
    its longest text.

    Raises ShapetraceError where it is empty, longer than the context, or has an id past the vocabulary.
    """
    check_text(text)
    tokenizer = tokenizer or load_gpt2()
    ids = tokenizer.encode(text, bos)
    if context is not None and len(ids) > context:
        raise ShapetraceError(
            f"the text is {len(ids):,} tokens long, and {name}'s n_ctx is {context:,}",
            f"shorten the text, or run random weights with `--set n_ctx={len(ids)}`",
        )
    if vocabulary is not None and max(ids) >= vocabulary:
        token = tokenizer.words([max(ids)])[0]
        without = f", leave {tokenizer.bos} out with `--no-bos`" if bos and tokenizer.bos else ""
        raise ShapetraceError(
            f"token {token!r} has id {max(ids):,} in {tokenizer.name}, and {name}'s vocabulary ends at {vocabulary:,}",
            f"make the vocabulary {max(ids) + 1:,} or more{without}, {_WAY_OUT}",
        )
    return InputRecord(text, ids, tokenizer.words(ids))
