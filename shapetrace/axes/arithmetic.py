"""The size of one axis as a comment writes it: `T`, `64`, `3 * n_embd`, `C // n_head`, `(h d)`, `4C`, `H/2`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

_TOKEN = re.compile(r"\s*(?:(\d+)|([^\W\d][\w.\u2011\u00a0]*'*)|(//|\*\*|[-+*/×·^])|([()]))")
_LARGEST = 10**12  # no axis has more entries: what is computed beyond it is no size


@dataclass(frozen=True, slots=True)
class Name:
    """A symbol, or a path such as `self.n_head`."""

    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """Two sizes and what is computed of them."""

    operator: str
    left: Size
    right: Size


Size = int | Name | Operation


def parse_size(text: str, juxtaposed: bool = False) -> Size | None:
    """The size that the text writes; None where it writes none.

    juxtaposed: names beside each other are multiplied, as in the groups of einops. In parentheses they always are.
    """
    tokens: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            return None
        tokens.append(token[0].strip())
        position = token.end()
    parser = _Parser(tokens)
    try:
        size = parser.sum(juxtaposed)
    except (IndexError, ValueError):
        return None
    return size if parser.at_end else None


class _Parser:
    def __init__(self, tokens: list[str]):
        self._tokens = tokens
        self._next = 0

    @property
    def at_end(self) -> bool:
        return self._next >= len(self._tokens)

    def _peek(self) -> str:
        return "" if self.at_end else self._tokens[self._next]

    def _take(self) -> str:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def sum(self, juxtaposed: bool) -> Size:
        size = self._product(juxtaposed)
        while self._peek() in ("+", "-"):
            size = Operation(self._take(), size, self._product(juxtaposed))
        return size

    def _product(self, juxtaposed: bool) -> Size:
        size = self._power(juxtaposed)
        while True:
            after_number = isinstance(size, int) and _is_name(self._peek())  # `4C`
            if self._peek() in ("*", "/", "//", "×", "·"):
                operator = self._take()
                size = Operation("*" if operator in "×·" else operator, size, self._power(juxtaposed))
            elif after_number or (
                juxtaposed and (_is_name(self._peek()) or self._peek().isdigit() or self._peek() == "(")
            ):
                size = Operation("*", size, self._power(juxtaposed))
            else:
                return size

    def _power(self, juxtaposed: bool) -> Size:
        size = self._atom(juxtaposed)
        if self._peek() in ("^", "**"):
            self._take()
            return Operation("**", size, self._atom(juxtaposed))
        return size

    def _atom(self, juxtaposed: bool) -> Size:
        token = self._take()
        if token == "(":
            size = self.sum(juxtaposed=True)
            if self._take() != ")":
                raise ValueError(token)
            return size
        if token.isdigit():
            return int(token)
        if not _is_name(token):
            raise ValueError(token)
        return Name(token)


def _is_name(token: str) -> bool:
    return bool(token) and (token[0].isalpha() or token[0] == "_")


def names_in(size: Size | None) -> Iterator[str]:
    """Each name in it, from left to right."""
    if isinstance(size, Name):
        yield size.name
    elif isinstance(size, Operation):
        yield from names_in(size.left)
        yield from names_in(size.right)


_FUNCTIONS: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "+": lambda left, right: (left + right,),
    "-": lambda left, right: (left - right,),
    "*": lambda left, right: (left * right,),
    "//": lambda left, right: (left // right,) if right else (),
    "/": lambda left, right: tuple({left // right, -(-left // right)}) if right else (),  # of an odd size either
    "**": lambda left, right: (left**right,) if 0 <= right <= 8 else (),
}


def evaluate(size: Size, sizes: Mapping[str, int]) -> frozenset[int]:
    """What it can be, the names standing for these sizes; empty where one is not known.

    `H/2` is either neighbour of a half.
    """
    if isinstance(size, int):
        return frozenset((size,))
    if isinstance(size, Name):
        return frozenset((sizes[size.name],)) if size.name in sizes else frozenset()
    pairs = product(evaluate(size.left, sizes), evaluate(size.right, sizes))
    found = (each for left, right in pairs for each in _FUNCTIONS[size.operator](left, right))
    return frozenset(each for each in found if abs(each) <= _LARGEST)


def solve(size: Size, value: int, sizes: Mapping[str, int]) -> tuple[str, int] | None:
    """The one name that is not known and the size it must have, so that the whole is the value.

    None where several are not known, or more than one size would do, as in `C // n`.
    """
    unknown = [name for name in names_in(size) if name not in sizes]
    if len(unknown) != 1:
        return None
    solved = _solve(size, value, sizes)
    return (unknown[0], solved) if solved is not None and solved >= 0 else None


def has_no_solution(size: Size, value: int, sizes: Mapping[str, int]) -> bool:
    """Whether the whole cannot be the value, whatever the one unknown name in it stands for: `2 * n` is never 7."""
    unknown = [name for name in names_in(size) if name not in sizes]
    if len(unknown) != 1 or not _is_solvable(size):
        return False
    return solve(size, value, sizes) is None


def _is_solvable(size: Size) -> bool:
    if isinstance(size, Operation):
        return size.operator in ("+", "-", "*") and _is_solvable(size.left) and _is_solvable(size.right)
    return True


def _solve(size: Size, value: int, sizes: Mapping[str, int]) -> int | None:
    if isinstance(size, Name):
        return value
    if not isinstance(size, Operation):
        return None
    left, right = evaluate(size.left, sizes), evaluate(size.right, sizes)
    known = left or right
    if len(known) != 1 or size.operator not in ("+", "-", "*"):
        return None
    (other,) = known
    inner = size.right if left else size.left
    if size.operator == "*":
        return _solve(inner, value // other, sizes) if other and value % other == 0 else None
    if size.operator == "+":
        return _solve(inner, value - other, sizes)
    return _solve(inner, other - value if left else value + other, sizes)
