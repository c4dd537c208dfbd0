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
            check_editable(file.path, file.name, bool(file.comments))
    write_files([(file.path, file.content, file.written()) for file in files if file.comments])


def write_files(changed: Sequence[tuple[str, bytes, bytes]]) -> None:
    """Write each file's new content, or, where one cannot be written, leave all with their old."""
    begun: list[tuple[str, bytes]] = []
    try:
        for path, old, new in changed:
            begun.append((path, old))
            write_bytes(path, new)
    except BaseException:
        for path, old in begun:
            if Path(path).read_bytes() != old:
                write_bytes(path, old)
        raise


_IN_PACKAGE = "`--diff` shows the comments as a patch; annotate a model of your own, or a copy of this one"
_READ_ONLY = "make it writable, or use `--diff`"


def check_editable(
    path: str, name: str, is_changed: bool = True, in_package: str = _IN_PACKAGE, read_only: str = _READ_ONLY
) -> None:
    """Raises ShapetraceError for a file of an installed package, and where it is to be changed and may not be.

    in_package, read_only: what to do about it.
    """
    real = os.path.realpath(path)
    package = package_of(path) or package_of(real)
    if package:
        owner = os.path.basename(package).removesuffix(".py")
        raise ShapetraceError(
            f"`{name}` belongs to an installed package, {owner}; nothing is written",
            in_package,
        )
    # Root may write anything; a file that is marked as not to be written is not.
    may = os.stat(real).st_mode & 0o222 and all(os.access(each, os.W_OK) for each in (real, Path(real).parent))
    if is_changed and not may:
        raise ShapetraceError(f"`{name}` is not writable; nothing is written", read_only)


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
    return patch_of(file.path, file.content, file.written(), folder)


def patch_of(path: str, before: bytes, after: bytes, folder: str | None = None) -> bytes:
    """The same for any two contents of a file."""
    below = os.path.relpath(path, folder)
    # A name with a space in it ends with a tab: else `patch` takes what follows the space for a date.
    name = os.fsencode(below.replace(os.sep, "/")) + (b"\t" if " " in below else b"")
    lines = difflib.diff_bytes(difflib.unified_diff, _lines(before), _lines(after), b"a/" + name, b"b/" + name)
    return b"".join(_ended(lines))


def _lines(content: bytes) -> list[bytes]:
    """Lines as `patch` reads them, which knows of no line end but \\n."""
    return re.findall(rb"[^\n]*\n|[^\n]+", content)


def _ended(lines: Iterator[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
