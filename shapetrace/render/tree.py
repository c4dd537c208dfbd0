"""A trace as a tree: each module with its parameters, then its tensors in the order in which they got their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from shapetrace.folding import Run, Step, fold, likeness_of
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
    write_shape,
)

_NARROWEST_COMMENT = 24
_Step = TypeVar("_Step", bound=Step)


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


def render_trees(trace: Trace, view: View = EVERYTHING) -> list[RenderableType]:
    """A tree for each call at the root, and one for the modules that were not called.

    A root that is no whole model, but one module of it, has its parameters in a table of their own above the tree.
    """
    sizes = _Sizes(trace)
    trees: list[RenderableType] = []
    for run in _runs(trace.calls, view):
        for call, last in zip(run.items, run.last, strict=True):
            tree = CompactTree(_head(call, last, run.times, sizes, base="", is_root=True), guide_style="dim")
            if call.module and call.parameters:
                title = Text("parameters of ", "note").append(call.module, "path")
                trees.append(Group(title, render_parameter_table(call, sizes.modules)))
                call = replace(call, parameters=())
            trees.append(_grow(tree, call, sizes, view, level=0))
    if trace.uncalled:
        trees.append(_render_uncalled(trace.uncalled, sizes, view))
    return trees


def _render_uncalled(modules: Sequence[ModuleCall], sizes: _Sizes, view: View) -> Tree:
    tree = CompactTree(
        Text("not called", "flag").append(", though what uses their parameters may have run", "note"), guide_style="dim"
    )
    for run in _runs(modules, view):
        for module, last in zip(run.items, run.last, strict=True):
            _add_rows(tree.add(_head(module, last, run.times, sizes, base="")), _owned(module), sizes)
    return tree


class _Sizes:
    """What the heads and rows need to know of the whole trace."""

    def __init__(self, trace: Trace):
        self.modules = tuple(walk_modules(trace))
        failed = [each for each in self.modules if trace.error and trace.error.module == each.module]
        self.failed = failed[-1] if failed else None
        self.source = trace.error.source if trace.error else ""
        self.several_devices = len({tensor.device for module in self.modules for tensor in tensors_of(module)}) > 1

    def has_failed(self, call: ModuleCall) -> bool:
        """Whether the error was raised in this very call."""
        return self.failed is not None and (call.module, call.steps) == (self.failed.module, self.failed.steps)

    def parameters_of(self, path: str) -> int:
        return count_parameters(self.modules, path)


def _runs(steps: Sequence[_Step], view: View) -> list[Run[_Step]]:
    if view.expand:
        return [Run((step,), 1, (step,)) for step in steps]
    return fold(steps, likeness_of)


def _grow(tree: Tree, call: ModuleCall, sizes: _Sizes, view: View, level: int) -> Tree:
    """Add what the call owns and what happened in it; modules below the view's depth only by name."""
    if view.depth is not None and level >= view.depth:
        return tree
    waiting: list[tuple[Row, int]] = _owned(call)
    widths = _Widths.of((*call.parameters, *call.buffers, *tensors_of(call)))
    for run in _runs(call.steps, view):
        for step, last in zip(run.items, run.last, strict=True):
            if isinstance(step, TensorRecord):
                waiting.append((step, run.times))
                continue
            _add_rows(tree, waiting, sizes, widths)
            waiting = []
            assert isinstance(last, ModuleCall)
            below = tree.add(_head(step, last, run.times, sizes, base=call.module))
            _grow(below, step, sizes, view, level + 1)
    _add_rows(tree, waiting, sizes, widths)
    if sizes.has_failed(call):
        tree.add(Text("✗", "bad").append(f" {printable(sizes.source)}" if sizes.source else " raised here", "note"))
    return tree


def _owned(call: ModuleCall) -> list[tuple[Row, int]]:
    rows: tuple[Row, ...] = (*call.parameters, *call.buffers)
    return [(row, 1) for row in rows]


def _head(call: ModuleCall, last: ModuleCall, times: int, sizes: _Sizes, base: str, is_root: bool = False) -> Text:
    """`blocks.0 ... blocks.11  TransformerBlock  x12  7,087,872 each`."""
    head = Text(no_wrap=False)
    name = _relative(call.module, base)
    if last.module != call.module:
        name += f" ... {_relative(last.module, base)}"
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
    def of(cls, rows: Iterable[Row]) -> _Widths:
        rows = list(rows)
        labels = [_label(row).cell_len for row in rows]
        shapes = [len(_shape(row)) for row in rows]
        return cls(max(labels, default=0), max(shapes, default=0))


def _add_rows(
    tree: Tree,
    rows: Sequence[tuple[Row, int]],
    sizes: _Sizes,
    widths: _Widths | None = None,
) -> None:
    widths = widths or _Widths.of(row for row, _ in rows)
    for row, times in rows:
        tree.add(_Row(_label(row), Text(_shape(row), "shape"), _remark(row, times, sizes), widths))


@dataclass(frozen=True, slots=True)
class _Row:
    """Name, shape, remark; the remark wraps in its column, or below where the column would be too narrow."""

    label: Text
    shape: Text
    remark: Text
    widths: _Widths

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left = self.widths.label + self.widths.shape + 3
        beside = options.max_width - left >= _NARROWEST_COMMENT
        grid = Table.grid()
        grid.add_column(justify="right", width=self.widths.label, no_wrap=True)
        grid.add_column(width=self.widths.shape + 3, no_wrap=True)
        grid.add_column()
        grid.add_row(self.label, Text(" ") + self.shape, self.remark if beside else "")
        yield grid
        if self.remark and not beside:
            yield Padding(self.remark, (0, 0, 0, 4), expand=False)


def _label(row: Row) -> Text:
    role = (
        "param"
        if isinstance(row, ParameterRecord)
        else {"input": "in", "output": "", "local": ""}.get(row.role, row.role)
    )
    label = Text()
    if role:
        label.append(f"{role} ", "role")
    return label.append(printable(row.name), "name")


def _shape(row: Row) -> str:
    shape = write_shape(row.shape)
    return shape if row.dtype == "float32" else f"{shape} {row.dtype}"


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
    if sizes.several_devices:
        flags.append(row.device)
    return flags


def _stats(stats: TensorStats) -> Text:
    figures = {"min": stats.min, "max": stats.max, "mean": stats.mean, "rms": stats.rms}
    known = [f"{name} {value:.3g}" for name, value in figures.items() if value is not None]
    text = Text("  ".join(known) or "no finite entries", "note")
    for name, count in (("nan", stats.nan), ("inf", stats.inf)):
        if count:
            text.append(f"  {count} {name}", "bad")
    return text
