"""Find the claims of a source file: in its comments, docstrings and annotations, and in the calls of einops."""

from __future__ import annotations

import ast
import io
import linecache
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from shapetrace.axes.docstrings import RETURNED, entries_in
from shapetrace.axes.grammar import Axis, AxisList, axes_in_pattern, axis_lists_in
from shapetrace.recorder.access import Place, read_place
from shapetrace.shape_comments.claims import About, Binding, Claim, ClaimedFile, FunctionKey

Function = ast.FunctionDef | ast.AsyncFunctionDef
_SIMPLE = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return | ast.Expr
_TOOLS = re.compile(r"\s*#\s*(?:(?:noqa|nosec)\b|(?:type|fmt|pragma|pylint|pyright|mypy|isort|ruff|yapf):).*", re.I)
_EINOPS = ("rearrange", "reduce", "repeat", "einsum", "pack", "unpack", "EinMix", "parse_shape")
_MATMUL = ("matmul", "bmm", "mm", "einsum", "dot", "mul", "baddbmm", "cat", "stack")


@dataclass(frozen=True, slots=True)
class _Comment:
    line: int
    column: int
    text: str  # from the `#`
    stands_alone: bool


def read_claims(path: str) -> ClaimedFile:
    """The claims of the file as it is now; none where it cannot be read."""
    linecache.checkcache(path)
    return _read(path, "".join(linecache.getlines(path)))


@lru_cache(maxsize=64)
def _read(path: str, text: str) -> ClaimedFile:
    file = ClaimedFile(path)
    try:
        tree = ast.parse(text)
        comments = list(_comments(text))
    except (SyntaxError, ValueError, RecursionError, tokenize.TokenError):
        return file
    _Reader(file, tree, text.split("\n"), comments).read()
    file.names = frozenset(name for claim in file.claims for name in claim.names)
    return file


def _comments(text: str) -> Iterator[_Comment]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            yield _Comment(token.start[0], token.start[1], _TOOLS.sub("", token.string), alone)


class _Reader:
    def __init__(self, file: ClaimedFile, tree: ast.Module, rows: list[str], comments: list[_Comment]):
        self._file = file
        self._rows = rows
        self._trailing = {each.line: each for each in comments if not each.stands_alone}
        self._alone = {each.line: each for each in comments if each.stands_alone}
        self._tree = tree
        self._innermost: dict[int, ast.stmt] = {}  # by row
        self._bodies: dict[int, list[ast.stmt]] = {}  # by the first row of each statement, the statements around it
        self._variables = {
            each.arg if isinstance(each, ast.arg) else each.id
            for each in ast.walk(tree)
            if isinstance(each, ast.arg) or (isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
        } | {"self"}
        self._functions: list[Function] = []
        self._classes: list[ast.ClassDef] = []
        for node in ast.walk(tree):
            for name in ("body", "orelse", "finalbody"):
                body = getattr(node, name, None)
                if isinstance(body, list):
                    self._bodies.update((each.lineno, body) for each in body)
            if isinstance(node, ast.stmt):
                for row in range(node.lineno, last_row(node) + 1):
                    self._innermost[row] = node
            if isinstance(node, Function):
                self._functions.append(node)
            elif isinstance(node, ast.ClassDef):
                self._classes.append(node)

    def read(self) -> None:
        for function in self._functions:
            self._read_function(function)
        for comment in self._trailing.values():
            self._read_trailing(comment)
        for block in self._blocks():
            self._read_block(block)
        for node in ast.walk(self._tree):
            if isinstance(node, ast.stmt):
                self._read_code(node)
        self._file.claims.sort(key=lambda each: (each.line, each.column))

    # What stands where

    def _add(self, claim: Claim) -> Claim:
        self._file.claims.append(claim)
        return claim

    def _claims_of(self, comment: _Comment, before: str = "") -> list[Claim]:
        """The claims of a comment; before: the row above, of which it is the rest."""
        text = comment.text.lstrip("#! ").rstrip()
        prefix = f"{before} " if before else ""
        said = [one for one in axis_lists_in(prefix + text) if one.start >= len(prefix)]
        offset = comment.column + len(comment.text) - len(comment.text.lstrip("#! ")) - len(prefix)
        operands = tuple(one for one in said if one.role == "operand")
        results = tuple(one for one in said if one.role == "result") if operands else ()
        return [
            Claim(
                self._file.path,
                comment.line,
                offset + one.start,
                "comment",
                one,
                partners=results if one.role == "operand" else operands,
            )
            for one in said
        ]

    def _read_trailing(self, comment: _Comment) -> None:
        statement = self._innermost.get(comment.line)
        claims = self._claims_of(comment)
        if statement is None or not claims:
            return
        if isinstance(statement, Function):
            self._read_header(statement, comment, claims)
        elif isinstance(statement, ast.For | ast.AsyncFor | _SIMPLE):
            inner = _expression_ending_at(statement, comment.line) if comment.line < last_row(statement) else None
            if inner is not None:
                claims = [replace(each, about=About(nodes=(inner,))) for each in claims if each.said.role != "operand"]
                if comment.line == statement.lineno:
                    claims = [
                        replace(each, about=replace(_about(statement, each.said, 0, 1), lenient=(inner,)))
                        for each in claims
                    ]
                self._at_statement(statement, claims)
            else:
                self._at_statement(statement, self._placed(statement, claims))

    def _placed(self, statement: ast.stmt, claims: list[Claim]) -> list[Claim]:
        """What each claim of a comment at a statement is about; in order, where there are as many as it has targets."""
        results = [each for each in claims if each.said.role != "operand"]
        operands = [each for each in claims if each.said.role == "operand"]
        one_each = 1 < len(results) == _targets_count(statement)
        placed = [
            replace(each, about=_about(statement, each.said, index, len(results))) for index, each in enumerate(results)
        ]
        are_told_apart = one_each or all(each.about.places and (each.said.labels or each.said.near) for each in placed)
        if len(placed) > 1 and not are_told_apart:
            others = {id(each): tuple(other for other in placed if other is not each) for each in placed}
            placed = [replace(each, others=others[id(each)]) for each in placed]
        return placed + [
            replace(each, about=_about_operand(statement, index, len(operands))) for index, each in enumerate(operands)
        ]

    def _at_statement(self, statement: ast.stmt, claims: list[Claim], paragraph: Sequence[ast.stmt] = ()) -> None:
        for claim in claims:
            about = claim.about
            attributes = self._attributes_in(statement, about)
            if not (about.places or about.nodes or about.is_returned or about.lenient or about.roots or attributes):
                continue
            self._file.at_statement.setdefault(statement.lineno, []).append(self._add(claim))
            for each in paragraph:
                self._file.in_paragraph.setdefault(each.lineno, []).append(claim)
            for name, (first, last) in attributes.items():
                self._file.of_attribute.append((first, last, name, claim))

    def _attributes_in(self, statement: ast.stmt, about: About) -> dict[str, tuple[int, int]]:
        """The attributes that a constructor binds: what they hold shows on the finished module."""
        around = [each for each in self._functions if each.lineno <= statement.lineno <= (each.end_lineno or 0)]
        classes = [each for each in self._classes if each.lineno <= statement.lineno <= (each.end_lineno or 0)]
        if not classes or not around or around[-1].name == "forward":
            return {}
        inner = max(classes, key=lambda each: each.lineno)
        span = (inner.lineno, inner.end_lineno or inner.lineno)
        names = [place.steps[0][1] for place in about.places if place.root == "self" and len(place.steps) == 1]
        names += [
            node.attr
            for node in about.nodes
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        ]
        registered = _registered_name(statement)
        return dict.fromkeys([*names, *([registered] if registered else [])], span)

    # Comments that stand alone

    def _blocks(self) -> Iterator[list[_Comment]]:
        block: list[_Comment] = []
        for row in sorted(self._alone):
            comment = self._alone[row]
            if block and (row != block[-1].line + 1 or comment.column != block[-1].column):
                yield block
                block = []
            block.append(comment)
        if block:
            yield block

    def _read_block(self, block: list[_Comment]) -> None:
        following = self._innermost.get(block[-1].line + 1)
        inside = self._innermost.get(block[-1].line)
        if inside is not None and inside.lineno < block[0].line and not getattr(inside, "body", None):
            self._read_inner_block(inside, block)
            return
        begins = (
            following is not None and following.lineno == block[-1].line + 1 and following.col_offset == block[0].column
        )
        for index, comment in enumerate(block):
            above = block[index - 1].text.strip("#! ") if index else ""
            claims = self._claims_of(comment, above if re.search(r"[\w,]\Z", above) else "")
            claims = [each for each in claims if _speaks_of_shapes(each, comment)]
            named = [each for each in claims if self._is_named(each)]
            later = self._next_statement(block[-1].line, block[0].column)
            if later is not None and not isinstance(later, Function | ast.ClassDef):
                self._at_statement(later, [self._about_name(each, later, block) for each in named])
            if begins and isinstance(following, _SIMPLE):
                is_last = not any(self._claims_of(each) for each in block[index + 1 :])
                self._above(following, [each for each in claims if each not in named], is_last)

    def _is_named(self, claim: Claim) -> bool:
        """Whether it is told of which of the file's variables it is."""
        places = _labelled(claim.said.labels)
        return bool(places) and claim.said.role != "operand" and all(each.root in self._variables for each in places)

    def _about_name(self, claim: Claim, later: ast.stmt, block: list[_Comment]) -> Claim:
        """`# q: (B, nh, T, hs)` on a row of its own: of q as it was bound above, or as the next statement binds it."""
        places = _labelled(claim.said.labels)
        names = tuple(ast.parse(place.text, mode="eval").body for place in places)
        bound = tuple(place for place in map(read_place, _targets_of(later)) if place is not None)
        if later.lineno == block[-1].line + 1 and {place.root for place in places} & {place.root for place in bound}:
            above = self._innermost.get(block[0].line - 1)
            before = {place.root for place in map(read_place, _targets_of(above)) if place} if above else set()
            told_above = any(place.root in before for place in places)
            return replace(claim, about=About(places=places, lenient=names if told_above else (), each=True))
        return replace(claim, about=About(nodes=names, fallback=bound, each=True))

    def _read_inner_block(self, statement: ast.stmt, block: list[_Comment]) -> None:
        """Comments between the lines of a statement: on the line below them."""
        if not isinstance(statement, _SIMPLE):
            return
        row = block[-1].line + 1
        found = [each for each in _expressions_in(statement) if each.lineno == row]
        if not found:
            return
        node = max(found, key=lambda each: (each.end_lineno or 0, each.end_col_offset or 0))
        for comment in block:
            claims = [each for each in self._claims_of(comment) if each.said.role != "operand"]
            self._at_statement(
                statement, [replace(each, about=About(nodes=(node,), lenient=tuple(found))) for each in claims]
            )

    def _next_statement(self, row: int, column: int) -> ast.stmt | None:
        """The statement below, past empty rows and other comments, if it stands at this column."""
        while row < len(self._rows):
            row += 1
            if row not in self._alone and self._rows[row - 1].strip():
                statement = self._innermost.get(row)
                is_next = statement is not None and statement.lineno == row and statement.col_offset == column
                return statement if is_next else None
        return None

    def _above(self, statement: ast.stmt, claims: list[Claim], is_last: bool) -> None:
        """A comment above tells of the statement below it, of a step of it, or of what its paragraph comes to."""
        steps = tuple(_expressions_in(statement))
        is_product = sum(each.said.role == "operand" for each in claims) > 1
        paragraph = [] if is_product else self._paragraph(statement)
        for claim in self._placed(statement, claims):
            if claim.said.role == "operand":
                self._at_statement(statement, [claim])
            elif is_last:
                self._at_statement(statement, [claim], paragraph)
            else:
                about = replace(claim.about, each=False, lenient=(*claim.about.lenient, *steps))
                self._at_statement(statement, [replace(claim, about=about)], paragraph)

    def _paragraph(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements after it, up to an empty line, or one that has a claim of its own."""
        body = self._bodies.get(statement.lineno, [])
        after = body[body.index(statement) + 1 :] if statement in body else []
        found, row = [], last_row(statement)
        for each in after:
            own = self._trailing.get(last_row(each))
            if each.lineno != row + 1 or (own is not None and self._claims_of(own)):
                break
            found.append(each)
            row = last_row(each)
        return found

    def _column_of(self, said: AxisList, row: int, column: int) -> int:
        """Where the text stands in its row; ast counts bytes, and before the quotes. -1 where it cannot be told."""
        if column < 0:
            return -1
        start = len(self._rows[row - 1].encode()[:column].decode(errors="ignore"))
        quoted = self._rows[row - 1][start:].find(said.text)
        return start + quoted if 0 < quoted <= 4 else -1

    # Functions

    def _read_function(self, function: Function) -> None:
        key = key_of(function)
        arguments = _arguments_of(function)
        self._file.bindings[key] = list(_bindings(function, arguments))
        rows = [each.lineno for each in arguments]
        for argument in arguments:
            alone = rows.count(argument.lineno) == 1 and argument.lineno < function.body[0].lineno
            comment = self._trailing.get(argument.lineno)
            if comment and alone and argument.lineno != function.lineno:
                for claim in self._claims_of(comment):
                    self._at_entry(key, argument.arg, claim)
            for said, row, column in _annotated(argument.annotation):
                self._at_entry(
                    key,
                    argument.arg,
                    Claim(self._file.path, row, self._column_of(said, row, column), "annotation", said),
                )
        for item, annotation in _items(function.returns):
            for said, row, column in _annotated(annotation):
                column = self._column_of(said, row, column)
                claim = Claim(self._file.path, row, column, "annotation", said, About(is_returned=True, item=item))
                self._at_return(key, claim)
        self._read_docstring(function, key, [each.arg for each in arguments])

    def _read_header(self, function: Function, comment: _Comment, claims: list[Claim]) -> None:
        """`def forward(self, x):  # (B, T, C) -> (B, T, H)`; a comment on an argument's own row is read there."""
        key, arguments = key_of(function), _arguments_of(function)
        on_row = [each for each in arguments if each.lineno == comment.line]
        if comment.line != function.lineno and on_row:
            return
        is_arrow = any(each.said.role == "operand" for each in claims)
        for claim in claims:
            if claim.said.labels and set(claim.said.labels) <= {each.arg for each in arguments}:
                for label in claim.said.labels:
                    self._at_entry(key, label, claim)
            elif is_arrow and claim.said.role != "operand":
                self._at_return(key, replace(claim, about=About(is_returned=True)))
            elif len(on_row) == 1 and len(arguments) == 1 and len(claims) - is_arrow == 1:
                self._at_entry(key, on_row[0].arg, claim)

    def _at_entry(self, key: FunctionKey, argument: str, claim: Claim) -> None:
        if not any(claim is each for each in self._file.claims):
            self._add(claim)
        self._file.at_entry.setdefault(key, []).append((argument, claim))

    def _at_return(self, key: FunctionKey, claim: Claim) -> None:
        self._file.at_return.setdefault(key, []).append(self._add(claim))

    def _read_docstring(self, function: Function, key: FunctionKey, arguments: list[str]) -> None:
        first = function.body[0]
        if not (
            isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
        ):
            return
        rows = "\n".join(self._rows[first.lineno - 1 : first.end_lineno])
        for entry in entries_in(
            re.sub(r"^\s*[rRuUbB]{0,2}(?:\"\"\"|'''|\"|')", lambda found: " " * len(found[0]), rows),
            first.lineno,
            arguments,
        ):
            if not entry.names:
                continue
            claims = []
            for one in axis_lists_in(entry.text):
                if one.role == "operand" and entry.names != (RETURNED,):
                    continue
                row, column = self._place_of(one, entry.lines)
                claims.append(Claim(self._file.path, row, column, "docstring", replace(one, role="choice")))
            others = {id(each): tuple(other for other in claims if other is not each) for each in claims}
            for claim in claims:
                whole = replace(claim, others=others[id(claim)])
                if entry.names == (RETURNED,):
                    self._at_return(key, replace(whole, about=About(is_returned=True)))
                for name in entry.names if entry.names != (RETURNED,) else ():
                    self._at_entry(key, name, whole)

    def _place_of(self, one: AxisList, lines: list[tuple[int, str]]) -> tuple[int, int]:
        for row, text in lines:
            if one.text in text:
                return row, self._rows[row - 1].find(one.text)
        return lines[0][0], -1

    # Annotations and patterns in code

    def _read_code(self, node: ast.stmt) -> None:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            for said, row, column in _annotated(node.annotation):
                claim = Claim(self._file.path, row, self._column_of(said, row, column), "annotation", said)
                self._at_statement(node, [replace(claim, about=_about(node, said, 0, 1))])
        value = getattr(node, "value", None)
        if not isinstance(value, ast.expr):
            return
        for call in (each for each in ast.walk(value) if isinstance(each, ast.Call)):
            pattern = _pattern_in(call)
            if pattern is None:
                continue
            constant, axes = pattern
            said = AxisList(axes, str(constant.value), 0, 0, is_shape=True)
            claim = Claim(
                self._file.path, constant.lineno, constant.col_offset, "pattern", said, About(lenient=(call,))
            )
            self._at_statement(node, [claim])
            if _is_result(call, value):
                self._file.patterns[node.lineno] = axes


def _speaks_of_shapes(claim: Claim, comment: _Comment) -> bool:
    """In a comment of its own, a list in the middle of a sentence is a part of the sentence."""
    said = claim.said
    ends = not comment.text.rstrip()[claim.column - comment.column + len(said.text) :].strip(" .;,")
    return said.is_placed or said.is_shape or bool(said.labels) or said.role == "operand" or ends


def key_of(function: Function) -> FunctionKey:
    """As Python has them in the code object: a function begins with its first decorator."""
    return function.name, min([function.lineno, *(each.lineno for each in function.decorator_list)])


def last_row(node: ast.stmt) -> int:
    """The row on which the statement ends, or what stands before its body does."""
    if not getattr(node, "body", None) and not getattr(node, "cases", None):
        return node.end_lineno or node.lineno
    head = [
        each
        for each in ast.iter_child_nodes(node)
        if not isinstance(each, ast.stmt | ast.ExceptHandler | ast.match_case)
    ]
    last = max([node.lineno, *(getattr(each, "end_lineno", None) or 0 for each in head)])
    body = getattr(node, "body", None)
    return min(last, body[0].lineno) if body else last


def _arguments_of(function: Function) -> list[ast.arg]:
    given = function.args
    every = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return [each for each in every if each is not None and each.arg not in ("self", "cls")]


def _targets_of(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return (
            statement.targets[:1]
            if not isinstance(statement.targets[0], ast.Tuple | ast.List)
            else list(statement.targets[0].elts)
        )
    if isinstance(statement, ast.AugAssign | ast.AnnAssign):
        return [statement.target]
    if isinstance(statement, ast.For | ast.AsyncFor):
        return list(statement.target.elts) if isinstance(statement.target, ast.Tuple) else [statement.target]
    return []


def _targets_count(statement: ast.stmt) -> int:
    if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Tuple):
        return len(statement.value.elts)
    return len([each for each in _targets_of(statement) if not (isinstance(each, ast.Name) and each.id == "_")])


def _labelled(labels: tuple[str, ...]) -> tuple[Place, ...]:
    places = []
    for label in labels:
        try:
            place = read_place(ast.parse(label.removesuffix(".shape"), mode="eval").body)
        except SyntaxError:
            place = None
        if place is not None:
            places.append(place)
    return tuple(places)


def _about(statement: ast.stmt, said: AxisList, index: int, count: int) -> About:
    """What a result in a comment is about: the name that it says, its own target of several, or all that is bound."""
    labelled = _labelled(said.labels)
    if labelled:
        plain = _about(statement, replace(said, labels=()), index, count)
        return replace(plain, places=labelled, fallback=plain.places, each=True)
    if isinstance(statement, ast.Return):
        is_tuple = isinstance(statement.value, ast.Tuple) and count > 1 and len(statement.value.elts) == count
        return About(is_returned=True, item=index if is_tuple else None, each=said.each)
    targets = [each for each in _targets_of(statement) if not (isinstance(each, ast.Name) and each.id == "_")]
    shaped = _shape_of_what(statement)
    if shaped is not None:
        return About(nodes=(shaped,))
    every = [
        read_place(
            each.value
            if isinstance(each, ast.Subscript) and not isinstance(each.slice, ast.Constant | ast.Name)
            else each
        )
        for each in targets
    ]
    places = tuple(each for each in every if each is not None)
    if said.near and count > 1:
        near = tuple(each for each in places if each.text == said.near)
        if near:
            return About(places=near)
    if 1 < count == len(places):
        return About(places=places[index : index + 1])
    if isinstance(statement, ast.Expr):
        return About(lenient=tuple(_expressions_in(statement)))
    value = getattr(statement, "value", None)
    if value is not None and any(isinstance(each, ast.Subscript) for each in targets):
        # `x[:, 0] = y`: of what is put there, or else of x.
        whole = tuple(each.value for each in targets if isinstance(each, ast.Subscript))
        return About(places=() if whole and places and not places[0].steps else places, roots=(value,), lenient=whole)
    return About(places=places, each=said.each)


def _shape_of_what(statement: ast.stmt) -> ast.expr | None:
    """`x` of `B, T, C = x.shape`: the comment says what x is."""
    value = getattr(statement, "value", None)
    if (
        isinstance(value, ast.Call)
        and not value.args
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "size"
    ):
        return value.func.value
    if isinstance(value, ast.Attribute) and value.attr == "shape":
        return value.value
    return None


def _about_operand(statement: ast.stmt, index: int, count: int) -> About:
    """The index-th operand of the statement's product, or what a single operand became something from."""
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.expr):
        return About()
    steps = tuple(_expressions_in(statement))
    if count > 1:
        operands = _operands_in(value, count)
        return About(nodes=operands[index : index + 1]) if operands else About()
    steps = tuple(each for each in steps if each is not value)
    starts = _roots_of(statement.target) if isinstance(statement, ast.AugAssign) else ()
    return About(lenient=steps, roots=(*starts, *_roots_of(value)))


def _roots_of(node: ast.expr) -> Iterator[ast.expr]:
    """What an expression starts from, as it may be: `x` of `F.silu(self.w1(x))` and of `x.view(B, -1)`."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            yield from _roots_of(node.func.value)
        for argument in node.args[:1]:
            yield from _roots_of(argument)
    elif isinstance(node, ast.Tuple) and node.elts:
        yield from _roots_of(node.elts[0])
    elif isinstance(node, ast.Subscript):
        yield from _roots_of(node.value)
    elif isinstance(node, ast.BinOp):
        yield from _roots_of(node.left)
        yield from _roots_of(node.right)
    elif isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Name):
        yield from _roots_of(node.value)
    elif isinstance(node, ast.Name | ast.Attribute):
        yield node


def _operands_in(value: ast.expr, count: int) -> tuple[ast.expr, ...]:
    for node in ast.walk(value):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and count == 2:
            return node.left, node.right
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            args = [each for each in node.args if not isinstance(each, ast.Constant)]
            if name in _MATMUL and len(args) == count:
                return tuple(args)
            if name in _MATMUL and len(args) == count - 1 and isinstance(node.func, ast.Attribute):
                return (node.func.value, *args)
    if isinstance(value, ast.BinOp) and count == 2:
        return value.left, value.right
    return ()


def _expressions_in(statement: ast.stmt) -> list[ast.expr]:
    """What may be a tensor in the statement's value: not the function of a call, nor what a lambda computes."""
    value = getattr(statement, "value", None)
    found: list[ast.expr] = []

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return
        if isinstance(node, ast.Call):
            found.append(node)
            if isinstance(node.func, ast.Attribute):
                walk(node.func.value)
            for each in (*node.args, *(keyword.value for keyword in node.keywords)):
                walk(each)
            return
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.BinOp | ast.UnaryOp):
            found.append(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return
        for child in ast.iter_child_nodes(node):
            walk(child)

    if value is not None:
        walk(value)
    return found


def _expression_ending_at(statement: ast.stmt, row: int) -> ast.expr | None:
    """The one largest expression that ends on the row, inside a statement of several rows."""
    value = getattr(statement, "value", None)
    ending = [each for each in _expressions_in(statement) if each.end_lineno == row and each is not value]
    largest = [each for each in ending if not any(other is not each and _contains(other, each) for other in ending)]
    return largest[0] if len(largest) == 1 else None


def _contains(outer: ast.expr, inner: ast.expr) -> bool:
    return any(each is inner for each in ast.walk(outer))


def _registered_name(statement: ast.stmt) -> str:
    call = getattr(statement, "value", None)
    if (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("register_buffer", "register_parameter")
    ):
        first = call.args[0] if call.args else None
        return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    return ""


def _items(annotation: ast.expr | None) -> Iterator[tuple[int | None, ast.expr | None]]:
    """`tuple[A, B]` -> A and B with their places; anything else as a whole."""
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        name = (
            annotation.value.attr
            if isinstance(annotation.value, ast.Attribute)
            else getattr(annotation.value, "id", "")
        )
        if name.lower() == "tuple":
            yield from enumerate(annotation.slice.elts)
            return
    yield None, annotation


def _annotated(annotation: ast.expr | None) -> Iterator[tuple[AxisList, int, int]]:
    """`Float[Tensor, "batch seq d_model"]`, also in quotes, Optional or with `| None`; where the axes stand."""
    if annotation is None:
        return
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            inside = ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return
        for said, _, _ in _annotated(inside):
            yield said, annotation.lineno, -1
        return
    if isinstance(annotation, ast.BinOp):
        yield from _annotated(annotation.left)
        yield from _annotated(annotation.right)
    if not isinstance(annotation, ast.Subscript):
        return
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    texts = [each for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    words = [str(each.value) for each in texts]
    name = annotation.value.attr if isinstance(annotation.value, ast.Attribute) else getattr(annotation.value, "id", "")
    if name in ("Literal", "Annotated"):
        return
    if name in ("Optional", "Union"):
        for each in parts:
            yield from _annotated(each)
    elif len(parts) == 2 and len(texts) == 1 and parts[1] is texts[0]:
        axes = axes_in_pattern(words[0])
        if axes is not None:
            yield AxisList(axes, words[0], 0, 0, is_shape=True), texts[0].lineno, texts[0].col_offset
    elif name == "TensorType" and texts:
        joined = [axis for each in words for axis in axes_in_pattern(each) or ()]
        yield AxisList(tuple(joined), ", ".join(words), 0, 0, is_shape=True), texts[0].lineno, -1


def _pattern_in(call: ast.Call) -> tuple[ast.Constant, tuple[Axis, ...]] | None:
    """The pattern of an einops or einsum call, and the axes of its result."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in _EINOPS:
        return None
    given = [*call.args, *(each.value for each in call.keywords if each.arg == "pattern")]
    for index, each in enumerate(given):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and "->" in each.value:
            letters = name == "einsum" and index == 0
            axes = axes_in_pattern(each.value.split("->", 1)[1], letters)
            return None if axes is None else (each, axes)
    return None


def _is_result(call: ast.Call, value: ast.expr) -> bool:
    """Whether the call's result is what the statement binds, perhaps after arithmetic."""
    if isinstance(value, ast.BinOp):
        return _is_result(call, value.left) or _is_result(call, value.right)
    return call is value


def _bindings(function: Function, arguments: list[ast.arg]) -> Iterator[Binding]:
    for argument in arguments:
        yield Binding(argument.arg, argument.lineno, "", "argument")
    for node in ast.walk(function):
        if isinstance(node, ast.For | ast.comprehension):
            for each in ast.walk(node.target):
                if isinstance(each, ast.Name):
                    yield Binding(each.id, each.lineno, "", "loop")
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from _bound(target, node.value)


def _bound(target: ast.expr, value: ast.expr) -> Iterator[Binding]:
    if isinstance(target, ast.Tuple | ast.List):
        pairs = (
            zip(target.elts, value.elts, strict=False)
            if isinstance(value, ast.Tuple | ast.List)
            else ((each, value) for each in target.elts)
        )
        starred = isinstance(value, ast.Tuple | ast.List) and any(isinstance(each, ast.Starred) for each in value.elts)
        for each, part in ((each, value) for each in target.elts) if starred else pairs:
            yield from _bound(each, part)
    elif isinstance(target, ast.Name):
        text = ast.unparse(value)
        shaped = re.search(r"\.shape\b|\.size\(|\blen\(|\.numel\(|parse_shape", text)
        yield Binding(target.id, target.lineno, text, "shape" if shaped else "other")
    elif isinstance(target, ast.Starred):
        yield from _bound(target.value, value)
