"""Put the comments into the files, or show what that would change."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from shapetrace.annotation.annotated import AnnotatedFile
from shapetrace.errors import ShapetraceError
from shapetrace.packages import package_of
from shapetrace.store import write_bytes


def write_annotations(files: Sequence[AnnotatedFile]) -> None:
    """Write the comments into the files: into all of them, or, where one cannot be edited or written, into none.

    Raises ShapetraceError where a file belongs to an installed package, is not writable, or would become another
    program.
    """
    for file in files:
        if file.layout is not None:
            _check_editable(file)
    changed = [(file, file.written()) for file in files if file.comments]
    begun: list[AnnotatedFile] = []
    try:
        for file, content in changed:
            begun.append(file)
            write_bytes(file.path, content)
    except BaseException:
        for file in begun:
            if Path(file.path).read_bytes() != file.content:
                write_bytes(file.path, file.content)
        raise


def _check_editable(file: AnnotatedFile) -> None:
    real = os.path.realpath(file.path)
    package = package_of(file.path) or package_of(real)
    if package:
        name = os.path.basename(package).removesuffix(".py")
        raise ShapetraceError(
            f"`{file.name}` belongs to an installed package, {name}; nothing is written",
            "`--diff` shows the comments as a patch; annotate a model of your own, or a copy of this one",
        )
    # Root may write anything; a file that is marked as not to be written is not.
    may = os.stat(real).st_mode & 0o222 and all(os.access(each, os.W_OK) for each in (real, Path(real).parent))
    if file.comments and not may:
        raise ShapetraceError(f"`{file.name}` is not writable; nothing is written", "make it writable, or use `--diff`")


def patch_folder(files: Sequence[AnnotatedFile]) -> str:
    """Where a patch of the files is applied: in the current folder, or in the innermost around all, if that is outside.

    Neither `patch` nor `git apply` follows a path that goes up.
    """
    folders = [os.path.dirname(os.path.abspath(file.path)) for file in files if file.comments]
    here = os.getcwd()
    around = os.path.commonpath([*folders, here])
    return here if around == here else os.path.commonpath(folders)


def write_patch(file: AnnotatedFile, folder: str | None = None) -> bytes:
    """What writing would change, as a unified diff for `patch -p1` or `git apply`; empty where there is nothing.

    folder: where it will be applied, the current one if not told.
    """
    path = os.path.relpath(file.path, folder)
    # A name with a space in it ends with a tab: else `patch` takes what follows the space for a date.
    name = os.fsencode(path.replace(os.sep, "/")) + (b"\t" if " " in path else b"")
    old, new = _lines(file.content), _lines(file.written())
    lines = difflib.diff_bytes(difflib.unified_diff, old, new, b"a/" + name, b"b/" + name)
    return b"".join(_ended(lines))


def _lines(content: bytes) -> list[bytes]:
    """Lines as `patch` reads them, which knows of no line end but \\n."""
    return re.findall(rb"[^\n]*\n|[^\n]+", content)


def _ended(lines: Iterator[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
