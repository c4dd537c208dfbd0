"""From which line of yours a module or a helper is called, where what it is given has no name."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from types import FrameType

from shapetrace.recorder.source import locate, read_source
from shapetrace.trace import TensorRecord, split_source


def find_site(is_watched: Callable[[str], bool], outside: int = 0) -> str:
    """The statement under way in the innermost of your functions, or in one further out: `/home/ann/model.py:31`.

    It is looked for between the function that asks and the one of the same file that runs the model.
    """
    yours = (each for each in _frames_from(sys._getframe(1)) if is_watched(each.f_code.co_filename))
    frame = next(islice(yours, outside, None), None)
    if frame is None:
        return ""
    file = frame.f_code.co_filename
    return locate(file, read_source(file).statement_at(frame.f_lineno).first or frame.f_lineno)


def _frames_from(asking: FrameType) -> Iterator[FrameType]:
    """The frames around it, apart from those of its file, up to the next one of its file."""
    frame: FrameType | None = asking
    while frame is not None and frame.f_code.co_filename == asking.f_code.co_filename:
        frame = frame.f_back
    while frame is not None and frame.f_code.co_filename != asking.f_code.co_filename:
        yield frame
        frame = frame.f_back


def is_argument(record: TensorRecord) -> bool:
    """Whether a local name is that of an argument, bound by the head of its function."""
    if record.role != "local" or not record.source:
        return False
    file, line = split_source(record.source)
    root = re.split(r"[.\[]", record.name)[0]
    return any(root in head and head[root].first == line for head in read_source(file).arguments.values())
