"""A source file with the shapes that were seen: where each comment stands, or would stand."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from shapetrace.annotation.layout import Function, Layout, LogicalLine, read_layout, same_meaning
from shapetrace.annotation.shapes import FileShapes, Shapes, collect_shapes
from shapetrace.errors import ShapetraceError
from shapetrace.folding import without_numbers
from shapetrace.packages import package_of
from shapetrace.selection import select_modules
from shapetrace.trace import Trace, split_source, write_shape, write_source

_FEW = 3  # items of a list that are told one by one, though they all have the same shape


@dataclass(frozen=True, slots=True)
class Annotation:
    """What was seen bound on one row: `(1, 7, 64)`, or `q (1, 7, 64), k (1, 7, 64)`."""

    text: str
    is_free: bool  # whether it can be written there: no comment yet, and no string or backslash at the row's end


@dataclass(frozen=True, slots=True)
class AnnotatedFile:
    """One file of the model's code, its rows counted from 1."""

    path: str
    content: bytes = b""
    layout: Layout | None = None  # None: there is no file to read, or nothing readable in it
    missing: str = ""  # why
    annotations: dict[int, Annotation] | None = None  # by row
    functions: tuple[tuple[Function, tuple[str, ...]], ...] = ()  # those that ran; the modules whose forward they are

    @property
    def name(self) -> str:
        """The path from the current folder, for a file that is below it; else the file's own name."""
        below = os.path.relpath(self.path) if os.path.isabs(self.path) else ".."
        return write_source(self.path) if below.startswith("..") else below

    @property
    def comments(self) -> dict[int, str]:
        """What there is to write, by row."""
        return {row: each.text for row, each in (self.annotations or {}).items() if each.is_free}

    def written(self) -> bytes:
        """The content with the comments in it.

        Raises ShapetraceError where that would be another program, which should never be.
        """
        if self.layout is None or not self.comments:
            return self.content
        result = self.layout.append(self.comments)
        if not same_meaning(self.content, result):
            raise ShapetraceError(
                f"comments in `{self.name}` would change what it does; nothing is written",
                "this is a bug of shapetrace: please report it with the file",
            )
        return result


def annotate(*traces: Trace, module: str | None = None) -> list[AnnotatedFile]:
    """The files whose code the traces ran, with the shapes that it bound; `module` narrows them to matching modules.

    Files of installed packages only where the model itself is of that package.
    Raises ShapetraceError where no module matches.
    """
    roots = [call for trace in traces for call in trace.calls if call.source]
    homes = {"", *(package_of(split_source(call.source)[0]) for call in roots)}
    chosen = traces if module is None else [select_modules(trace, module) for trace in traces]
    return [annotate_file(each) for each in collect_shapes(chosen) if package_of(each.path) in homes]


def annotate_file(shapes: FileShapes) -> AnnotatedFile:
    """The file as it is now."""
    try:
        content = Path(shapes.path).read_bytes()
        layout = read_layout(content)
    except OSError:
        return AnnotatedFile(shapes.path, missing="its code is in no file")
    except ShapetraceError as error:
        return AnnotatedFile(shapes.path, missing=error.message)
    return AnnotatedFile(
        shapes.path, content, layout, "", dict(_annotations(layout, shapes)), tuple(_functions(layout, shapes))
    )


def _annotations(layout: Layout, shapes: FileShapes) -> Iterator[tuple[int, Annotation]]:
    by_row: dict[int, tuple[LogicalLine, Shapes]] = {}
    for line, seen in sorted(shapes.lines.items()):
        logical = layout.logical.get(line)
        if logical is None:
            continue
        # An argument has its own row; the comment on a statement follows the whole of it.
        row = line if logical.is_def else logical.last
        text = layout.text(logical)
        for name, each in seen.items():
            # In place, a statement also changes views that have names elsewhere: it is not it that binds those.
            if _root(name) == "out" or re.search(rf"\b{re.escape(_root(name))}\b", text):
                known = by_row.setdefault(row, (logical, {}))[1].setdefault(name, [])
                known.extend(shape for shape in each if shape not in known)
    for row, (logical, names) in sorted(by_row.items()):
        # A name of the source's own goes without saying; one that a recording has made, such as `parts.0`, does not.
        alone = len(names) == 1 and all(name == "out" or name in layout.text(logical) for name in names)
        if logical.is_def and layout.arguments.get(row, 0) > 1:
            alone = False
        taken = {row} if logical.is_def else {logical.first, row}
        is_free = not (taken & layout.commented or row in layout.open)
        yield row, Annotation(_write(names, alone, layout), is_free)


def _root(name: str) -> str:
    """`outs[0].k` -> `outs`."""
    return re.split(r"[^\w]", name, maxsplit=1)[0]


def _write(names: Shapes, alone: bool, layout: Layout) -> str:
    if alone:
        return next(" | ".join(map(write_shape, shapes)) for shapes in names.values())
    parts = []
    for _, group in groupby(names.items(), key=lambda each: (without_numbers(each[0]), each[1])):
        items = [(_write_name(name, layout), shapes) for name, shapes in group]
        if len(items) > _FEW:  # the items of a list
            items = [(f"{items[0][0]} ... {items[-1][0]}", items[0][1])]
        parts += [f"{name} {' | '.join(map(write_shape, shapes))}" for name, shapes in items]
    return ", ".join(parts)


def _write_name(name: str, layout: Layout) -> str:
    """A name can be any key of a dictionary, and a comment must stay on its line."""
    return name if layout.can_write(name) else ascii(name)[1:-1]


def _functions(layout: Layout, shapes: FileShapes) -> Iterator[tuple[Function, tuple[str, ...]]]:
    """The functions in which something was bound, and the forwards; what stands within another of them goes with it."""
    ran = {each for each in layout.functions if each.first in shapes.forwards}
    for line in shapes.lines:
        around = [each for each in layout.functions if each.first <= line <= each.last]
        ran.update(sorted(around, key=lambda each: each.last - each.first)[:1])
    for each in sorted(ran, key=lambda each: each.first):
        if not any(other is not each and other.first <= each.first and each.last <= other.last for other in ran):
            yield each, tuple(shapes.forwards.get(each.first, ()))
