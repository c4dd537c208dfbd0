"""A text as the token ids of a model."""

from __future__ import annotations

from shapetrace.errors import ShapetraceError
from shapetrace.tokens import decode_each, encode
from shapetrace.trace import InputRecord

DEFAULT_TEXT = "The cat sat on the mat"
_WAY_OUT = "or give the model's own ids, such as `--ids 1,2,3`"


def tokenize(text: str, name: str, vocabulary: int | None, context: int | None = None, bos: bool = True) -> InputRecord:
    """The text as GPT-2's token ids, for the model of that name, its number of ids and its longest text.

    Raises ShapetraceError where it is empty, longer than the context, or has an id past the vocabulary.
    """
    if not text:
        raise ShapetraceError("the text is empty", f'give some words, such as `shapetrace run "{DEFAULT_TEXT}"`')
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ShapetraceError("the text is not valid UTF-8", "check the encoding of your terminal or file") from None
    ids = encode(text, bos)
    if context is not None and len(ids) > context:
        raise ShapetraceError(
            f"the text is {len(ids):,} tokens long, and {name}'s n_ctx is {context:,}",
            f"shorten the text, or run random weights with `--set n_ctx={len(ids)}`",
        )
    if vocabulary is not None and max(ids) >= vocabulary:
        token = decode_each([max(ids)])[0]
        without = ", leave <|endoftext|> out with `--no-bos`" if bos else ""
        raise ShapetraceError(
            f"token {token!r} has id {max(ids):,} in GPT-2's tokenizer, and {name}'s vocabulary ends at {vocabulary:,}",
            f"make the vocabulary {max(ids) + 1:,} or more{without}, {_WAY_OUT}",
        )
    return InputRecord(text, ids, decode_each(ids))


def read_ids(text: str, name: str, vocabulary: int | None) -> tuple[int, ...]:
    """`1,2,3` -> (1, 2, 3); raises ShapetraceError for what are no ids of the model."""
    try:
        ids = tuple(int(part) for part in text.replace(" ", ",").split(",") if part)
    except ValueError:
        ids = ()
    if not ids:
        raise ShapetraceError(f"`{text}` are no token ids", "give whole numbers with commas, such as `--ids 1,2,3`")
    wrong = [each for each in ids if not 0 <= each < (vocabulary or 2**63)]
    if wrong:
        limit = f"its ids go from 0 to {vocabulary - 1:,}" if vocabulary else "ids are int64, from 0 up"
        raise ShapetraceError(f"{wrong[0]:,} is no token id of {name}", limit)
    return ids
