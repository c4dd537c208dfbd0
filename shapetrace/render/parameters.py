"""The parameter breakdown, and the parameter table of one module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shapetrace.folding import fold, fold_names
from shapetrace.parameters import Part, break_down, count_parameters, full_name, is_within, unique_parameters
from shapetrace.render.theme import count_of, printable, separated, write_bytes
from shapetrace.trace import ModuleCall, write_placements, write_shape

Row = tuple[int, Part, Part, int]  # level, part, the last of its likes, how many there are


def render_parameters(
    name: str,
    modules: Sequence[ModuleCall],
    paths: Sequence[str],
    depth: int = 3,
    expand: bool = False,
    remark: str = "",
) -> RenderableType:
    """The whole screen of `params`: for each path its own parameters, and the breakdown of what is below it."""
    by_path = {module.module: module for module in modules}
    parts: list[RenderableType] = []
    for path in paths:
        module = by_path[path]
        has_inner = any(is_within(each, path) and each != path for each in by_path)
        parts.append(Text(path or name, "path").append(f"  {module.class_name}", "class"))
        if module.parameters or not has_inner:
            parts.append(render_parameter_table(module, modules))
        if has_inner:
            parts.append(render_breakdown(modules, path, depth, expand))
    parts += [Text(remark)] if remark else []
    return separated(parts)


def render_breakdown(
    modules: Sequence[ModuleCall], path: str = "", depth: int = 3, expand: bool = False
) -> RenderableType:
    """Each module below the path with its share, then the total, then what is frozen, tied or a buffer."""
    whole = break_down(modules, path)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="note")
    table.add_column("module", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("", width=10)
    table.add_column("bytes", justify="right", no_wrap=True)
    for level, part, last, times in _rows(whole.parts, depth, expand):
        _add_part(table, _label(level, part, last, times), part)
    own = whole.parameters - sum(part.parameters for part in whole.parts)
    if own and whole.parts:
        _add_part(table, Text("its own"), _own_part(whole, own))
    table.add_section()
    _add_part(table, Text("total", "path"), whole)
    remarks = list(_remarks(modules, path, whole))
    return Group(table, *([""] if remarks else []), *remarks)


def render_parameter_table(module: ModuleCall, modules: Sequence[ModuleCall]) -> RenderableType:
    """What one module owns, a tensor a line, and the number of entries at and below it."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for record in module.parameters:
        flags = [] if record.trainable else ["frozen"]
        flags += [f"tied to {record.tied}"] if record.tied else []
        flags += [write_placements(record)] if record.placements else []
        remark = Text("  ".join(flags), "flag")
        if record.comment:
            remark.append("  " * bool(flags)).append(printable(record.comment), "comment")
        shape = Text(write_shape(record.shape), "shape")
        table.add_row(Text(printable(record.name), "name"), shape, Text(f"{record.size:,}", "count"), remark)
    total = count_parameters(modules, module.module)
    return Group(*([table] if module.parameters else []), Text(f"total: {count_of(total, 'parameter')}"))


def _rows(parts: Sequence[Part], depth: int, expand: bool, level: int = 0) -> Iterator[Row]:
    if level >= depth:
        return
    for run in fold(parts, (lambda part: part.module) if expand else _likeness):
        for part, last in zip(run.items, run.last, strict=True):
            if part.parameters:
                yield level, part, last, run.times
                yield from _rows(part.parts, depth, expand, level + 1)


def _likeness(part: Part) -> Part:
    """Layers of a model are alike: the same but for their number."""
    inner = tuple(map(_likeness, part.parts))
    return replace(part, module="#" if part.name.isdigit() else part.name, parts=inner)


def _label(level: int, part: Part, last: Part, times: int) -> Text:
    label = Text("  " * level + part.name, "path" if level == 0 else "name")
    if times > 1:
        label.append(f" ... {last.name}").append(f"  x{times}", "times")
    return label


def _add_part(table: Table, label: Text, part: Part) -> None:
    bar = ProgressBar(total=1.0, completed=part.share, width=10, complete_style="count", finished_style="count")
    count = Text(f"{part.parameters:,}", "count")
    table.add_row(label, count, f"{100 * part.share:.1f} %", bar, write_bytes(part.bytes))


def _own_part(whole: Part, own: int) -> Part:
    size = whole.bytes - sum(part.bytes for part in whole.parts)
    share = own / whole.parameters if whole.parameters else 0.0
    return replace(whole, parameters=own, bytes=size, share=share, parts=())


def _remarks(modules: Sequence[ModuleCall], path: str, whole: Part) -> Iterator[RenderableType]:
    """Lines that name what the numbers alone do not tell."""
    records = unique_parameters(modules, path)
    frozen = [name for name, record in records.items() if not record.trainable]
    waiting = [name for name, record in records.items() if record.shape is None]
    inside = [module for module in modules if is_within(module.module, path)]
    tied = [
        f"{full_name(module.module, record.name)} is {record.tied}"
        for module in inside
        for record in module.parameters
        if record.tied
    ]
    buffers = [full_name(module.module, each.name) for module in inside for each in module.buffers]
    remarks = (
        (f"frozen ({whole.parameters - whole.trainable:,})", frozen),
        ("tied, counted once", tied),
        ("uninitialised until a first input", waiting),
        ("buffers, not counted", buffers),
    )
    for title, names in remarks:
        if names:
            yield Text(f"{title}: ", "flag").append(_shorten(fold_names(names)), "default")


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
