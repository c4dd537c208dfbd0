"""A trace, a report or a pattern as one HTML page that needs nothing else: no network, no files beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from shapetrace.folding import fold_names
from shapetrace.parameters import count_parameters
from shapetrace.patterns import Pattern
from shapetrace.render.attention import write_label
from shapetrace.render.failure import shorten
from shapetrace.render.numbers import write_number
from shapetrace.render.report import write_verdict
from shapetrace.render.theme import count_of, printable
from shapetrace.report import Difference, Report
from shapetrace.trace import (
    ModuleCall,
    ParameterRecord,
    TensorRecord,
    Trace,
    tensors_of,
    walk_modules,
    write_placements,
    write_shape,
    write_source,
)


def render_trace_page(trace: Trace) -> str:
    """The module tree, each module with its parameters and tensors; collapsible, searchable by name."""
    modules = tuple(walk_modules(trace))
    head = f"<p class=quiet>{_escape(f'weights: {trace.model.weights}')}</p>" if trace.model.weights else ""
    if trace.model.mesh:
        head += f"<p class=quiet>{_escape(f'mesh: {trace.model.mesh}')}</p>"
    if trace.input:
        head += f"<p class=quiet>{_escape(' '.join(f'{token!r}' for token in trace.input.tokens))}</p>"
    if trace.error:
        head += f"<p class=bad>{_escape(shorten(str(trace.error)))}</p>"
    total = count_of(count_parameters(modules), "parameter")
    tensors = count_of(sum(len(tensors_of(module)) for module in modules), "tensor")
    head += f"<p class=quiet>{tensors}, {total}</p>"
    tree = "".join(_module(call, modules, base="", is_open=True) for call in trace.calls)
    if trace.uncalled:
        tree += "<p class=flag>not called, though what uses their parameters may have run</p>"
        tree += "".join(_module(call, modules, base="", is_open=False) for call in trace.uncalled)
    return _page(trace.model.name, head, f"<div class=tree>{tree}</div>", collapses=True)


def render_report_page(report: Report) -> str:
    """The verdict, then every module and every tensor with its difference."""
    style = "good" if report.ok else "bad"
    head = f"<p class=quiet>{_escape(f'{report.reference}, weights {report.weights}')}</p>"
    head += f"<p class={style}>{_escape(write_verdict(report))}</p>"
    if report.first_divergence:
        head += f"<p>{_escape(report.first_divergence.cause.detail)}</p>"
    keys = report.keys
    for title, names in (
        ("missing", keys.missing),
        ("unexpected", keys.unexpected),
        ("wrong shape", keys.mismatched),
        ("other values", keys.different),
    ):
        if names:
            head += f"<p class=flag>{title}: {_escape(', '.join(fold_names(names)))}</p>"
    head += "".join(f"<p class=quiet>remark: {_escape(remark)}</p>" for remark in report.remarks)
    if report.logits:
        same = "the same" if report.same_argmax else "not the same"
        head += (
            f"<p>logits: max abs diff {write_number(report.logits.max_abs_diff)}; {same} argmax at every position</p>"
        )
    modules = [(row.module, row.mode.replace("_", " "), "", row.difference) for row in report.modules]
    tensors = [(row.reference, row.yours or "not seen", row.line, row.difference) for row in report.tensors]
    body = f"<h2>modules</h2>{_differences(modules)}<h2>tensors inside them</h2>{_differences(tensors)}"
    return _page(f"diff with {report.reference}", head, body, collapses=False)


def render_pattern_page(name: str, weights: str, pattern: Pattern, labels: Sequence[str]) -> str:
    """Each head as a table of colours: a row for each query, a column for each key; figures under the pointer."""
    place = " ".join(filter(None, (pattern.module, pattern.tensor, pattern.source)))
    head = f"<p class=quiet>{_escape(f'weights: {weights}')}</p>"
    head += f"<p><span class=path>{_escape(place)}</span> layer {pattern.layer}, {count_of(pattern.count, 'head')}</p>"
    if weights.startswith("random"):
        head += "<p class=flag>The weights are random: what a head looks at means nothing.</p>"
    body = "".join(
        f"<details data-name='head {number}' open><summary class=path>head {number}</summary>"
        f"{_heat(rows, labels)}</details>"
        for number, rows in pattern.heads.items()
    )
    return _page(f"attention of {name}", head, f"<div class=tree>{body}</div>", collapses=True)


def _heat(rows: Sequence[Sequence[float]], labels: Sequence[str]) -> str:
    names = [_escape(write_label(label)) for label in labels]
    queries = names if len(names) == len(rows) else [str(at) for at in range(len(rows))]
    lines = "".join(
        f"<tr><th>{query}</th>{''.join(_cell(weight, query, key) for weight, key in zip(row, names, strict=True))}</tr>"
        for query, row in zip(queries, rows, strict=True)
    )
    return (
        f"<table class=heat><tr><th>query / key</th>{''.join(f'<th>{name}</th>' for name in names)}</tr>{lines}</table>"
    )


def _cell(weight: float, query: str, key: str) -> str:
    figure = f"{weight:.2f}"
    return (
        f"<td style='--part:{100 * weight:.1f}%' title='{query} reads {key}: {figure}'>{figure if weight else ''}</td>"
    )


def _module(call: ModuleCall, modules: Sequence[ModuleCall], base: str, is_open: bool) -> str:
    name = call.module.removeprefix(f"{base}.") if base else call.module
    count = count_parameters(modules, call.module)
    parts = [f"<span class=path>{_escape(name)}</span> " if name else ""]
    parts.append(f"<span class=class>{_escape(call.class_name)}</span>")
    parts.append(f" <span class=quiet>{count:,}</span>" if count else "")
    parts.append(f" <span class=flag>{_escape(call.note)}</span>" if call.note else "")
    parts.append(f" <span class=source>{_escape(write_source(call.source))}</span>" if call.source else "")
    inner = ""
    rows: list[ParameterRecord | TensorRecord] = [*call.parameters, *call.buffers]
    for step in call.steps:
        if isinstance(step, TensorRecord):
            rows.append(step)
        else:
            inner += _table(rows) + _module(step, modules, base=call.module, is_open=False)
            rows = []
    inner += _table(rows)
    return (
        f"<details data-name='{_escape(call.module)}'{' open' if is_open else ''}>"
        f"<summary>{''.join(parts)}</summary>{inner}</details>"
    )


def _table(rows: Iterable[ParameterRecord | TensorRecord]) -> str:
    cells = "".join(map(_row, rows))
    return f"<table>{cells}</table>" if cells else ""


def _row(row: ParameterRecord | TensorRecord) -> str:
    role = "param" if isinstance(row, ParameterRecord) else {"local": ""}.get(row.role, row.role)
    flags = []
    if isinstance(row, ParameterRecord):
        flags += [] if row.trainable else ["frozen"]
        flags += [f"tied to {row.tied}"] if row.tied else []
    else:
        flags += [row.kind] if row.kind else []
        flags += ["in place"] if row.in_place else []
    flags += [write_placements(row)] if row.placements else []
    flag = f"<span class=flag>{_escape(', '.join(flags))}</span> " if flags else ""
    axes = "" if row.comment.startswith(("(", "[")) else " ".join(row.axes)
    shape = write_shape(row.shape) if row.dtype else ""
    source = write_source(row.source) if isinstance(row, TensorRecord) else ""
    return (
        f"<tr data-name='{_escape(row.name)}'><td class=role>{_escape(role)}</td>"
        f"<td class=name>{_escape(row.name)}</td>"
        f"<td class=shape>{_escape(shape)}</td><td class=quiet>{_escape(row.dtype)}</td>"
        f"<td>{flag}<span class=class>{_escape(axes)}</span> <span class=comment>{_escape(row.comment)}</span></td>"
        f"<td class=source>{_escape(source)}</td></tr>"
    )


def _differences(rows: Iterable[tuple[str, str, str, Difference | None]]) -> str:
    cells = "".join(
        f"<tr data-name='{_escape(name)} {_escape(beside)}'>"
        f"<td class=name>{_escape(name)}</td><td>{_escape(beside)}</td>"
        f"{_figures(difference)}<td class=source>{_escape(line)}</td></tr>"
        for name, beside, line, difference in rows
    )
    titles = "".join(f"<th>{title}</th>" for title in ("", "", "max abs diff", "relative", "scale", ""))
    return f"<table><tr>{titles}</tr>{cells}</table>"


def _figures(difference: Difference | None) -> str:
    if difference is None:
        return "<td></td><td></td><td></td><td></td>"
    verdict = "<td class=good>ok</td>" if difference.ok else "<td class=bad>differs</td>"
    figures = (write_number(difference.max_abs_diff), write_number(difference.relative), f"{difference.scale:.2g}")
    return "".join(f"<td class=number>{figure}</td>" for figure in figures) + verdict


def _page(title: str, head: str, body: str, collapses: bool) -> str:
    data = resources.files("shapetrace").joinpath("data")
    style, script = (data.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    buttons = "<button id=open>open all</button><button id=close>close all</button>" if collapses else ""
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{_escape(title)}</title><style>{style}</style><h1>{_escape(title)}</h1>{head}"
        "<div class=bar><input id=search type=search placeholder='search by name ( / )' aria-label='search by name'>"
        f"<span id=found class=quiet role=status></span>{buttons}</div>{body}<script>{script}</script></html>\n"
    )


def _escape(text: str) -> str:
    # What is not printable is written as its escape: a control that turns the text round would turn the line round.
    return escape(printable(text), quote=True)
