"""Write traces as YAML, one tensor a line, and read them back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from shapetrace.errors import ShapetraceError, TraceFileError
from shapetrace.schema import from_plain, to_plain
from shapetrace.trace import Trace


def save(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write the trace; the file is whole or as it was before. Raises ShapetraceError where it cannot be written."""
    write_text(path, dump(trace))


def load(path: str | os.PathLike[str]) -> Trace:
    """Read a trace; raises TraceFileError, naming the place, for anything that is not one."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise TraceFileError(f"cannot read `{path}`: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TraceFileError(f"`{path}` is not a text file", "a trace is a YAML file that `--save` wrote") from None
    try:
        return parse(text)
    except TraceFileError as error:
        raise TraceFileError(f"`{path}`: {error.message}", error.hint) from None


def dump(trace: Trace) -> str:
    """The trace as YAML text: no aliases, no folded lines, nothing that differs between two runs."""
    import yaml

    class Row(dict[str, Any]):
        """A mapping that stands on one line."""

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent_row(dumper: yaml.SafeDumper, row: Row) -> yaml.Node:
        return dumper.represent_mapping("tag:yaml.org,2002:map", row.items(), flow_style=True)

    def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
        # What is not printable, a line's end above all, is escaped: a tensor stays on its line.
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')

    Dumper.add_representer(Row, represent_row)
    Dumper.add_representer(str, represent_text)
    # A line is never folded: the limit is a number that no line reaches.
    return yaml.dump(
        to_plain(trace, Row), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=2**31, default_flow_style=None
    )


def parse(text: str) -> Trace:
    """The trace that the YAML text holds; raises TraceFileError where it is none. Never builds a Python object."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one written in C, ten times faster, where it is there
    try:
        plain = yaml.load(text, Loader=loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        where = f" in line {mark.line + 1}" if mark else ""
        raise TraceFileError(f"not readable as YAML: {problem}{where}", "write it anew with `--save`") from None
    return from_plain(plain)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write beside, then rename, so that a reader never sees half a file.

    A pipe or a terminal is written to as it is. Raises ShapetraceError where the place cannot be written to.
    """
    target = Path(os.path.realpath(path))
    special = target.exists() and not target.is_file()
    beside = target if special else target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        if not special:
            os.replace(beside, target)
    except OSError as error:
        if not special:
            beside.unlink(missing_ok=True)
        raise ShapetraceError(f"cannot write `{path}`: {error.strerror}") from None
