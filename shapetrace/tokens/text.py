"""What can be tokenized."""

from __future__ import annotations

from shapetrace.errors import ShapetraceError

DEFAULT_TEXT = "The cat sat on the mat"


def check_text(text: str) -> str:
    """The text itself; raises ShapetraceError where it is empty, or holds what a terminal could not decode."""
    if not text:
        raise ShapetraceError("the text is empty", f'give some words, such as "{DEFAULT_TEXT}"')
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ShapetraceError("the text is not valid UTF-8", "check the encoding of your terminal or file") from None
    return text
