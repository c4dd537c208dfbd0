"""Which shapes were seen at which line of which file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shapetrace.trace import Shape, Trace, split_source, tensors_of, walk_calls

Shapes = dict[str, list[Shape]]  # of each name, in the order seen, each once


@dataclass(frozen=True, slots=True)
class FileShapes:
    """One file of the model's code."""

    path: str
    forwards: dict[int, list[str]] = field(default_factory=dict)  # by first line, the modules whose forward it is
    lines: dict[int, Shapes] = field(default_factory=dict)


def collect_shapes(traces: Iterable[Trace]) -> list[FileShapes]:
    """What the calls of these traces bound, file by file, in the order in which the files were reached."""
    files: dict[str, FileShapes] = {}
    for call in (inner for trace in traces for outer in trace.calls for inner in walk_calls(outer)):
        if call.source:
            path, line = split_source(call.source)
            modules = files.setdefault(path, FileShapes(path)).forwards.setdefault(line, [])
            if call.module not in modules:
                modules.append(call.module)
        for tensor in tensors_of(call):
            if tensor.source:
                path, line = split_source(tensor.source)
                lines = files.setdefault(path, FileShapes(path)).lines
                seen = lines.setdefault(line, {}).setdefault(tensor.name, [])
                if tensor.shape not in seen:
                    seen.append(tensor.shape)
    return list(files.values())
