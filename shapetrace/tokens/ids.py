"""Token ids as they are written on the command line."""

from __future__ import annotations

from shapetrace.errors import ShapetraceError


def read_ids(text: str, name: str, vocabulary: int | None, option: str = "--ids") -> tuple[int, ...]:
    """`1,2,3` -> (1, 2, 3); raises ShapetraceError for what are no ids of the model or tokenizer of that name."""
    try:
        ids = tuple(int(part) for part in text.replace(" ", ",").split(",") if part)
    except ValueError:
        ids = ()
    if not ids:
        raise ShapetraceError(f"`{text}` are no token ids", f"give whole numbers with commas, such as `{option} 1,2,3`")
    wrong = [each for each in ids if not 0 <= each < (vocabulary or 2**63)]
    if wrong:
        limit = f"its ids go from 0 to {vocabulary - 1:,}" if vocabulary else "ids are int64, from 0 up"
        raise ShapetraceError(f"{wrong[0]:,} is no token id of {name}", limit)
    return ids
