"""The user's code as a module: a file, on its own or of a package, or the name of a module."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from shapetrace.errors import ShapetraceError
from shapetrace.packages import package_of

_PREFIX = "shapetrace_user_"  # of a module that is made of a lone file
# What a command imports after the user's code has run. A `rich.py` of the user's must not be taken for one of these.
_NEEDED_LATER = ("einops", "rich.console", "safetensors.torch", "tokenizers", "yaml")


@contextlib.contextmanager
def folder_first(place: str) -> Iterator[None]:
    """While the block runs the user's folder comes first on sys.path, as for `python file.py`; from then on last.

    Last, so that what a forward imports is found, and no file of the user's hides a library that is imported later.
    """
    folder = _folder_of(place)
    for name in _NEEDED_LATER:
        importlib.import_module(name)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)


@contextlib.contextmanager
def path_restored() -> Iterator[None]:
    """After the block sys.path is what it was: for a process that goes on, and imports things of its own."""
    before = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = before


def import_place(place: str) -> ModuleType:
    """The module at `model.py` or `package.module`.

    Raises ShapetraceError where there is none, or it cannot be imported.
    """
    try:
        return _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    except ShapetraceError:
        raise
    except (Exception, SystemExit) as error:
        raise raised_in(f"importing {place}", error, _hint_at(error)) from error


def _hint_at(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "guard what a file does when it is run with `if __name__ == '__main__':`"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"install `{error.name.partition('.')[0]}` beside shapetrace, or put its folder on PYTHONPATH"
    return "mend that first"


def raised_in(what: str, error: BaseException, hint: str = "mend that first") -> ShapetraceError:
    """What the user's code raised, and on which line."""
    line = line_in_user_code(error)
    reason = f"raised {type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, SyntaxError):
        line = f"{os.path.basename(error.filename or '')}:{error.lineno}"
        reason = f"raised {type(error).__name__}: {error.msg}"
    if isinstance(error, SystemExit):
        reason = "exits" + (f": {error.code}" if error.code is not None else "")
    return ShapetraceError(f"{what} {reason}" + (f"\n  in {line}" if line else ""), hint)


def line_in_user_code(error: BaseException) -> str:
    """The innermost line of the user's own code; of a library's, where none is the user's; else ""."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith("<")]
    own = os.path.dirname(os.path.dirname(__file__)) + os.sep
    outside = [each for each in frames if not each.filename.startswith(own)]
    for frame in reversed([each for each in outside if not package_of(each.filename)] or outside):
        return f"{os.path.basename(frame.filename)}:{frame.lineno}: {frame.line or ''}".rstrip(": ")
    return ""


def _import_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ShapetraceError(
            f"`{name}` is neither a file that ends in .py nor the name of a module",
            "write file.py:Name, package.module:Name, hf:NAME-OR-FOLDER, or the name of a built-in such as gpt2-small",
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ShapetraceError(
                f"there is no module `{error.name}`", "run where it can be imported, or give its file: file.py:Name"
            ) from None
        raise


def _folder_of(place: str) -> str:
    """Where the imports of the code at the place start: the current folder, or that of the file or of its package."""
    return str(_split_file(Path(place).resolve())[0]) if place.endswith(".py") else os.getcwd()


def _split_file(path: Path) -> tuple[Path, list[str]]:
    """`/home/ann/pkg/sub/model.py` -> `/home/ann` and ["pkg", "sub", "model"]."""
    names, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    return folder, names


def _import_file(path: Path) -> ModuleType:
    """Run the file as a module: of its package where it lies in one, else on its own."""
    if not path.is_file():
        raise ShapetraceError(f"there is no file `{path}`", "give the path of a Python file, such as model.py:GPT")
    path = path.resolve()
    _, names = _split_file(path)
    name = ".".join(names)
    if len(names) > 1 and getattr(sys.modules.get(name), "__file__", str(path)) == str(path):
        return importlib.import_module(name)
    # Not under the file's own name: another file, or a library, may be imported under it later in this process.
    # Nor twice under one name where it was edited in between.
    name = f"{_PREFIX}{zlib.crc32(str(path).encode() + path.read_bytes())}"
    if name in sys.modules:
        return sys.modules[name]
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
