"""The user's own model: a class, a factory or an instance in a file or an importable module, untouched."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from shapetrace.errors import ShapetraceError, WeightsError, suggest
from shapetrace.target.meta import move_to_meta
from shapetrace.target.target import Advance, Note, Target
from shapetrace.weights.loading import load_weights, read_weights
from shapetrace.weights.seeded import draw_weights


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
            found = _classes_in(_import(place))
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
        torch.manual_seed(seed)
        module = _import(self.place)
        if meta:
            try:
                with torch.device("meta"):
                    model = self._build(module)
            except ShapetraceError:
                model = self._build(module)  # some constructors look at values
            return Target(self.name, move_to_meta(model).eval(), "none (shapes only)")
        return Target(self.name, self._build(module).eval(), f"as built (seed {seed})")

    def complete(self, outline: Target, weights: str, seed: int, note: Note, advance: Advance) -> Target:
        """`auto` keeps the weights the model was built with; `random` draws every parameter anew."""
        return give_weights(outline, weights, seed, note, advance)

    def _build(self, module: ModuleType) -> nn.Module:
        try:
            ast.parse(self.expression, mode="eval")
        except SyntaxError as error:
            raise ShapetraceError(f"`{self.expression}` is no Python expression: {error.msg}", _EXAMPLE) from None
        value = self._run(lambda: eval(self.expression, dict(vars(module))), module)
        if isinstance(value, nn.Module):
            return value
        if not callable(value):
            raise ShapetraceError(f"`{self.expression}` in {self.place} is {_a(value)}, no torch.nn.Module", _EXAMPLE)
        self._check_arguments(value, module)
        model = self._run(value, module)
        if not isinstance(model, nn.Module):
            raise ShapetraceError(
                f"`{self.expression}()` in {self.place} returns {_a(model)}, and no torch.nn.Module", _EXAMPLE
            )
        return model

    def _run(self, call: Any, module: ModuleType) -> Any:
        """Run the user's code, and tell what it raises by line."""
        try:
            return call()
        except NameError as error:
            if error.name and error.__traceback__ and error.name in self.expression and not _line_in_user_code(error):
                public = [name for name in vars(module) if not name.startswith("_")]
                raise ShapetraceError(f"{self.place} has no `{error.name}`", suggest(error.name, public)) from None
            raise _told(f"`{self.expression}` in {self.place}", error, module) from error
        except Exception as error:
            raise _told(f"`{self.expression}` in {self.place}", error, module) from error

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
            example = ", ".join(_example_of(each, module) for each in needed)
            raise ShapetraceError(
                f"`{self.expression}` in {self.place} needs {words}: {self.expression}{_written(signature)}",
                f"write the call, such as --model '{self.place}:{self.expression}({example})'",
            ) from None


_EXAMPLE = "name a class, a factory or an instance, such as model.py:GPT or 'model.py:GPT(GPTConfig(n_layer=2))'"


def give_weights(outline: Target, weights: str, seed: int, note: Note, advance: Advance) -> Target:
    """A model that was built already with these weights: `auto`, `random`, or the path of a safetensors file.

    Raises WeightsError for a file that does not fit, and for `pretrained`, which this model cannot have.
    """
    model = outline.model
    if weights == "auto":
        return outline
    if weights == "pretrained":
        raise WeightsError(
            f"shapetrace knows of no pretrained weights for {outline.name}", "give the path of a .safetensors file"
        )
    if weights == "random":
        draw_weights(model, seed, advance)
        return Target(outline.name, model, f"random (seed {seed})")
    file = Path(weights)
    absent = load_weights(model, read_weights(file), file.name)
    if absent:
        note(f"{file.name} has no {', '.join(absent[:4])}{', ...' if absent[4:] else ''}: kept as built")
    return Target(outline.name, model, file.resolve().name, True)


def _import(place: str) -> ModuleType:
    """The module at the place; raises ShapetraceError where there is none, or it cannot be imported."""
    try:
        return _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    except ShapetraceError:
        raise
    except (Exception, SystemExit) as error:
        raise _told(f"importing {place}", error) from error


def _import_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ShapetraceError(
            f"`{name}` is neither a file that ends in .py nor the name of a module",
            "write file.py:Name, package.module:Name, hf:NAME-OR-FOLDER, or the name of a built-in such as gpt2-small",
        )
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` has it
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ShapetraceError(
                f"there is no module `{error.name}`", "run where it can be imported, or give its file: file.py:Name"
            ) from None
        raise


def _import_file(path: Path) -> ModuleType:
    """Run the file as a module: of its package where it lies in one, else with its own folder on the path."""
    if not path.is_file():
        raise ShapetraceError(f"there is no file `{path}`", "give the path of a Python file, such as model.py:GPT")
    path = path.resolve()
    names, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    known = sys.modules.get(".".join(names))
    if len(names) > 1 and (known is None or getattr(known, "__file__", None) == str(path)):
        return importlib.import_module(".".join(names))
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    # A file may be called as a module that is there already, such as `tokens.py`: it gets a name that nothing else has.
    name = path.stem if known is None and path.stem.isidentifier() else f"shapetrace_user_{abs(hash(str(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their own module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _told(what: str, error: BaseException, module: ModuleType | None = None) -> ShapetraceError:
    """What the user's code raised, and on which line."""
    reason = f"{type(error).__name__}: {error}".rstrip(": ") if not isinstance(error, SystemExit) else "it exits"
    line = _line_in_user_code(error)
    if isinstance(error, SyntaxError):
        line = f"{os.path.basename(error.filename or '')}:{error.lineno}"
        reason = f"{type(error).__name__}: {error.msg}"
    hint = "guard what a file does when it is run with `if __name__ == '__main__':`" if reason == "it exits" else ""
    return ShapetraceError(f"{what} raised {reason}" + (f"\n  in {line}" if line else ""), hint or "mend that first")


def _line_in_user_code(error: BaseException) -> str:
    """The innermost line that is neither ours nor Python's import machinery."""
    own = os.path.dirname(os.path.dirname(__file__))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((own, "<")):
            return f"{os.path.basename(frame.filename)}:{frame.lineno}: {frame.line or ''}".rstrip(": ")
    return ""


def _classes_in(module: ModuleType) -> list[str]:
    """The models that the module itself defines, the last ones first: a whole model stands below its parts."""
    own = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, nn.Module)]
    return [each.__name__ for each in reversed(own) if each.__module__ == module.__name__]


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


def _written(signature: inspect.Signature) -> str:
    return str(signature.replace(return_annotation=inspect.Signature.empty))


def _a(value: object) -> str:
    return "None" if value is None else f"{'an' if type(value).__name__[0] in 'aeiou' else 'a'} {type(value).__name__}"
