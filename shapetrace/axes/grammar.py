"""What a comment says of shapes: text to axis lists, and which of them is the result.

Pure text: whether a list is meant as a shape shows in part only when its sizes are known (`confidence`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from shapetrace.axes.arithmetic import Name, Operation, Size, names_in, parse_size
from shapetrace.axes.vocabulary import is_stop_word, is_symbol, strength_of


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis as written. `kind`: size, rest (`...`, `*batch`: any number of axes) or any (`_`, `?`, `-1`)."""

    text: str
    kind: str = "size"
    size: Size | None = None
    may_be_one: bool = False  # jaxtyping's `#`

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(names_in(self.size))


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


_ARROW = re.compile(r"-{1,2}>|={1,2}>|→|⟶|⇒")
_ADJACENT = re.compile(r"(?:\b(?:torch\.)?(?:\w*Tensor|Size|shape|size|Shape|Float|Int|Long|Bool))\Z")
_SHAPE_WORD = re.compile(
    r"(?:\bshaped?|\bshapes|\bsizes?(?:\(\))?|\bTensor|\btensor)\b(?:\(\))?"
    r"(?:\s+(?:is|of|are|will be|as|with|shape|size|\w*Tensor))*\s*[:=]{0,2}\s*[(\[`'\"]*\Z"
)
_NAME = r"[A-Za-z_][\w.]*(?:\[[\w'\"]+\])?"
_LABEL = re.compile(
    rf"(?<![\w.])((?:{_NAME}\s*(?:,|/|&|\band\b)\s*)*{_NAME})(?:\.shape|\.size\(\)|\(\))?"
    r"\s*(?::|={1,2}|(?:\b(?:is|are|has|have|with)\b(?:\s+(?:both|all|each|now|still|an?|of))*))"
    r"\s*(?:(?:of )?(?:shape|size)s?)?\s*[:=]?\s*[`'\"]?\Z"
)
_NEAR = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*(?:\[\w+\])?)\s*\Z")
# Before a list: it was the shape, or is no shape at all but some of the axes, `mean over (H, W)`.
_PAST = re.compile(
    r"\b(?:was|were|not|instead of|rather than|from|before|than|no longer|originally|previously|unlike|over|per|across"
    r"|along|by|for each|for every|at|in|via|using|between|dims?|axes|axis|dimensions)\s*:?\s*\Z",
    re.I,
)
_INTERVAL = re.compile(
    r"\b(?:positions|rows|columns|frames|steps|tokens|slice|span|window|ranges?|interval)\s*\Z", re.I
)
# After one: `(query, key) pairs`.
_OF_AXES = re.compile(
    r"\s+(?:pairs?|entr(?:y|ies)|elements?|ind(?:ex|ices)|coord\w*|combinations?|tuples?|planes?|dims?|dimensions|axes"
    r"|axis|order|format|layout|plots?)\b",
    re.I,
)
_BETWEEN_OPERANDS = re.compile(r"\s*(?:[x×@*+·⊗]|matmul|\bmm\b|\bbmm\b|-)\s*")
# Behind a list or before it: it is that of every name. `(B, T, C), averaged over all heads` is not.
_EACH_AFTER = re.compile(r"\s*,?\s*\(?(?:each|both|all|for (?:q|each|all|both)|respectively)\b", re.I)
_EACH_BEFORE = re.compile(
    r"\b(?:each|both|all)(?: (?:is|are|have|has|of|with|the|in))*(?: shapes?| sizes?)?[\s:]*\Z", re.I
)


def axis_lists_in(text: str) -> list[AxisList]:
    """Every list of axes in a comment or in the description of an argument.

    `(B, nh, T, hs) x (B, nh, hs, T) -> (B, nh, T, T)`: two operands and the result. `q, k: (B, T)`: a labelled result.
    `(see above)`, `(optional)`, `f(x, y)`, `(e.g. 0.1)`: nothing.
    """
    found = list(_bracketed(text)) or list(_bare(text))
    if len(found) == 1 and _ARROW.search(text):
        found = _beside_arrows(text) or found
    each = any(
        _EACH_AFTER.match(text, one.start + len(one.text)) or _EACH_BEFORE.search(text[: one.start]) for one in found
    )
    lists = [replace(one, each=each) for one in _with_roles(text, found)]
    return [one for one in lists if one.role != "past"]


_TYPES = frozenset(
    [
        *("tensor", "torch.tensor", "longtensor", "floattensor", "torch.longtensor", "torch.floattensor", "ndarray"),
        *("np.ndarray", "int", "float", "bool", "str", "string", "list", "tuple", "dict", "none", "union", "callable"),
        *("optional", "any", "default", "module", "nn.module", "torch.device", "torch.dtype"),
    ]
)


def parse_axes(content: str) -> tuple[Axis, ...] | None:
    """`B, T, 3 * C` -> its axes; `B x T x C` and `b t c` as well; None for what is no list."""
    content = content.strip()
    if not content or any(mark in content for mark in ':;=!<>"`@&|\\{}'):
        return None
    if "," in _outside_brackets(content):
        parts = _split(content, ",")
        if parts and not parts[-1].strip():
            parts.pop()
        return _read_all(parts)
    by_x = re.split(r"\s+[xX]\s+|\s*×\s*", content)
    if len(by_x) > 1:
        return _read_all(by_x)
    axis = parse_axis(content)
    if axis is not None:
        return (axis,)
    return _spaced(content)


def parse_axis(text: str) -> Axis | None:
    """One axis; None for what is none."""
    text = text.strip().strip("`'\"") if not text.strip().endswith("'") else text.strip().strip('`"')
    if text in ("...", "…", "*"):
        return Axis(text, "rest")
    if re.fullmatch(r"\*[A-Za-z_]\w*", text) or re.fullmatch(r"\.\.\.\w+", text):
        return Axis(text, "rest")
    if text in ("_", "?", "-1", "None", "any", "*,"):
        return Axis(text, "any")
    size = parse_size(re.sub(r"(?<=[\w)])\s+[xX]\s+(?=[\w(])", " * ", _join_words(text)))
    if size is None or any(name.lower() in _TYPES for name in names_in(size)):
        return None
    return Axis(text, "size", size)


def axes_in_pattern(pattern: str, letters: bool = False) -> tuple[Axis, ...] | None:
    """One side of an einops pattern or of torch.einsum's, or jaxtyping's string; None where it is not one."""
    tokens = re.findall(r"\.\.\.|\([^()]*\)|\S", pattern) if letters else re.findall(r"\([^()]*\)|\S+", pattern)
    axes = [_pattern_axis(token) for token in tokens]
    return None if any(axis is None for axis in axes) else tuple(axis for axis in axes if axis is not None)


def _pattern_axis(token: str) -> Axis | None:
    may_be_one = "#" in token[:2]
    plain = token.lstrip("#?")
    if plain.startswith(("*", "...")):
        return Axis(token, "rest")
    if plain in ("_", "") or plain.startswith("_"):
        return Axis(token, "any")
    if "{" in plain:
        return Axis(token, "any")
    name, given, size = plain.partition("=")
    if plain == "()":
        return Axis(token, "size", 1)
    parsed = parse_size(size if given and not name.isidentifier() else name, juxtaposed=True)
    return None if parsed is None else Axis(token, "size", parsed, may_be_one)


_WORDS = re.compile(r"(?<![\w.])[A-Za-z][a-z]*(?:[ -][a-z]+)+(?![\w.])")


def _join_words(text: str) -> str:
    """`sequence length`, `time-step` are one name."""

    def joined(found: re.Match[str]) -> str:
        words = re.split(r"[ -]", found[0])
        if len(words) > 3 or any(map(is_stop_word, words)):
            return found[0]
        if all(len(word) > 2 for word in words) and "-" in found[0]:
            return found[0].replace(" ", "\u00a0").replace("-", "\u2011")
        if "-" not in found[0] and all(map(_may_join, words)):
            return found[0].replace(" ", "\u00a0").replace("-", "\u2011")
        return found[0]

    return _WORDS.sub(joined, text)


def _may_join(word: str) -> bool:
    return strength_of(word) > 0 or word in ("number", "n", "no", "max", "directions")


def _read_all(parts: list[str]) -> tuple[Axis, ...] | None:
    axes = []
    inner = [part.strip() for part in parts[1:-1]]
    if ("..." in inner or "…" in inner) and sum(bool(re.search(r"\d|n$|k$", part.strip())) for part in parts) > 1:
        return None  # `B1, ..., Bn`: as many as one likes
    for part in parts:
        axis = parse_axis(part)
        if axis is None:
            return None
        axes.append(axis)
    return tuple(axes)


def _spaced(content: str) -> tuple[Axis, ...] | None:
    """`B T C`: axes with spaces between them, where every one is written as only an axis is."""
    tokens = re.findall(r"\([^()]*\)|\S+", content)
    axes = [parse_axis(token) for token in tokens]
    sure = all(axis is not None and all(_is_sure(name) for name in axis.names) for axis in axes)
    if len(tokens) < 2 or not sure or all(not token[0].isalpha() for token in tokens):
        return None
    return tuple(axis for axis in axes if axis is not None)


def _is_sure(name: str) -> bool:
    return (
        strength_of(name) == 2
        and not is_stop_word(name)
        and (is_symbol(name) or "_" in name or name in ("batch", "seq", "heads", "dim"))
    )


def _bracketed(text: str) -> Iterator[AxisList]:
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
        begins = not before.strip() or bool(_ARROW.search(before[-4:])) or bool(_LABEL.search(before))
        if axis.kind != "size" or (isinstance(axis.size, int) and last != "," and not re.search(r"shape\W*\Z", before)):
            return False
        return one.is_shape or last == "," or begins
    if "," not in one.text and not re.search(r"\s[xX]\s|×", one.text):  # `merge (h d)`
        return one.is_shape or not before.strip() or bool(_ARROW.search(before[-4:])) or bool(_LABEL.search(before))
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


def _outside_brackets(text: str) -> str:
    """The text with what is in brackets blanked."""
    kept, depth = [], 0
    for character in text:
        depth -= character in ")]"
        kept.append(character if not depth else " ")
        depth += character in "(["
    return "".join(kept)


def _split(text: str, mark: str) -> list[str]:
    outside = _outside_brackets(text)
    cuts = [-1, *(index for index, character in enumerate(outside) if character == mark), len(text)]
    return [text[first + 1 : second] for first, second in pairwise(cuts)]


_AXIS = r"(?:[A-Za-z_][\w.]*'*|\d+)"
_ARITHMETIC = rf"(?:{_AXIS}(?:\s*(?://|[*/+-])\s*{_AXIS})*)"
_FACTOR = rf"(?:{_ARITHMETIC}|\([^()]*\))"
_BY_X = re.compile(rf"(?<![\w.)*/-])({_ARITHMETIC}(?:(?:\s+[xX]\s+|\s*×\s*){_FACTOR})+)(?![\w(*])")


def _bare(text: str) -> Iterator[AxisList]:
    """Lists without brackets: `B x T x C`, and `B, T, C` or `B H W C` where the comment is nothing else."""
    if _ARROW.search(text):
        yield from _beside_arrows(text)
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


def _beside_arrows(text: str) -> list[AxisList]:
    """`B,T,C -> B,nh,T,hs`, `b t c -> b c t`, `BCHW -> BNC`: lists between arrows, whole or not at all."""
    arrows = list(_ARROW.finditer(text))
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
    if not axes or not all(map(_all_sure, (axes,))):
        return None
    return AxisList(axes, content, start, start + len(content))


def _with_roles(text: str, found: list[AxisList]) -> Iterator[AxisList]:
    turns = list(_turns(text, found))
    first = min((start for start, _ in turns), default=-1)
    last = max((end for _, end in turns), default=-1)
    labels: tuple[str, ...] = ()
    for index, one in enumerate(found):
        before = text[: one.start]
        label, near = _LABEL.search(before), _NEAR.search(before)
        told, labels = labels, tuple(re.split(r"\s*(?:,|/|&|\band\b)\s*", label[1])) if label else ()
        placed = not re.sub(r"(?i)^(?:of )?(?:shape|size)?:?\s*[`'\"]?", "", before.strip()) or bool(labels)
        placed = placed or bool(re.search(rf"(?:{_ARROW.pattern})\s*\Z", before))
        role = "result"
        if last >= 0 and one.start < last:
            role = "operand" if one.end <= first else "past"
            labels = ()
        elif _PAST.search(before) or _OF_AXES.match(text[one.end :]) or _is_interval(one, before):
            role = "past"
        elif last < 0 and len(found) > 1:
            role = _plain_role(text, found, index)
        if role == "choice" and not labels and re.search(r"\bor\s*\Z", before):
            labels = told  # `mask is (B, T) or (B, 1, T)`
        joint = text[one.end : found[index + 1].start].strip() if role == "operand" and index + 1 < len(found) else ""
        yield replace(one, role=role, labels=labels, near=near[1] if near else "", is_placed=placed, joint=joint)


def _is_interval(one: AxisList, before: str) -> bool:
    """`the positions [start, start + n]`: from the first to the last, and no axes."""
    shared = len(one.axes) == 2 and set(one.axes[0].names) & set(one.axes[1].names)
    return bool(_INTERVAL.search(before)) and bool(shared or one.text.startswith("[0,"))


def _turns(text: str, found: list[AxisList]) -> Iterator[tuple[int, int]]:
    """Where operands end and what comes of them begins: at an arrow, between `(a) to (b)`, at `(a) * (b) = (c)`."""
    for arrow in _ARROW.finditer(text):
        if not any(one.start < arrow.start() < one.end for one in found):
            yield arrow.span()
    for index, (one, other) in enumerate(pairwise(found)):
        between = text[one.end : other.start].strip()
        if between == "to" or (between == "=" and index):
            yield one.end, other.start


def _plain_role(text: str, found: list[AxisList], index: int) -> str:
    """Of several lists without an arrow: `(a) @ (b)` are operands; of others any may be meant."""
    one = found[index]
    if len(found) > 2 and text[found[0].end : found[1].start].strip() == "=":  # `(c) = (a) * (b)`
        return "operand" if index else "result"
    following = text[one.end : found[index + 1].start] if index + 1 < len(found) else ""
    before = text[found[index - 1].end : one.start] if index else ""
    for between in (following, before):
        if between and _BETWEEN_OPERANDS.fullmatch(between):
            return "operand"
    return "choice"
