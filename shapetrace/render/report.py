"""What a diff found, as a person reads it: keys, modules, logits, predictions, and the verdict in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.styled import Styled
from rich.table import Table
from rich.text import Text

from shapetrace.folding import fold_names, without_numbers
from shapetrace.render.attention import PatternTable
from shapetrace.render.divergence import render_divergence, render_pair, write_divergence
from shapetrace.render.numbers import write_number
from shapetrace.render.theme import count_of, quoted, separated
from shapetrace.render.tree import render_trees
from shapetrace.report import END_TO_END, ISOLATED, Difference, ModuleRow, Report
from shapetrace.selection import select_modules
from shapetrace.trace import Trace

_NARROW = ("bfloat16", "float16")  # where rounding hides mistakes that people make


def render_report(report: Report, expand: bool = False) -> RenderableType:
    """The whole screen of `diff`; where a tensor is wrong, that comes first, and the rest stands back."""
    figures: list[RenderableType] = [_modules(report.modules, expand), _tensors(report), _logits(report)]
    if report.predictions:
        figures.append(_predictions(report))
    remarks = [Group(*(Text(f"remark: {remark}", "note") for remark in report.remarks))] if report.remarks else []
    if report.first_divergence:
        found = render_divergence(report, report.first_divergence)
        return separated([_head(report), *found, *remarks, *(Styled(each, "note") for each in figures)])
    return separated([_head(report), *figures, *remarks, Text(write_verdict(report), "good" if report.ok else "bad")])


def render_asked(report: Report) -> RenderableType:
    """What `diff --tensor` shows: the tensor beside its match, and the verdict of the whole."""
    pair = render_pair(report.asked) if report.asked else []
    verdict = Text(write_verdict(report), "good" if report.ok else "bad")
    return separated([_head(report), *pair, verdict])


def write_verdict(report: Report) -> str:
    """One sentence."""
    if report.first_divergence:
        return write_divergence(report.first_divergence)
    absent = [*report.keys.missing, *report.keys.mismatched]
    if absent:
        return f"The values agree, but {count_of(len(absent), 'parameter')} of yours got no weights from the reference."
    if report.keys.different:
        names = ", ".join(f"`{name}`" for name in fold_names(report.keys.different))
        return f"The values agree on these tokens, but the reference has other values in {names}."
    wrong = [row for row in report.modules if not row.difference.ok]
    if wrong:
        return f"Every tensor agrees, but {wrong[0].module} differs when it is fed the reference's input."
    worst = {
        mode: max((row.difference.relative for row in report.modules if row.mode == mode), default=None)
        for mode in (ISOLATED, END_TO_END)
    }
    alone = (
        f"every module on its own within {worst[ISOLATED]:.1e} of its scale, " if worst[ISOLATED] is not None else ""
    )
    end = worst[END_TO_END] if worst[END_TO_END] is not None else report.logits.relative if report.logits else 0.0
    if report.dtype in _NARROW:
        return (
            f"Nothing differs by more than {report.dtype}'s rounding: {alone}end to end within {end:.1e}. "
            f"A mistake that costs less than {_limits(report)} does not show here: `--dtype float32` tells it."
        )
    return f"Everything matches: {alone}end to end within {end:.1e}."


def _limits(report: Report) -> str:
    """`6.2e-02`, `6.2e-02 to 1.1e-01`, by the tensor."""
    return " to ".join(dict.fromkeys(f"{each:.1e}" for each in report.tolerance))


def render_module(
    report: Report,
    path: str,
    trace: Trace,
    pattern: Sequence[Sequence[float]] | None,
    tokens: Sequence[str],
    head: int,
) -> RenderableType:
    """What `diff --module` shows: the module's parameters and trace, a head's pattern, and how far it is off."""
    parts = render_trees(select_modules(trace, path))
    if pattern is not None:
        parts.append(PatternTable(pattern, tokens, f"head {head} attention pattern"))
    parts += [_module_difference(report, path), _inner_tensors(report)]
    if report.first_divergence and report.first_divergence.row.reference in (row.reference for row in report.tensors):
        return separated([*parts, *render_divergence(report, report.first_divergence)])
    return separated([*parts, Text(write_verdict(report), "good" if report.ok else "bad")])


def _inner_tensors(report: Report) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    for row in report.tensors:
        if row.difference is not None:
            style, word = ("good", "ok") if row.difference.ok else ("bad", "differs")
            figures = f"{write_number(row.difference.max_abs_diff)}  (relative {write_number(row.difference.relative)})"
            table.add_row(row.reference, figures, Text(word, style))
    return Group(Text("and of the tensors inside, from token ids only"), table)


def _module_difference(report: Report, path: str) -> RenderableType:
    words = {ISOLATED: "fed the reference's input", END_TO_END: "from token ids only"}
    table = Table.grid(padding=(0, 2, 0, 0))
    for row in report.modules:
        if path in (row.module, row.yours):
            style = "good" if row.difference.ok else "bad"
            figures = f"{write_number(row.difference.max_abs_diff)}  (relative {write_number(row.difference.relative)})"
            table.add_row(words[row.mode], figures, Text("ok" if row.difference.ok else "differs", style))
    return Group(Text(f"max abs diff vs {report.reference}, weights {report.weights}"), table)


def _head(report: Report) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_row(Text("reference", "note"), report.reference)
    same = "" if report.keys.different else ", the same on both sides"
    layout = f"; yours in {report.layout} layout" if report.layout not in ("", "TransformerLens") else ""
    grid.add_row(Text("weights", "note"), f"{report.weights}{same}{layout}")
    if report.dtype in _NARROW:
        limits = f"{report.dtype}: a difference counts over {_limits(report)} of the scale"
        grid.add_row(Text("precision", "note"), limits)
    keys = report.keys
    counts = f"{count_of(keys.loaded, 'key')} loaded, {len(keys.missing)} missing, {len(keys.unexpected)} unexpected"
    grid.add_row(Text("state_dict", "note"), Text(counts, "bad" if keys.missing or keys.mismatched else "default"))
    for title, names, style in (
        ("missing", keys.missing, "bad"),
        ("unexpected", keys.unexpected, "flag"),
        ("wrong shape", keys.mismatched, "bad"),
        ("other values", keys.different, "bad"),
        ("only yours, and constant", keys.buffers, "note"),
    ):
        if names:
            grid.add_row("", Text(f"{title}: ", "note").append(", ".join(fold_names(names)), style))
    for line in (*fold_names(keys.suggestions), *keys.tied):
        grid.add_row("", Text(line, "note"))
    return grid


def _modules(rows: Sequence[ModuleRow], expand: bool) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="note")
    table.add_column("module", no_wrap=True)
    for title in ("isolated", "relative", "end to end", "relative", "scale"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    by_path: dict[str, dict[str, Difference]] = {}
    for row in rows:
        by_path.setdefault(row.module, {})[row.mode] = row.difference
    for paths in _alike(by_path, expand):
        isolated, end = (_worst(by_path[path].get(mode) for path in paths) for mode in (ISOLATED, END_TO_END))
        verdict = _verdict(isolated, end)
        scale = max(each.scale for path in paths for each in by_path[path].values())
        style = {"ok": "good", "follows": "flag"}.get(verdict, "bad")
        table.add_row(_folded(paths), *_figures(isolated), *_figures(end), f"{scale:.2g}", Text(verdict, style))
    caption = "max abs diff and relative diff of each module's output, fed the reference's input (isolated) and from "
    return Group(Text(f"{caption}token ids only (end to end)", "note"), "", table)


def _alike(by_path: dict[str, dict[str, Difference]], expand: bool) -> list[list[str]]:
    """Paths that differ in their layer only and have the same verdict."""
    alike: dict[tuple[str, str], list[str]] = {}
    for path, modes in by_path.items():
        verdict = _verdict(modes.get(ISOLATED), modes.get(END_TO_END))
        alike.setdefault((path if expand else without_numbers(path), verdict), []).append(path)
    return list(alike.values())


def _verdict(isolated: Difference | None, end: Difference | None) -> str:
    """`follows`: right by itself, wrong because of what it was given."""
    if isolated is not None and not isolated.ok:
        return "differs"
    if end is not None and not end.ok:
        return "differs" if isolated is None else "follows"
    return "ok"


def _worst(differences: Iterable[Difference | None]) -> Difference | None:
    return max((each for each in differences if each is not None), key=lambda each: each.relative, default=None)


def _folded(paths: Sequence[str]) -> str:
    """`blocks.0..11.attn`; `blocks.0,3.attn` where layers between them are not meant."""
    columns = zip(*(path.split(".") for path in paths), strict=True)
    return ".".join(
        column[0] if len(set(column)) == 1 else _numbers([int(each) for each in column]) for column in columns
    )


def _numbers(layers: Sequence[int]) -> str:
    if list(layers) == list(range(layers[0], layers[-1] + 1)):
        return f"{layers[0]}..{layers[-1]}"
    return ",".join(map(str, layers[:4])) + ("..." if layers[4:] else "")


def _figures(difference: Difference | None) -> tuple[str, str]:
    return (
        ("", "") if difference is None else (write_number(difference.max_abs_diff), write_number(difference.relative))
    )


def _tensors(report: Report) -> RenderableType:
    compared = [row.difference for row in report.tensors if row.difference is not None]
    wrong = sum(not each.ok for each in compared)
    line = f"{count_of(len(compared), 'tensor')} inside them compared: "
    if wrong:
        return Text(f"{line}{wrong} differ", "bad")
    return Text(
        f"{line}all within {write_number(max((each.relative for each in compared), default=0.0))} of their scale"
    )


def _logits(report: Report) -> RenderableType:
    if report.logits is None:
        return Text("logits: yours returned no tensor", "bad")
    largest, relative = write_number(report.logits.max_abs_diff), write_number(report.logits.relative)
    same = "the same" if report.same_argmax else "not the same"
    return Text(f"logits: max abs diff {largest}, relative {relative}; {same} argmax at every position")


def _predictions(report: Report) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="note")
    for title in ("token", "yours says next", "reference says next"):
        table.add_column(title, no_wrap=True)
    for each in report.predictions:
        style = "good" if each.yours == each.reference else "bad"
        table.add_row(quoted(each.token), Text(quoted(each.yours), style), Text(quoted(each.reference)))
    return table
