"""Source code with the observed shapes at the ends of its lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from shapetrace.annotation import AnnotatedFile
from shapetrace.annotation.layout import Function
from shapetrace.folding import fold_names
from shapetrace.render.theme import printable

_FARTHEST = 72  # comments stand below each other up to this column; a longer line has its own behind it


def render_listing(files: Sequence[AnnotatedFile]) -> Text:
    """Each function that ran, once, under the heading of its file and its own name.

    Its lines are as long as they are: as with any source code, it is the terminal that folds them.
    """
    return Text("\n\n").join(part for file in files for part in _file(file))


def _file(file: AnnotatedFile) -> Iterator[Text]:
    heading = Text(printable(file.name), "path")
    if file.layout is None:
        yield heading.append("  not available: ", "flag").append(printable(file.missing), "default")
        return
    yield heading
    width = len(str(max((function.last for function, _ in file.functions), default=0)))
    for function, modules in file.functions:
        yield _function(file, function, modules, width)


def _function(file: AnnotatedFile, function: Function, modules: Sequence[str], width: int) -> Text:
    heading = Text(function.name, "class")
    named = fold_names(module for module in modules if module)
    if named:
        heading.append(f"  {printable(', '.join(named))}", "note")
    rows = {number: _code(file, number) for number in range(function.first, function.last + 1)}
    told = [len(rows[number]) for number in rows if _comment(file, number)]
    column = max((length for length in told if length <= _FARTHEST), default=0)
    listed = [heading]
    for number, code in rows.items():
        line = Text(f"{number:>{width}}  ", "note").append(code, "default")
        comment = _comment(file, number)
        if comment and code.endswith(comment):  # it is there already
            line.stylize("shape", len(line) - len(comment))
        elif comment:
            line.append(" " * max(column - len(code), 0) + f"  {comment}", "shape")
        else:
            line.rstrip()
        listed.append(line)
    return Text("\n").join(listed)


def _code(file: AnnotatedFile, number: int) -> str:
    assert file.layout is not None
    return printable(file.layout.row(number).expandtabs().rstrip())


def _comment(file: AnnotatedFile, number: int) -> str:
    annotation = (file.annotations or {}).get(number)
    return f"# {annotation.text}" if annotation else ""
