"""Look at the tensors that claims are about, at the moment they are bound, and at the sizes that have names there."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from torch import Tensor, nn

from shapetrace.recorder.access import Place, look_up
from shapetrace.recorder.crash.expressions import Expressions, Unknown
from shapetrace.recorder.crash.shadow import Outputs
from shapetrace.recorder.source import Statement
from shapetrace.recorder.tensors import shape_of
from shapetrace.shape_comments.claims import About, Claim, ClaimedFile, FunctionKey
from shapetrace.shape_comments.reading import read_claims
from shapetrace.shape_comments.symbols import Known, Symbols
from shapetrace.trace import Shape

Value = tuple[str, Shape]  # what it is called, and its shape


@dataclass(slots=True)
class Sighting:
    """What a claim was about, once."""

    claim: Claim
    values: tuple[Value, ...]
    lenient: tuple[Value, ...] = ()
    known: dict[str, Known] = field(default_factory=dict)  # sizes that have a name there
    local: dict[str, int] = field(default_factory=dict)  # what an einops pattern in the same statement says


@dataclass(slots=True)
class Scope:
    """One run of one function: a symbol has one size in it."""

    file: ClaimedFile
    function: FunctionKey
    sightings: list[Sighting] = field(default_factory=list)
    tensors: set[str] = field(default_factory=set)  # local names that are tensors


class Watcher:
    """Is told by the recorder which frames and statements run, and keeps what the claims there are about."""

    def __init__(self, outputs: Outputs) -> None:
        self.files: dict[str, ClaimedFile] = {}
        self.scopes: list[Scope] = []
        self._outputs = outputs
        self._open: dict[int, Scope] = {}  # by the id of the frame, which is there until it is left
        self._before: dict[int, dict[int, list[Value]]] = {}  # what was computed before the statement, by claim

    def enter(self, frame: FrameType, owners: list[nn.Module]) -> None:
        code = frame.f_code
        file = self.files.get(code.co_filename)
        if file is None:
            file = self.files[code.co_filename] = read_claims(code.co_filename)
        if not file.claims:
            return
        scope = self._open[id(frame)] = Scope(file, (code.co_name, code.co_firstlineno))
        self.scopes.append(scope)
        for name, claim in file.at_entry.get(scope.function, ()):
            argument = frame.f_locals.get(name)
            values = list(_tensors_in(name, argument))
            if not values and argument is not None:
                scope.sightings.append(Sighting(claim, ()))  # an int, say
            # Of a list of tensors any may be meant; an argument that was not given is about nothing.
            self._see(scope, frame, owners, claim, values[:1], values[1:])

    def begin(self, frame: FrameType, statement: Statement) -> None:
        """Before the statement runs: the operands and steps that its claims speak of."""
        scope = self._open.get(id(frame))
        claims = scope.file.at_statement.get(statement.first, ()) if scope else ()
        if claims:
            self._before[id(frame)] = {
                id(claim): list(self._computed(frame, (*claim.about.nodes, *claim.about.roots, *claim.about.lenient)))
                for claim in claims
            }

    def over(self, frame: FrameType, statement: Statement, owners: list[nn.Module]) -> None:
        """The statement has run."""
        scope = self._open.get(id(frame))
        if scope is None or not statement.first:
            return
        for claim in scope.file.at_statement.get(statement.first, ()):
            if not claim.about.is_returned:
                self._judge_later(scope, frame, statement, owners, claim)
        for claim in scope.file.in_paragraph.get(statement.first, ()):
            bound = [look_up(place, frame.f_locals) for place in statement.targets]
            values = [
                (place.text, shape_of(each))
                for place, each in zip(statement.targets, bound, strict=True)
                if isinstance(each, Tensor)
            ]
            if values:
                self._see(scope, frame, owners, claim, [], values)
        self._before.pop(id(frame), None)

    def leave(self, frame: FrameType, statement: Statement, value: Any, owners: list[nn.Module]) -> None:
        """The function has returned, or raised: then with None."""
        scope = self._open.pop(id(frame), None)
        if scope is None:
            return
        self._complete_entries(scope, frame, owners)
        scope.tensors = {name for name, each in frame.f_locals.items() if isinstance(each, Tensor)}
        claims = [each for each in scope.file.at_statement.get(statement.first, ()) if each.about.is_returned]
        for claim in (*claims, *scope.file.at_return.get(scope.function, ())):
            if claim.about.places:
                named = self._at_places(frame, claim.about.places)
                if named:
                    self._see(scope, frame, owners, claim, named)
                    continue
            item = claim.about.item
            if item is not None and isinstance(value, tuple | list):
                returned = value[item] if item < len(value) else None
                self._see(scope, frame, owners, claim, list(_tensors_in(f"out.{item}", returned))[:1])
                continue
            tensors = list(_tensors_in("out", value))
            which = self._before.get(id(frame), {}).get(id(claim), [])
            self._see(scope, frame, owners, claim, tensors if claim.about.each else tensors[:1], [*tensors[1:], *which])
        self._before.pop(id(frame), None)

    def _complete_entries(self, scope: Scope, frame: FrameType, owners: list[nn.Module]) -> None:
        """What is said of arguments is said in names that the function may bind only then: `B, T, C = x.shape`."""
        symbols = Symbols(scope.file, scope.function, frame.f_locals, frame.f_globals, owners)
        at_entry = [claim for _, claim in scope.file.at_entry.get(scope.function, ())]
        for sighting in scope.sightings:
            if any(sighting.claim is each for each in at_entry):
                for name in sighting.claim.names:
                    known = (
                        symbols.find(name, sighting.claim.line)
                        if scope.file.is_bound_once(scope.function, name)
                        else None
                    )
                    if known is not None and name not in sighting.known:
                        sighting.known[name] = known

    def _judge_later(
        self, scope: Scope, frame: FrameType, statement: Statement, owners: list[nn.Module], claim: Claim
    ) -> None:
        about, before = claim.about, self._before.get(id(frame), {}).get(id(claim), [])
        spoken = list(self._computed(frame, about.nodes, before, statement))
        values = self._at_places(frame, about.places) or (not spoken and self._at_places(frame, about.fallback)) or []
        lenient = list(self._computed(frame, about.lenient, before, statement))
        values += spoken or list(self._computed(frame, about.roots, before, statement))[:1]
        if not about.each and len(values) > 1:
            values, lenient = values[:1], [*values[1:], *lenient]
        self._see(scope, frame, owners, claim, values, lenient, statement)

    def _at_places(self, frame: FrameType, places: Iterable[Place]) -> list[Value]:
        return [each for place in places for each in _tensors_in(place.text, look_up(place, frame.f_locals), flat=True)]

    def _is_other(self, frame: FrameType, claim: Claim) -> bool:
        """Whether the claim is about something that is there and is no tensor."""
        return any(look_up(place, frame.f_locals) is not None for place in (*claim.about.places, *claim.about.fallback))

    def _see(
        self,
        scope: Scope,
        frame: FrameType,
        owners: list[nn.Module],
        claim: Claim,
        values: Iterable[Value],
        lenient: Iterable[Value] = (),
        statement: Statement | None = None,
    ) -> None:
        values, lenient = tuple(values), tuple(lenient)
        if not values and not lenient and claim.kind != "pattern":
            if statement is not None and (claim.about.nodes or claim.about.lenient or self._is_other(frame, claim)):
                scope.sightings.append(Sighting(claim, ()))
            return
        symbols = Symbols(scope.file, scope.function, frame.f_locals, frame.f_globals, owners)
        known = {name: each for name in claim.names if (each := symbols.find(name, claim.line))}
        local = self._pattern_sizes(scope.file, statement, frame) if statement and claim.kind != "pattern" else {}
        scope.sightings.append(Sighting(claim, values, lenient, known, local))

    def _pattern_sizes(self, file: ClaimedFile, statement: Statement, frame: FrameType) -> dict[str, int]:
        """What the names of an einops pattern stand for in its result, which the statement has bound."""
        axes = file.patterns.get(statement.first, ())
        bound = [each for place in statement.targets for _, each in self._at_places(frame, (place,))]
        if not axes or not bound or len(axes) != len(bound[0]):
            return {}
        pairs = zip(axes, bound[0], strict=True)
        return {axis.names[0]: size for axis, size in pairs if len(axis.names) == 1 and axis.text.isidentifier()}

    def _computed(
        self,
        frame: FrameType,
        nodes: Iterable[ast.expr],
        before: list[Value] | None = None,
        statement: Statement | None = None,
    ) -> Iterator[Value]:
        """The tensors that the expressions are; those that a module returned are known only when it has run."""
        expressions = Expressions(frame, self._outputs)
        bound = {place.root for place in statement.targets} if statement else set()
        for node in nodes:
            text = ast.unparse(node)
            done = [each for each in before or () if each[0] == text]
            if done:
                yield done[0]
                continue
            if bound & set(_names_in(node, expressions)):
                continue
            try:
                value = expressions.value_of(node)
            except Unknown:
                continue
            if isinstance(value, Tensor):
                yield text, shape_of(value)


def _names_in(node: ast.AST, expressions: Expressions) -> Iterator[str]:
    """The names that its value depends on; what a module returned is known without its arguments."""
    if isinstance(node, ast.Name):
        yield node.id
    if isinstance(node, ast.Call):
        with suppress(Unknown):
            if isinstance(expressions.value_of(node.func), nn.Module):
                return
    for child in ast.iter_child_nodes(node):
        yield from _names_in(child, expressions)


def _tensors_in(name: str, value: Any, flat: bool = False) -> Iterator[Value]:
    """The tensor, or those in a tuple, list or dict of them."""
    if isinstance(value, Tensor):
        yield name, shape_of(value)
    elif isinstance(value, tuple | list) and not flat:
        for index, each in enumerate(value):
            if isinstance(each, Tensor):
                yield f"{name}.{index}", shape_of(each)
    elif isinstance(value, Mapping) and not flat:
        for key, each in value.items():
            if isinstance(each, Tensor):
                yield f"{name}.{key}", shape_of(each)


def see_attributes(model: nn.Module, files: Mapping[str, ClaimedFile]) -> Iterator[Scope]:
    """Parameters, buffers and other tensors that modules hold, where a claim stands at the line that made them."""
    for module in model.modules():
        for file in files.values():
            spans = _class_spans(type(module), file.path)
            scope = Scope(file, ("__init__", 0))
            for first, last, name, claim in file.of_attribute:
                if not any(first <= line <= last for line in spans):
                    continue
                stores = (module._parameters, module._buffers, vars(module))
                value = next((store[name] for store in stores if isinstance(store.get(name), Tensor)), None)
                if value is None:
                    if any(store.get(name) is not None for store in (*stores, module._modules)):
                        scope.sightings.append(Sighting(claim, ()))  # of a layer, and of no tensor
                    continue
                symbols = Symbols(file, scope.function, {}, {}, [module])
                known = {each: found for each in claim.names if (found := symbols.find(each, claim.line))}
                scope.sightings.append(Sighting(claim, ((f"self.{name}", shape_of(value)),), (), known))
            if scope.sightings:
                yield scope


def _class_spans(cls: type, path: str) -> list[int]:
    """First lines of the functions that the class and its ancestors have in the file."""
    codes = [getattr(each, "__code__", None) for base in cls.__mro__ for each in vars(base).values()]
    return [code.co_firstlineno for code in codes if code is not None and code.co_filename == path]


__all__ = ["About", "Scope", "Sighting", "Value", "Watcher", "see_attributes"]
