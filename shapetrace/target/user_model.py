"""The user's own model: a class, a factory or an instance in a file or an importable module, untouched."""

from __future__ import annotations

import ast
import copy
import gc
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from shapetrace.errors import ShapetraceError, suggest
from shapetrace.meta import on_meta
from shapetrace.signatures import write_signature
from shapetrace.target.importing import folder_first, import_place, line_in_user_code, raised_in
from shapetrace.target.meta import move_to_meta
from shapetrace.target.seeding import seeded
from shapetrace.target.target import Advance, Note, Target
from shapetrace.target.weights import give_weights


@dataclass(frozen=True, slots=True)
class UserModel:
    """Where the model is, and the expression that makes it."""

    place: str  # `model.py` or `package.module`
    expression: str  # `GPT`, `GPT(GPTConfig(n_layer=2))`

    @classmethod
    def parse(cls, name: str) -> UserModel:
        """`model.py:GPT(GPTConfig())`, `package.module:GPT`; raises ShapetraceError where a part is missing."""
        head, py, tail = name.partition(".py:")
        place, colon, expression = (head + ".py", ":", tail) if py else name.partition(":")
        if not colon or not expression.strip():
            place = place.removesuffix(":")
            with folder_first(place):
                found = _classes_in(import_place(place))
            raise ShapetraceError(
                f"`{name}` does not say which model in {place}",
                f"name it, such as --model {place}:{found[0] if found else 'Name'}"
                + (f"; there is {', '.join(found)}" if len(found) > 1 else ""),
            )
        return cls(place, expression.strip())

    @property
    def name(self) -> str:
        """Without the folders, which are this machine's."""
        return f"{os.path.basename(self.place)}:{self.expression}"

    def outline(self, seed: int = 0, meta: bool = False) -> Target:
        """The model as its own code builds it under the seed, in eval mode.

        With `meta` without memory for its weights, where its code allows that, else moved to the meta device.
        Raises ShapetraceError where there is no such file or name, or its code raises.
        """
        with folder_first(self.place), seeded(seed):
            module = import_place(self.place)
            torch.manual_seed(seed)  # whatever the import drew, the first time that there was one
            if not meta:
                return Target(self.name, self._build(module).eval(), f"as built (seed {seed})")
            try:
                with on_meta():
                    model = self._build(module)
            except ShapetraceError:
                model = self._build(module)  # some constructors look at values
            return Target(self.name, move_to_meta(model).eval(), "none (shapes only)")

    def complete(self, outline: Target, weights: str, seed: int, note: Note, advance: Advance) -> Target:
        """`auto` keeps the weights the model was built with; `random` draws every parameter anew."""
        return give_weights(outline, weights, seed, note, advance)

    def _build(self, module: ModuleType) -> nn.Module:
        try:
            ast.parse(self.expression, mode="eval")
        except SyntaxError as error:
            raise ShapetraceError(f"`{self.expression}` is no Python expression: {error.msg}", _EXAMPLE) from None
        existing = _existing()
        value = self._run(lambda: eval(self.expression, dict(vars(module))), module)
        if isinstance(value, nn.Module):
            return _separate(value, existing)
        if not callable(value):
            raise ShapetraceError(f"`{self.expression}` in {self.place} is {_a(value)}, no torch.nn.Module", _EXAMPLE)
        self._check_arguments(value, module)
        model = self._run(value, module)
        if not isinstance(model, nn.Module):
            raise ShapetraceError(
                f"`{self.expression}()` in {self.place} returns {_a(model)}, and no torch.nn.Module", _EXAMPLE
            )
        return _separate(model, existing)

    def _run(self, call: Callable[[], Any], module: ModuleType) -> Any:
        """Run the user's code, and tell what it raises by line."""
        try:
            return call()
        except NameError as error:
            if error.name and error.__traceback__ and error.name in self.expression and not line_in_user_code(error):
                public = [name for name in vars(module) if not name.startswith("_")]
                raise ShapetraceError(f"{self.place} has no `{error.name}`", suggest(error.name, public)) from None
            raise raised_in(f"`{self.expression}` in {self.place}", error) from error
        except (Exception, SystemExit) as error:
            raise raised_in(f"`{self.expression}` in {self.place}", error) from error

    def _check_arguments(self, factory: Any, module: ModuleType) -> None:
        """Raise ShapetraceError, with the signature and an example, where a call needs arguments that are not there."""
        try:
            signature = inspect.signature(factory)
            signature.bind()
        except ValueError:  # written in C
            return
        except TypeError:
            needed = [each for each in signature.parameters.values() if each.default is each.empty]
            needed = [each for each in needed if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
            words = ", ".join(f"`{each.name}`" for each in needed)
            example = ", ".join(_argument_for(each, module) for each in needed)
            raise ShapetraceError(
                f"`{self.expression}` in {self.place} needs {words}: {self.expression}{write_signature(signature)}",
                f"write the call, such as --model '{self.place}:{self.expression}({example})'",
            ) from None


_EXAMPLE = "name a class, a factory or an instance, such as model.py:GPT or 'model.py:GPT(GPTConfig(n_layer=2))'"


def _classes_in(module: ModuleType) -> list[str]:
    """The models that the module itself defines, the last ones first: a whole model stands below its parts."""
    own = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, nn.Module)]
    return [each.__name__ for each in reversed(own) if each.__module__ == module.__name__]


def _existing() -> dict[int, Any]:
    """Every module and tensor that there is, by its id, which it keeps for as long as it is here."""
    # Asked of hundreds of thousands of objects, of few kinds.
    is_meant: Callable[[type], bool] = cache(lambda kind: issubclass(kind, (nn.Module, Tensor)))
    return {id(each): each for each in gc.get_objects() if is_meant(type(each))}


def _separate(model: nn.Module, existing: dict[int, Any]) -> nn.Module:
    """The model, or a copy where it is, or holds, an instance of the user's own, which is to stay as it is."""
    parts = (*model.modules(), *model.parameters(), *model.buffers())
    # A function that replaces a forward may refer to the very instance, and a copy of that would run the original.
    if not any(id(each) in existing for each in parts) or any(
        isinstance(vars(each).get("forward"), FunctionType) for each in model.modules()
    ):
        return model
    try:
        return copy.deepcopy(model)
    except Exception:  # some of what a module may hold cannot be copied
        return model


def _argument_for(parameter: inspect.Parameter, module: ModuleType) -> str:
    """What a call has to say for a parameter."""
    example = _example_of(parameter, module)
    return f"{parameter.name}={example}" if parameter.kind is parameter.KEYWORD_ONLY else example


def _example_of(parameter: inspect.Parameter, module: ModuleType) -> str:
    """What could be given for a parameter: the class it is annotated with, a class that is called like it, or `...`."""
    annotation = parameter.annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    kinds = {"int": "2", "float": "0.1", "bool": "True", "str": "'...'"}
    classes = [key for key, each in vars(module).items() if isinstance(each, type)]
    alike = [key for key in classes if parameter.name.lower() in ("cfg", "config") and key.lower().endswith("config")]
    if parameter.annotation is parameter.empty or name not in (*classes, *kinds):
        return f"{alike[0]}()" if alike else "..."
    return kinds.get(name, f"{name}()")


def _a(value: object) -> str:
    return "None" if value is None else f"{'an' if type(value).__name__[0] in 'aeiou' else 'a'} {type(value).__name__}"
