"""Rewrite false shape comments where it is certain what they should say."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from shapetrace.annotation.layout import read_layout
from shapetrace.annotation.writing import check_editable, patch_of, write_files
from shapetrace.errors import ShapetraceError
from shapetrace.shape_comments.findings import Finding


@dataclass(frozen=True, slots=True)
class FixedFile:
    """A file with some of its false comments rewritten."""

    path: str
    before: bytes
    after: bytes
    fixed: tuple[Finding, ...]

    @property
    def patch(self) -> bytes:
        """The change as a unified diff, from the current folder."""
        return patch_of(self.path, self.before, self.after)


def fix(findings: Iterable[Finding]) -> list[FixedFile]:
    """The files as they would be, without writing them.

    Raises ShapetraceError for a file that has changed since it ran, or would become another program.
    """
    certain = sorted((each for each in findings if each.fix is not None), key=lambda each: each.file)
    return [_fix_file(path, tuple(group)) for path, group in groupby(certain, key=lambda each: each.file)]


def write(files: Iterable[FixedFile]) -> None:
    """Write them: all, or, where one cannot be edited or written, none.

    Raises ShapetraceError for a file that belongs to an installed package or is not writable.
    """
    files = list(files)
    for each in files:
        check_editable(each.path, each.fixed[0].path, True, "fix a copy of it", "make it writable")
    write_files([(each.path, each.before, each.after) for each in files])


def _fix_file(path: str, findings: tuple[Finding, ...]) -> FixedFile:
    content = Path(path).read_bytes()
    layout = read_layout(content)
    rows = list(layout.rows)
    fixed = []
    for finding in sorted(findings, key=lambda each: (each.line, each.fix.column if each.fix else 0), reverse=True):
        assert finding.fix is not None
        column, old, new = finding.fix.column, finding.fix.old, finding.fix.new
        row = rows[finding.line - 1]
        if row[column : column + len(old)] != old:
            raise ShapetraceError(f"`{finding.path}` has changed since it was run; nothing is written", "run it again")
        rows[finding.line - 1] = row[:column] + new + row[column + len(old) :]
        fixed.append(finding)
    text = "".join(row + end for row, end in zip(rows, layout.ends, strict=True))
    result = text.encode(layout.encoding)
    if _without_texts(result) != _without_texts(content):
        raise ShapetraceError(
            f"`{findings[0].path}` would become another program; nothing is written",
            "this is a bug of shapetrace: please report it with the file",
        )
    return FixedFile(path, content, result, tuple(reversed(fixed)))


def _without_texts(content: bytes) -> str:
    """The program, whatever its strings say: docstrings and annotations are some."""
    tree = ast.parse(content)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)
