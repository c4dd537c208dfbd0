"""Values as `--input` describes them: `float32[2,3,32,32]`, `int64[1,7]<100`, `file.safetensors:key`, `true`."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shapetrace.errors import ShapetraceError, suggest

_TENSOR = re.compile(r"(\w+)\[([\d,\s]*)\](?:\s*<\s*(\d+))?")
_NAMED = re.compile(r"([A-Za-z_]\w*)\s*=(.*)", re.S)
_EXAMPLE = "write x=float32[2,3,32,32], ids=int64[1,7]<100, mask=bool[7,7] or x=file.safetensors:key"
_LARGEST = 2**63 - 1  # what torch draws
_DTYPES = {name: each for name, each in vars(torch).items() if isinstance(each, torch.dtype)}


def split_name(description: str) -> tuple[str, str]:
    """`x=float32[2]` -> ("x", "float32[2]"); ("", ...) for an input by position."""
    named = _NAMED.fullmatch(description.strip())
    return (named[1], named[2].strip()) if named else ("", description.strip())


def make_value(description: str, vocabulary: int | None, generator: torch.Generator, device: str) -> Any:
    """The value that is described, drawn from the generator; whole numbers are below the vocabulary if not told.

    A name before the value is of no account here. Raises ShapetraceError where it describes nothing, there is no such
    file or tensor, or no tensor of that dtype holds such numbers.
    """
    told = f"`--input {description}`"
    name, description = split_name(description)
    tensor = _TENSOR.fullmatch(description)
    if tensor:
        return _draw(tensor[1], tensor[2], tensor[3], vocabulary, generator, device)
    if ".safetensors" in description:
        return _read(description, told).to(device)
    words: dict[str, Any] = {"true": True, "false": False, "none": None}
    if description.lower() in words:
        return words[description.lower()]
    try:
        return ast.literal_eval(description)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        given = f"{name}='{description}'" if name else f"'{description}'"
        is_text = description.replace("_", "").isalnum()
        hint = f'{_EXAMPLE}; a text in quotes of its own: --input "{given}"' if is_text else _EXAMPLE
        raise ShapetraceError(f"{told} describes no value", hint) from None


def _draw(
    kind: str, sizes: str, below: str | None, vocabulary: int | None, generator: torch.Generator, device: str
) -> Tensor:
    dtype = _DTYPES.get(kind)
    if dtype is None:
        raise ShapetraceError(f"there is no dtype `{kind}`", suggest(kind, _DTYPES))
    shape = [int(part) for part in sizes.split(",") if part.strip()]
    whole = not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
    if below is not None and not whole:
        raise ShapetraceError(f"`<{below}` limits whole numbers, not {kind}", _EXAMPLE)
    try:
        limit = _limit(dtype, below, vocabulary) if whole else 0
        if device == "meta":
            return torch.empty(shape, dtype=dtype, device=device)
        if dtype == torch.bool:
            return torch.rand(shape, generator=generator) < 0.5
        if whole:
            return torch.randint(limit, shape, generator=generator).to(dtype)
        drawn = torch.complex64 if dtype.is_complex else torch.float32
        return torch.randn(shape, generator=generator, dtype=drawn).to(dtype)
    except (RuntimeError, MemoryError, TypeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise ShapetraceError(f"no tensor {kind}{shape} can be made: {reason}", _EXAMPLE) from None


def _limit(dtype: torch.dtype, below: str | None, vocabulary: int | None) -> int:
    """Below which number to draw: as it was told, else the vocabulary as far as the dtype goes."""
    largest = min(torch.iinfo(dtype).max, _LARGEST)
    if below is None:
        return min(vocabulary or 2, largest + 1)
    # Compared as text is long: Python refuses to read a number of more than some thousand digits.
    digits = below.lstrip("0") or "0"
    if digits == "0":
        raise ShapetraceError("no whole number from 0 up is `<0`", _EXAMPLE)
    if len(digits) > len(str(_LARGEST)) or int(digits) > largest + 1:
        name = str(dtype).removeprefix("torch.")
        raise ShapetraceError(f"{name} holds numbers up to {largest:,}, not all that are `<{below}`", _EXAMPLE)
    return min(int(digits), _LARGEST)


def _read(description: str, told: str) -> Tensor:
    from safetensors import SafetensorError, safe_open

    before, found, key = description.partition(".safetensors:")  # a key may have colons of its own
    file = f"{before}.safetensors"
    if not found:
        raise ShapetraceError(f"{told} does not say which tensor of the file", _EXAMPLE)
    if not Path(file).is_file():
        raise ShapetraceError(f"there is no file `{file}`", "give the path of a .safetensors file")
    try:
        with safe_open(file, framework="pt") as opened:
            keys = list(opened.keys())
            if key not in keys:
                raise ShapetraceError(f"`{file}` has no tensor `{key}`", suggest(key, keys))
            tensor: Tensor = opened.get_tensor(key)
            return tensor
    except (SafetensorError, OSError) as error:
        raise ShapetraceError(f"`{file}` is no safetensors file: {error}", "write it with safetensors") from None
