"""What a function's docstring says of its arguments and of what it returns, in any of the usual styles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

RETURNED = "return"
_SECTION = re.compile(
    r"(?P<args>args|arguments|params|parameters|inputs?|kwargs|keyword args)|(?P<shape>shapes?)"
    r"|(?P<returns>returns?|outputs?|yields)"
    r"|(?P<other>raises|examples?|notes?|references?|attributes|see also|warnings?|todo)",
    re.I,
)
_FIELD = re.compile(
    r"\s*[:@](?:param|parameter|arg|argument)\s+(?:[\w.\[\]]+\s+)?(?P<name>\w+)\s*:|\s*[:@](?P<returns>returns?|rtype)\b\s*:?"
)
_ENTRY = re.compile(
    r"\s*[-*•]?\s*[`*]*(?P<names>\*{0,2}\w+(?:\s*(?:,|/|and)\s*\w+)*)[`*]*"
    r"\s*(?P<type>\((?:[^()]|\([^()]*\))*\))?\s*(?::|=|--|—|–|-(?=\s)|\bis\b|(?<=\s)(?=[(\[])|\bof shape\b)"
)


@dataclass(slots=True)
class Entry:
    """What is told of some arguments, or of the returned value, line by line."""

    names: tuple[str, ...]
    indent: int = 0
    lines: list[tuple[int, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(text for _, text in self.lines)


def entries_in(docstring: str, first: int, parameters: Sequence[str]) -> list[Entry]:
    """Each entry, with the rows of the file that its lines stand on; first: the row of the docstring's first line."""
    entries: list[Entry] = []
    section, current = "", None
    lines = docstring.split("\n")
    for row, (line, below) in enumerate(zip(lines, [*lines[1:], ""], strict=True), first):
        words = line.strip().rstrip(":").strip()
        heading = _SECTION.fullmatch(words)
        if heading and (line.strip().endswith(":") or re.fullmatch(r"[-=~]{3,}", below.strip())):
            section, current = str(heading.lastgroup), None
            if section == "returns":
                current = Entry((RETURNED,))
                entries.append(current)
            continue
        if not words or re.fullmatch(r"[-=~]{3,}", line.strip()):
            current = (
                current
                if section == "returns" and current and not any(text.strip() for _, text in current.lines)
                else None
            )
            continue
        begun = _begin(line, section, parameters)
        if begun is not None:
            current, rest = begun
            current.indent = len(line) - len(line.lstrip())
            entries.append(current)
            current.lines.append((row, rest))
        elif section == "other" or (current and current.lines and len(line) - len(line.lstrip()) < current.indent):
            current = None
        elif current is not None:
            current.lines.append((row, line))
    return [each for each in entries if each.lines]


def _begin(line: str, section: str, parameters: Sequence[str]) -> tuple[Entry, str] | None:
    """The entry that the line begins, and what it says there."""
    told = _FIELD.match(line)
    if told:
        name = RETURNED if told["returns"] else told["name"]
        return (Entry((name,)), line[told.end() :]) if name == RETURNED or name in parameters else (Entry(()), "")
    inline = re.match(r"\s*(?P<what>inputs?|returns?|outputs?)\s*:\s*(?P<rest>.*\S)", line, re.I)
    if inline and (section == "shape" or not section or section == "returns"):
        is_input = inline["what"].lower().startswith("input")
        if not (is_input and len(parameters) != 1 and section != "shape"):
            name = (parameters[0] if parameters else "") if is_input else RETURNED
            return Entry((name,)), inline["rest"]
    found = _ENTRY.match(line)
    if found is None:
        return None
    names = tuple(name.lstrip("*") for name in re.split(r"\s*(?:,|/|\band\b)\s*", found["names"]))
    if section == "returns":
        return None
    rest = line[found.end("names") :].lstrip("`*")
    if all(name in parameters for name in names):
        return Entry(names), rest
    # An entry of an argument that is not there: its text is nobody else's.
    return (Entry(()), "") if section in ("args", "shape") and (found["type"] or re.match(r"\s*:", rest)) else None
