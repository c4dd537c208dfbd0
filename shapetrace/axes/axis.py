"""One axis of a list as it is written, and the lists that a text between brackets is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from shapetrace.axes.arithmetic import Size, names_in, parse_size
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
