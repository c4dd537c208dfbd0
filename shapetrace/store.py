"""Write traces as YAML, one tensor a line, and read them back."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from shapetrace.errors import ShapetraceError, TraceFileError
from shapetrace.headroom import DEEP, headroom
from shapetrace.schema import from_plain, to_plain
from shapetrace.trace import Trace


@contextmanager
def _collecting_later() -> Iterator[None]:
    """A trace is very many objects and holds no rings: Python would go through all of them again and again for nothing.

    With that the time to load a trace grew faster than the trace.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def save(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write the trace; the file is whole or as it was before. Raises ShapetraceError where it cannot be written."""
    write_text(path, dump(trace))


def load(path: str | os.PathLike[str]) -> Trace:
    """Read a trace; raises TraceFileError, naming the place, for anything that is not one."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise TraceFileError(f"cannot read `{path}`: {error.strerror}", "check the path") from None
    except UnicodeDecodeError:
        raise TraceFileError(f"`{path}` is not a text file", "a trace is a YAML file that `--save` wrote") from None
    try:
        return parse(text)
    except TraceFileError as error:
        raise TraceFileError(f"`{path}`: {error.message}", error.hint) from None


@_collecting_later()
@headroom(DEEP)
def dump(trace: Trace) -> str:
    """The trace as YAML text: no aliases, no folded lines, nothing that differs between two runs."""
    import yaml

    try:
        plain = to_plain(trace, Row)
        text = _dump(plain, getattr(yaml, "CSafeDumper", yaml.SafeDumper))
        # The one written in C is several times as fast, and takes a character beyond U+FFFF, an emoji, for none.
        return _dump(plain, yaml.SafeDumper) if "\\U" in text else text
    except RecursionError:
        raise ShapetraceError("the trace's modules are nested too deep to be written", "record a part of it") from None


class Row(dict[str, Any]):
    """A mapping that stands on one line."""


def _dump(plain: dict[str, Any], base: Any) -> str:
    import yaml

    class Dumper(base):  # type: ignore[misc] # chosen when it runs
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent_row(dumper: yaml.SafeDumper, row: Row) -> yaml.Node:
        return dumper.represent_mapping("tag:yaml.org,2002:map", row.items(), flow_style=True)

    def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
        # What is not printable, a line's end above all, is escaped: a tensor stays on its line. A half of a character
        # that was never one, which an exception's message may hold, is told as its escape: no YAML holds it.
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')

    Dumper.add_representer(Row, represent_row)
    Dumper.add_representer(str, represent_text)
    # A line is never folded: the limit is a number that no line reaches.
    text: str = yaml.dump(
        plain, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=2**31 - 1, default_flow_style=None
    )
    return text


@_collecting_later()
@headroom(DEEP)
def parse(text: str) -> Trace:
    """The trace that the YAML text holds; raises TraceFileError where it is none. Never builds a Python object."""
    import yaml

    try:
        _refuse_what_no_trace_has(text)
        plain = yaml.load(text, Loader=_unique_keys())
        return from_plain(plain)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        where = f" in line {mark.line + 1}" if mark else ""
        raise TraceFileError(f"not readable as YAML: {problem}{where}", _AGAIN) from None
    except RecursionError:
        raise TraceFileError("its modules are nested too deep", _AGAIN) from None


_AGAIN = "record it again with `--save`"
# No alias, anchor or tag begins within a word or before a space, but for the tag of a single `!`. In most traces there
# is nothing that looks like one, and to go through the file for them takes as long as to read it.
_MAY_BE_SIGN = re.compile(r"(?<!\w)(?:[&*]\S|!)")


def _refuse_what_no_trace_has(text: str) -> None:
    """Aliases, with which a small file can stand for a huge one, and tags, which ask for Python objects."""
    import yaml

    if not _MAY_BE_SIGN.search(text):
        return
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise TraceFileError(f"line {line} has an alias (`&` or `*`), and no trace has", _AGAIN)
        if getattr(event, "tag", None):
            raise TraceFileError(f"line {line} has a tag (`!`), and no trace has", _AGAIN)


def _unique_keys() -> Any:
    """A safe loader, the one written in C where it is there, that refuses a key that comes twice."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # chosen when it runs
        def __init__(self, text: str):
            super().__init__(text)
            # A trace says the same again and again; what kind of value it is, is asked with several patterns.
            self.resolve = cache(super().resolve)

        def construct_document(self, node: yaml.Node) -> Any:
            """As the base does it, without what only aliases need: to start with parts that are not whole."""
            if isinstance(node, yaml.SequenceNode):
                return [self.construct_document(each) for each in node.value]
            if isinstance(node, yaml.ScalarNode):
                return node.value if node.tag == "tag:yaml.org,2002:str" else self.construct_object(node)
            mapping = {}
            for key, value in node.value:
                if key.value in mapping:
                    raise yaml.constructor.ConstructorError(None, None, f"`{key.value}` comes twice", key.start_mark)
                mapping[key.value] = self.construct_document(value)
            return mapping

    return Loader


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """`write_bytes` of the text in UTF-8; a lone surrogate, which is no character, is written as its escape."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write beside, then rename, so that a reader never sees half a file.

    A pipe or a terminal is written to as it is. Raises ShapetraceError where the place cannot be written to.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        target = beside = Path(path)
    else:
        target = Path(os.path.realpath(path))
        beside = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    try:
        beside.write_bytes(content)
        if beside is not target:
            if target.exists():
                beside.chmod(target.stat().st_mode)
            os.replace(beside, target)
    except OSError as error:
        if beside is not target:
            with suppress(OSError):  # that of a name which is too long, too
                beside.unlink()
        raise ShapetraceError(f"cannot write `{path}`: {error.strerror}", "give another path") from None


def check_outputs(outputs: Iterable[str | None], inputs: Iterable[str] = ()) -> None:
    """Raise ShapetraceError where `write_text` could not write one of them, or would write over another, or an input.

    None is no output; an input may be something else than a file.
    """
    taken = {os.path.realpath(each): "it is read here" for each in inputs if os.path.isfile(each)}
    for path in outputs:
        if path is None:
            continue
        real = os.path.realpath(path)
        is_special = os.path.exists(real) and not os.path.isfile(real)  # a pipe, a terminal: written to as it is
        folder = os.path.dirname(real)
        may_write = os.access(real, os.W_OK) if is_special else os.path.isdir(folder) and os.access(folder, os.W_OK)
        if not path or os.path.isdir(real) or not may_write:
            raise ShapetraceError(f"cannot write `{path}`: no such folder, or not writable", "give another path")
        if real in taken:
            raise ShapetraceError(f"cannot write `{path}`: {taken[real]}", "give each file a name of its own")
        if not is_special:
            taken[real] = "another output goes there"
