"""Where lists of axes stand in a text: in brackets, between arrows, or bare."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from shapetrace.axes.arithmetic import Name, Operation
from shapetrace.axes.axis import Axis, axes_in_pattern, parse_axes
from shapetrace.axes.vocabulary import is_stop_word, is_symbol, strength_of


@dataclass(frozen=True, slots=True)
class AxisList:
    """One list of axes in a text: where it stands, what it is about, how sure it is that it is a shape at all."""

    axes: tuple[Axis, ...]
    text: str
    start: int
    end: int
    role: str = "result"  # result, operand, choice (one of several, any of which may be meant)
    labels: tuple[str, ...] = ()  # `q, k: (B, T)`: of which names it is told
    near: str = ""  # the word before it: a label if it is a name there
    is_placed: bool = False  # it begins the text, or follows an arrow or a label
    is_shape: bool = False  # `of shape (...)`: there is no other way to read it
    each: bool = False  # of each target
    joint: str = ""  # of an operand, what stands between it and the next: `@`, `x`, `*`, `+`

    @property
    def confidence(self) -> int:
        """2: every axis is written as only axes are; 1: as axes mostly are; 0: some are any word."""
        return min((strength_of(name) for axis in self.axes for name in axis.names), default=2)

    @property
    def has_names(self) -> bool:
        return any(axis.names for axis in self.axes)


ARROW = re.compile(r"-{1,2}>|={1,2}>|→|⟶|⇒")
_ADJACENT = re.compile(r"(?:\b(?:torch\.)?(?:\w*Tensor|Size|shape|size|Shape|Float|Int|Long|Bool))\Z")
_SHAPE_WORD = re.compile(
    r"(?:\bshaped?|\bshapes|\bsizes?(?:\(\))?|\bTensor|\btensor)\b(?:\(\))?"
    r"(?:\s+(?:is|of|are|will be|as|with|shape|size|\w*Tensor))*\s*[:=]{0,2}\s*[(\[`'\"]*\Z"
)
_NAME = r"[A-Za-z_][\w.]*(?:\[[\w'\"]+\])?"
LABEL = re.compile(
    rf"(?<![\w.])((?:{_NAME}\s*(?:,|/|&|\band\b)\s*)*{_NAME})(?:\.shape|\.size\(\)|\(\))?"
    r"\s*(?::|={1,2}|(?:\b(?:is|are|has|have|with)\b(?:\s+(?:both|all|each|now|still|an?|of))*))"
    r"\s*(?:(?:of )?(?:shape|size)s?)?\s*[:=]?\s*[`'\"]?\Z"
)


def bracketed_lists(text: str) -> Iterator[AxisList]:
    """Lists in brackets that are no call, no index and no word in parentheses."""
    position = 0
    while position < len(text):
        if text[position] not in "([":
            position += 1
            continue
        end = _closing(text, position)
        axes = parse_axes(text[position + 1 : end]) if end else ()
        if end and text[position : end + 1] == "()" and _SHAPE_WORD.search(text[:position]):
            axes = ()
        elif not axes:
            position += 1
            continue
        before, after = text[:position], text[end + 1 :]
        factor = not re.search(r"[)\]]", before) and bool(re.search(r"\w\s+[xX×*]\s*\Z", before))  # `B x (C x D)`
        called = factor or (bool(re.search(r"[\w\])]\Z", before)) and not _ADJACENT.search(before))
        is_element = before.rstrip().endswith(",") and _is_inside(text, position)
        used = bool(re.match(r"[\w\[(]|\.\w", after)) or is_element
        is_shape = bool(_SHAPE_WORD.search(before) or _ADJACENT.search(before))
        if len(axes or ()) == 1 and re.search(r"(?i)\btensors?\s*\Z", before):
            is_shape = False  # `output tensor (predictions)`
        one = AxisList(axes or (), text[position : end + 1], position, end + 1, is_shape=is_shape)
        if not called and not used and _is_list(one, before, text[end - 1]):
            yield one
            position = end + 1
        else:
            position += 1


def _is_list(one: AxisList, before: str, last: str) -> bool:
    """Whether brackets around this are those of a shape, as far as they alone tell."""
    if len(one.axes) == 1:
        axis = one.axes[0]
        begins = not before.strip() or bool(ARROW.search(before[-4:])) or bool(LABEL.search(before))
        if axis.kind != "size" or (isinstance(axis.size, int) and last != "," and not re.search(r"shape\W*\Z", before)):
            return False
        return one.is_shape or last == "," or begins
    if "," not in one.text and not re.search(r"\s[xX]\s|×", one.text):  # `merge (h d)`
        return one.is_shape or not before.strip() or bool(ARROW.search(before[-4:])) or bool(LABEL.search(before))
    return True


def _is_inside(text: str, position: int) -> bool:
    """Whether brackets are open there: `[h1, h2]` of `(B, T, [h1, h2])` is no list of axes."""
    return sum(character in "([" for character in text[:position]) > sum(
        character in ")]" for character in text[:position]
    )


def _closing(text: str, start: int) -> int:
    """Where the bracket is closed, by one of its kind: `[0, n)` is an interval."""
    opened: list[str] = []
    for position in range(start, len(text)):
        if text[position] in "([":
            opened.append(")" if text[position] == "(" else "]")
        elif text[position] in ")]":
            if text[position] != opened.pop():
                return 0
            if not opened:
                return position
    return 0


_AXIS = r"(?:[A-Za-z_][\w.]*'*|\d+)"
_ARITHMETIC = rf"(?:{_AXIS}(?:\s*(?://|[*/+-])\s*{_AXIS})*)"
_FACTOR = rf"(?:{_ARITHMETIC}|\([^()]*\))"
_BY_X = re.compile(rf"(?<![\w.)*/-])({_ARITHMETIC}(?:(?:\s+[xX]\s+|\s*×\s*){_FACTOR})+)(?![\w(*])")


def bare_lists(text: str) -> Iterator[AxisList]:
    """Lists without brackets: `B x T x C`, and `B, T, C` or `B H W C` where the comment is nothing else."""
    if ARROW.search(text):
        yield from lists_beside_arrows(text)
        return
    for found in _BY_X.finditer(text):
        axes = parse_axes(found[1])
        if axes and _all_sure(axes) and any(axis.names for axis in axes):
            yield AxisList(
                axes, found[1], found.start(1), found.end(1), is_shape=bool(_SHAPE_WORD.search(text[: found.start(1)]))
            )
            return
    head = re.match(
        r"(?:(?:of )?shape\s*[:=]?\s*|(?P<label>[A-Za-z_]\w*)(?:\.shape)?\s*[:=]\s*)?"
        r"(?P<list>[^;:=(\[#.]*[^;:=(\[#.\s])",
        text,
    )
    if head is None or text[head.end() :].strip()[:1] not in ("", ";", "(", "#", "."):
        return
    axes = parse_axes(head["list"]) if "," in head["list"] or " " in head["list"] else None
    if axes and len(axes) > 1 and _all_sure(axes) and any(is_symbol(name) for axis in axes for name in axis.names):
        is_shape = text.startswith(("shape", "of shape"))
        computed = any(isinstance(axis.size, Operation) for axis in axes)
        if is_shape or sum(is_symbol(name) for axis in axes for name in axis.names) > 1 or len(axes) > 2 or computed:
            yield AxisList(axes, head["list"], head.start("list"), head.end("list"), is_shape=is_shape)


def _all_sure(axes: tuple[Axis, ...]) -> bool:
    return all(strength_of(name) == 2 and not is_stop_word(name) for axis in axes for name in axis.names)


def lists_beside_arrows(text: str) -> list[AxisList]:
    """`B,T,C -> B,nh,T,hs`, `b t c -> b c t`, `BCHW -> BNC`: lists between arrows, whole or not at all."""
    arrows = list(ARROW.finditer(text))
    cuts = [0, *(each for arrow in arrows for each in arrow.span()), len(text)]
    lists = []
    for first, last in zip(cuts[::2], cuts[1::2], strict=True):
        segment = text[first:last]
        if first == 0 and not segment.strip():
            continue  # what comes before the arrow is on the row above
        begin = max((segment.rfind(mark) + 1 for mark in (":", ";")), default=0) if first == 0 else 0
        end = min([len(segment), *(segment.find(mark) for mark in (";", "#") if mark in segment)])
        one = _bare_list(segment[begin:end], first + begin)
        if one is None:
            return []
        lists.append(one)
    return lists


def _bare_list(text: str, offset: int) -> AxisList | None:
    content = text.strip()
    start = offset + text.index(content) if content else offset
    axes: tuple[Axis, ...] | None
    if re.fullmatch(r"[A-Z]{2,6}", content):
        axes = tuple(Axis(letter, "size", Name(letter)) for letter in content)
    elif content[:1] in ("(", "[") and _closing(content, 0) == len(content) - 1:
        axes = parse_axes(content[1:-1])
    else:
        axes = parse_axes(content) or axes_in_pattern(content)
    if not axes or not _all_sure(axes):
        return None
    return AxisList(axes, content, start, start + len(content))
