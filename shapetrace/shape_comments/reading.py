"""Find the claims of a source file: in its comments, docstrings and annotations, and in the calls of einops."""

from __future__ import annotations

import ast
import linecache
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from shapetrace.axes.docstrings import RETURNED, entries_in
from shapetrace.axes.grammar import axis_lists_in
from shapetrace.axes.lists import AxisList
from shapetrace.recorder.access import Place, read_place
from shapetrace.shape_comments.bindings import Function, arguments_of, bindings_of, key_of, returned_count, words_of
from shapetrace.shape_comments.claims import About, Claim, ClaimedFile, FunctionKey
from shapetrace.shape_comments.comments import Comment, comments_in
from shapetrace.shape_comments.notation import axes_of_annotation, is_result, items_of, pattern_in
from shapetrace.shape_comments.statements import (
    about_operand,
    about_statement,
    expression_ending_at,
    expressions_in,
    last_row,
    operands_in,
    places_of_labels,
    registered_name,
    targets_count,
    targets_of,
)

# What a comment calls the result of a statement.
_RESULTS = {
    *("output", "outputs", "out", "result", "results", "shape", "shapes", "size", "return", "returns", "returned"),
    *("now", "then", "here", "becomes", "final", "it", "this", "dim", "dims", "dimensions", "tensor", "note"),
}
_SIMPLE = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return | ast.Expr


def read_claims(path: str) -> ClaimedFile:
    """The claims of the file as it is now; none where it cannot be read."""
    linecache.checkcache(path)
    return _read(path, "".join(linecache.getlines(path)))


@lru_cache(maxsize=64)
def _read(path: str, text: str) -> ClaimedFile:
    file = ClaimedFile(path)
    try:
        tree = ast.parse(text)
        comments = list(comments_in(text))
    except (SyntaxError, ValueError, RecursionError, tokenize.TokenError):
        return file
    _Reader(file, tree, text.split("\n"), comments).read()
    file.names = frozenset(name for claim in file.claims for name in claim.names)
    return file


class _Reader:
    def __init__(self, file: ClaimedFile, tree: ast.Module, rows: list[str], comments: list[Comment]):
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

    def _claims_of(self, comment: Comment, before: str = "") -> list[Claim]:
        """The claims of a comment; before: the row above, of which it is the rest."""
        text = comment.text.lstrip("#! ").rstrip()
        prefix = f"{before} " if before else ""
        said = [self._without_phrase(one, text) for one in axis_lists_in(prefix + text) if one.start >= len(prefix)]
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

    def _without_phrase(self, one: AxisList, text: str) -> AxisList:
        """`Transpose for the dot product: (B, T)` tells of no `product`, unless there is a variable of that name."""
        is_phrase = re.match(r"[A-Za-z-]+ (?:[\w-]+ )*?[\w-]+:", text) and not set(one.labels) & self._variables
        return replace(one, labels=()) if is_phrase else one

    def _read_trailing(self, comment: Comment) -> None:
        statement = self._innermost.get(comment.line)
        claims = self._claims_of(comment)
        if statement is None or not claims:
            return
        if isinstance(statement, Function):
            self._read_header(statement, comment, claims)
        elif isinstance(statement, ast.For | ast.AsyncFor | _SIMPLE):
            inner = expression_ending_at(statement, comment.line) if comment.line < last_row(statement) else None
            if inner is not None:
                claims = [replace(each, about=About(nodes=(inner,))) for each in claims if each.said.role != "operand"]
                if comment.line == statement.lineno:
                    claims = [
                        replace(each, about=replace(about_statement(statement, each.said, 0, 1), lenient=(inner,)))
                        for each in claims
                    ]
                self._at_statement(statement, claims)
            else:
                self._at_statement(statement, self._placed(statement, claims))

    def _placed(self, statement: ast.stmt, claims: list[Claim]) -> list[Claim]:
        """What each claim of a comment at a statement is about; in order, where there are as many as it has targets."""
        results = [each for each in claims if each.said.role != "operand"]
        operands = [each for each in claims if each.said.role == "operand"]
        one_each = 1 < len(results) == targets_count(statement)
        placed = [
            replace(each, about=about_statement(statement, each.said, index, len(results), bool(each.partners)))
            for index, each in enumerate(results)
        ]
        are_told_apart = one_each or all(each.about.places and (each.said.labels or each.said.near) for each in placed)
        if len(placed) > 1 and not are_told_apart:
            others = {id(each): tuple(other for other in placed if other is not each) for each in placed}
            placed = [replace(each, others=others[id(each)]) for each in placed]
        return placed + [
            replace(each, about=about_operand(statement, operands[0].said, index, len(operands)))
            for index, each in enumerate(operands)
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
        registered = registered_name(statement)
        return dict.fromkeys([*names, *([registered] if registered else [])], span)

    # Comments that stand alone

    def _blocks(self) -> Iterator[list[Comment]]:
        block: list[Comment] = []
        for row in sorted(self._alone):
            comment = self._alone[row]
            if block and (row != block[-1].line + 1 or comment.column != block[-1].column):
                yield block
                block = []
            block.append(comment)
        if block:
            yield block

    def _read_block(self, block: list[Comment]) -> None:
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
            named = {each: places for each in claims if (places := self._variables_named(each))}
            later = self._next_statement(block[-1].line, block[0].column)
            if later is not None and not isinstance(later, Function | ast.ClassDef):
                linked = _linked(list(named))
                for claim, places in zip(linked, named.values(), strict=True):
                    self._read_named(claim, places, later, block)
            if begins and isinstance(following, _SIMPLE):
                is_last = not any(self._claims_of(each) for each in block[index + 1 :])
                own = [each for each in claims if each not in named and not _is_about_another(each, following)]
                self._above(following, own, is_last, self._innermost.get(block[0].line - 1))

    def _variables_named(self, claim: Claim) -> tuple[Place, ...]:
        """Which of the file's variables a list on a row of its own is told of: `q, k: (B, T)`, `Mask is (B, T)`."""
        said = claim.said
        labels = said.labels or ((said.near,) if said.near and not claim.partners else ())
        exact = tuple(each if each.split(".")[0] in self._variables else each.lower() for each in labels)
        places = places_of_labels(exact)
        is_told = said.role != "operand" and len(places) == len(labels)
        return places if is_told and all(each.root in self._variables for each in places) else ()

    def _read_named(self, claim: Claim, places: tuple[Place, ...], later: ast.stmt, block: list[Comment]) -> None:
        """`# q: (B, nh, T, hs)` on a row of its own: of q as it was bound above, or as a statement below binds it."""
        names = tuple(ast.parse(place.text, mode="eval").body for place in places)
        roots = {place.root for place in places}
        if later.lineno == block[-1].line + 1 and roots & _bound_by(later):
            # What it was before the statement may be meant as well: `# x: (B, T, C)` above `x = x.mT`.
            about = About(places=places, lenient=names, each=True)
            again = [each for each in self._paragraph(later) if roots & _bound_by(each)]
            self._at_statement(later, [replace(claim, about=about)], again)
            return
        if self._is_bound_above(roots, block[0].line):
            about = About(nodes=names, each=True)
        else:
            body = self._bodies.get(later.lineno, [])
            below = [each for each in body if each.lineno >= later.lineno and roots & _bound_by(each)]
            later = below[0] if below else later
            about = About(places=places, each=True)
        self._at_statement(later, [replace(claim, about=about)])

    def _is_bound_above(self, names: set[str], row: int) -> bool:
        around = [each for each in self._functions if each.lineno <= row <= (each.end_lineno or 0)]
        bound = self._file.bindings.get(key_of(around[-1]), []) if around else []
        return any(each.name in names and each.line < row for each in bound)

    def _read_inner_block(self, statement: ast.stmt, block: list[Comment]) -> None:
        """Comments between the lines of a statement: on the line below them."""
        if not isinstance(statement, _SIMPLE):
            return
        row = block[-1].line + 1
        found = [each for each in expressions_in(statement) if each.lineno == row]
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

    def _above(self, statement: ast.stmt, claims: list[Claim], is_last: bool, before: ast.stmt | None = None) -> None:
        """A comment above tells of the statement below it, of a step of it, or of what its paragraph comes to.

        One that begins with an arrow may tell of the statement before it as well.
        """
        steps = tuple(expressions_in(statement))
        factors = [each for each in claims if each.said.role == "operand"]
        paragraph = self._paragraph(statement)
        if len(factors) > 1:
            # `(a) @ (b) -> (c)`: of the first statement of the paragraph that multiplies.
            products = [each for each in (statement, *paragraph) if _multiplies(each, factors)]
            if not products:
                return  # it happens within another function
            statement, paragraph = products[0], []
        for claim in self._placed(statement, claims):
            if claim.said.role == "operand":
                self._at_statement(statement, [claim])
            elif is_last:
                told = targets_of(before) if before is not None and claim.said.start and not claim.partners else ()
                names = tuple(each for each in told if isinstance(each, ast.Name))
                if names and self._rows[claim.line - 1].lstrip("# ").startswith(("->", "=>", "→")):
                    claim = replace(claim, about=replace(claim.about, lenient=(*claim.about.lenient, *names)))
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
        arguments = arguments_of(function)
        self._file.bindings[key] = list(bindings_of(function, arguments))
        around = [each for each in self._classes if each.lineno <= function.lineno <= (each.end_lineno or 0)]
        self._file.spoken[key] = words_of(max(around, key=lambda each: each.lineno) if around else function)
        rows = [each.lineno for each in arguments]
        for argument in arguments:
            alone = rows.count(argument.lineno) == 1 and argument.lineno < function.body[0].lineno
            comment = self._trailing.get(argument.lineno)
            if comment and alone and argument.lineno != function.lineno:
                for claim in self._claims_of(comment):
                    self._at_entry(key, argument.arg, claim)
            for said, row, column in axes_of_annotation(argument.annotation):
                self._at_entry(
                    key,
                    argument.arg,
                    Claim(self._file.path, row, self._column_of(said, row, column), "annotation", said),
                )
        for item, annotation in items_of(function.returns):
            for said, row, column in axes_of_annotation(annotation):
                column = self._column_of(said, row, column)
                claim = Claim(self._file.path, row, column, "annotation", said, About(is_returned=True, item=item))
                self._at_return(key, claim)
        self._read_docstring(function, key, [each.arg for each in arguments])

    def _read_header(self, function: Function, comment: Comment, claims: list[Claim]) -> None:
        """`def forward(self, x):  # (B, T, C) -> (B, T, H)`; a comment on an argument's own row is read there."""
        key, arguments = key_of(function), arguments_of(function)
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
            # `A tuple of (B, T, C) and (B, nh, T, T)`: where as many are returned, each is of its own.
            is_each = 1 < len(claims) == returned_count(function) and not re.search(r"\bor\b|\|", entry.text)
            others = {id(each): tuple(other for other in claims if other is not each) for each in claims}
            for index, claim in enumerate(claims):
                whole = claim if is_each else replace(claim, others=others[id(claim)])
                if entry.names == (RETURNED,):
                    about = About(is_returned=True, item=index if is_each else None)
                    self._at_return(key, replace(whole, about=about))
                for name in entry.names if entry.names != (RETURNED,) else ():
                    self._at_entry(key, name, whole)

    def _place_of(self, one: AxisList, lines: list[tuple[int, str]]) -> tuple[int, int]:
        """Each line is the end of its row; a list that goes over several has no column."""
        before = "\n".join(text for _, text in lines)[: one.start].split("\n")
        row, text = lines[len(before) - 1]
        column = len(self._rows[row - 1]) - len(text) + len(before[-1])
        return row, column if self._rows[row - 1].startswith(one.text, column) else -1

    # Annotations and patterns in code

    def _read_code(self, node: ast.stmt) -> None:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            for said, row, column in axes_of_annotation(node.annotation):
                claim = Claim(self._file.path, row, self._column_of(said, row, column), "annotation", said)
                self._at_statement(node, [replace(claim, about=about_statement(node, said, 0, 1))])
        value = getattr(node, "value", None)
        if not isinstance(value, ast.expr):
            return
        for call in (each for each in ast.walk(value) if isinstance(each, ast.Call)):
            pattern = pattern_in(call)
            if pattern is None:
                continue
            constant, axes = pattern
            said = AxisList(axes, str(constant.value), 0, 0, is_shape=True)
            claim = Claim(
                self._file.path, constant.lineno, constant.col_offset, "pattern", said, About(lenient=(call,))
            )
            self._at_statement(node, [claim])
            if is_result(call, value):
                self._file.patterns[node.lineno] = axes


def _linked(claims: list[Claim]) -> list[Claim]:
    """Lists of one comment any of which may be meant, `(B, T) or (B, 1, T)`, each with the others."""
    choices = [each for each in claims if each.said.role == "choice"]
    return [
        replace(
            each,
            others=tuple(other for other in choices if other is not each and other.said.labels == each.said.labels),
        )
        for each in claims
    ]


def _bound_by(statement: ast.stmt | None) -> set[str]:
    places = map(read_place, targets_of(statement)) if statement is not None else ()
    return {place.root for place in places if place is not None}


def _is_about_another(claim: Claim, statement: ast.stmt) -> bool:
    """Whether the list has a label that the statement knows nothing of: `# Mask is (B, T)` above `x = x + 1`."""
    labels = {label.lower() for label in claim.said.labels}
    text = ast.unparse(statement).lower()
    return bool(labels) and not labels & _RESULTS and not any(label in text for label in labels)


def _multiplies(statement: ast.stmt, factors: list[Claim]) -> bool:
    value = getattr(statement, "value", None)
    return isinstance(value, ast.expr) and bool(operands_in(value, len(factors), factors[0].said.joint))


def _speaks_of_shapes(claim: Claim, comment: Comment) -> bool:
    """In a comment of its own, a list in the middle of a sentence is a part of the sentence."""
    said = claim.said
    ends = not comment.text.rstrip()[claim.column - comment.column + len(said.text) :].strip(" .;,")
    return said.is_placed or said.is_shape or bool(said.labels) or said.role == "operand" or ends
