"""A trace as a tree: each module with its parameters, then its tensors in the order in which they got their names."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from shapetrace.folding import fold_loops, form_of, likeness_of, span
from shapetrace.parameters import count_parameters
from shapetrace.render.parameters import render_parameter_table
from shapetrace.render.theme import printable
from shapetrace.trace import (
    ModuleCall,
    ParameterRecord,
    TensorRecord,
    TensorStats,
    Trace,
    tensors_of,
    walk_modules,
    write_placements,
    write_shape,
    write_value,
)

_NARROWEST_COMMENT = 24
Item = TypeVar("Item")


class CompactTree(Tree):
    """rich's tree with guides of three columns: at 80 there is none to give away."""

    ASCII_GUIDES = ("   ", "|  ", "+- ", "`- ")
    TREE_GUIDES = [("   ", "│  ", "├─ ", "└─ ")] * 3


@dataclass(frozen=True, slots=True)
class View:
    """How much of a trace to show."""

    depth: int | None = None  # modules below this level are one line each; None: all
    expand: bool = False  # every equal block, also where there are many


EVERYTHING = View()
Row = ParameterRecord | TensorRecord
_ROLES = {"input": "in", "output": "", "local": ""}


def render_trees(trace: Trace, view: View = EVERYTHING) -> list[RenderableType]:
    """A tree for each call at the root, and one for the modules that were not called.

    A root that is no whole model, but one module of it, has its parameters in a table of their own above the tree.
    """
    sizes = _Sizes(trace)
    trees: list[RenderableType] = []
    for each in _fold(trace.calls, trace.calls, view):
        tree = CompactTree(_head(each, sizes, is_root=True), guide_style="dim")
        call = each.first
        if call.module and call.parameters:
            title = Text("parameters of ", "note").append(call.module, "path")
            trees.append(Group(title, render_parameter_table(call, sizes.modules)))
            each = _Folded(replace(call, parameters=()), replace(each.last, parameters=()), each.times)
        trees.append(_grow(tree, each, sizes, view, level=0))
    if trace.uncalled:
        trees.append(_render_uncalled(trace.uncalled, sizes, view))
    return trees


def _render_uncalled(modules: Sequence[ModuleCall], sizes: _Sizes, view: View) -> Tree:
    tree = CompactTree(
        Text("not called", "flag").append(", though what uses their parameters may have run", "note"), guide_style="dim"
    )
    for each in _fold(modules, modules, view):
        rows = _owned(each)
        _add_rows(tree.add(_head(each, sizes)), rows, sizes, _Widths.of(rows))
    return tree


class _Sizes:
    """What the heads and rows need to know of the whole trace."""

    def __init__(self, trace: Trace):
        self.modules = tuple(walk_modules(trace))
        failed = [each for each in self.modules if trace.error and trace.error.module == each.module]
        self.failed = failed[-1] if failed else None
        self.source = trace.error.source if trace.error else ""
        devices = {tensor.device for module in self.modules for tensor in tensors_of(module)}
        self.tells_devices = len(devices) > 1 or not devices <= {"cpu", "meta"}

    def has_failed(self, call: ModuleCall) -> bool:
        """Whether the error was raised in this very call."""
        # By identity, for it may have been called twice with the same steps; its parameters may have been taken out.
        return self.failed is not None and call.module == self.failed.module and call.steps is self.failed.steps

    def parameters_of(self, path: str) -> int:
        return count_parameters(self.modules, path)


@dataclass(frozen=True, slots=True)
class _Folded(Generic[Item]):
    """The first and the last of so many that are alike; of one, that is both."""

    first: Item
    last: Item
    times: int


def _fold(first: Sequence[Item], last: Sequence[Item], view: View) -> list[_Folded[Item]]:
    """What two calls that are alike have done, with what each has repeated told once."""
    pairs = list(zip(first, last, strict=True))
    if view.expand:
        return [_Folded(one, other, 1) for one, other in pairs]
    runs = fold_loops(pairs, lambda pair: _both(likeness_of, *pair), lambda pair: _both(form_of, *pair))
    return [
        _Folded(one, other, run.times) for run in runs for (one, _), (_, other) in zip(run.items, run.last, strict=True)
    ]


def _both(describe: Callable[[Any], Hashable], one: Item, other: Item) -> Hashable:
    return describe(one) if one is other else (describe(one), describe(other))


def _grow(tree: Tree, call: _Folded[ModuleCall], sizes: _Sizes, view: View, level: int) -> Tree:
    """Add what the call owns and what happened in it; modules below the view's depth only by name."""
    if view.depth is not None and level >= view.depth:
        return tree
    owned = _owned(call)
    steps: list[_Folded[Any]] = _fold(call.first.steps, call.last.steps, view)
    rows = [each for each in steps if isinstance(each.first, TensorRecord)]
    widths = _Widths.of([*owned, *rows])
    _add_rows(tree, owned, sizes, widths)
    for step in steps:
        if isinstance(step.first, TensorRecord):
            _add_rows(tree, [step], sizes, widths)
        else:
            below = tree.add(_head(step, sizes, around=call))
            _grow(below, step, sizes, view, level + 1)
    if sizes.has_failed(call.last):
        tree.add(Text("✗", "bad").append(f" {printable(sizes.source)}" if sizes.source else " raised here", "note"))
    return tree


def _owned(call: _Folded[ModuleCall]) -> list[_Folded[Any]]:
    first, last = call.first, call.last
    rows = zip((*first.parameters, *first.buffers), (*last.parameters, *last.buffers), strict=True)
    return [_Folded(one, other, 1) for one, other in rows]


def _head(
    each: _Folded[ModuleCall], sizes: _Sizes, around: _Folded[ModuleCall] | None = None, is_root: bool = False
) -> Text:
    """`blocks.0 ... blocks.11  TransformerBlock  x12  7,087,872 each`."""
    call, times = each.first, each.times
    head = Text(no_wrap=False)
    name = _relative(call.module, around.first.module if around else "")
    last = _relative(each.last.module, around.last.module if around else "")
    if last != name:
        name += f" ... {last}"
    if name:
        head.append(printable(name), "path").append("  ")
    head.append(printable(call.class_name), "class")
    if times > 1:
        head.append(f"  x{times}", "times")
    count = sizes.parameters_of(call.module)
    if count:
        head.append(f"  {count:,}", "count").append(" each" if times > 1 else " parameters" if is_root else "", "count")
    if call.note:
        head.append(f"  {printable(call.note)}", "flag")
    return head


def _relative(path: str, base: str) -> str:
    return path.removeprefix(f"{base}.") if base else path


@dataclass(frozen=True, slots=True)
class _Widths:
    """The columns of one module's rows."""

    label: int
    shape: int

    @classmethod
    def of(cls, rows: Sequence[_Folded[Row]]) -> _Widths:
        labels = [_label(row).cell_len for row in rows]
        shapes = [_shape(row).cell_len for row in rows]
        return cls(max(labels, default=0), max(shapes, default=0))


def _add_rows(tree: Tree, rows: Sequence[_Folded[Row]], sizes: _Sizes, widths: _Widths) -> None:
    for row in rows:
        placed = Text(write_placements(row.first), "flag")
        tree.add(_Row(_label(row), _shape(row), placed, _remark(row.first, row.times, sizes), widths))


@dataclass(frozen=True, slots=True)
class _Row:
    """Name, shape, placement, remark; these wrap in their column, or below where the column would be too narrow."""

    label: Text
    shape: Text
    placed: Text
    remark: Text
    widths: _Widths

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        label, shape = self.widths.label, self.widths.shape
        space = options.max_width - (label + shape + 3)
        beside = space >= min(_NARROWEST_COMMENT, self.placed.cell_len + self.remark.cell_len)
        remark = self._remark_within(space if beside else options.max_width - 4)
        if remark.cell_len <= space and "\n" not in remark.plain:  # as most: a table would take its time
            before, between = " " * (label - self.label.cell_len), " " * (shape + 2 - self.shape.cell_len)
            yield Text.assemble(before, self.label, " ", self.shape, between, remark)
            return
        grid = Table.grid()
        grid.add_column(justify="right", width=label, no_wrap=True)
        grid.add_column(width=shape + 3, no_wrap=True)
        grid.add_column()
        grid.add_row(self.label, Text(" ") + self.shape, remark if beside else "")
        yield grid
        if remark and not beside:
            yield Padding(remark, (0, 0, 0, 4), expand=False)

    def _remark_within(self, width: int) -> Text:
        """The placement and the remark on one line where they fit, else on two."""
        # What is too long even for a line of its own has its local shape on the next.
        long = self.placed.cell_len > width
        placed = Text(self.placed.plain.replace(" (", "\n("), "flag") if long else self.placed
        parts = [part for part in (placed, self.remark) if part]
        first = self.remark.plain.partition("\n")[0]
        return Text("  " if self.placed.cell_len + 2 + len(first) <= width else "\n").join(parts)


def _label(each: _Folded[Row]) -> Text:
    """`in past.0..11.key`: the role, where it is not plain from the place, and the names of the first and the last."""
    row = each.first
    role = "param" if isinstance(row, ParameterRecord) else _ROLES.get(row.role, row.role)
    label = Text()
    if role:
        label.append(f"{role} ", "role")
    return label.append(printable(span(row.name, each.last.name)), "name")


def _shape(each: _Folded[Row]) -> Text:
    """`(1, 7..26, 768)`, where the last differs from the first."""
    first, last = each.first, each.last
    shape = write_value(first)
    if first.shape != last.shape and first.shape is not None and last.shape is not None:
        sizes = [str(a) if a == b else f"{a}..{b}" for a, b in zip(first.shape, last.shape, strict=True)]
        shape = shape.replace(write_shape(first.shape), f"({', '.join(sizes)}{',' * (len(sizes) == 1)})")
    return Text(printable(shape), "shape")


def _remark(row: Row, times: int, sizes: _Sizes) -> Text:
    """What is special about the tensor, then its comment, or else its axes."""
    remark = Text()
    for flag in _flags(row, times, sizes):
        remark.append(f"{flag}  ", "flag")
    if row.comment:
        remark.append(printable(row.comment), "comment")
    elif row.axes:
        remark.append(printable(" ".join(row.axes)), "axes")
    if isinstance(row, TensorRecord) and row.stats:
        if remark:
            remark.append("\n")
        remark.append_text(_stats(row.stats))
    remark.rstrip()
    return remark


def _flags(row: Row, times: int, sizes: _Sizes) -> list[str]:
    flags = [f"x{times}"] if times > 1 else []
    if isinstance(row, ParameterRecord):
        if row.shape is None:
            flags.append("uninitialised")
        if not row.trainable:
            flags.append("frozen")
        if row.tied:
            flags.append(f"tied to {row.tied}")
    elif row.in_place:
        flags.append("in place")
    if sizes.tells_devices:
        flags.append(row.device)
    return flags


def _stats(stats: TensorStats) -> Text:
    figures = {"min": stats.min, "max": stats.max, "mean": stats.mean, "rms": stats.rms}
    known = [f"{name} {value:.3g}" for name, value in figures.items() if value is not None]
    is_empty = not (known or stats.nan or stats.inf)
    text = Text("  ".join(known) or ("empty" if is_empty else "no finite entries"), "note")
    for name, count in (("nan", stats.nan), ("inf", stats.inf)):
        if count:
            text.append(f"  {count} {name}", "bad")
    return text
