"""An attention pattern: of each query position how much it reads of each key position."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shapetrace.errors import ShapetraceError, suggest

Rows = tuple[tuple[float, ...], ...]  # (query, key); each row sums to 1


@dataclass(frozen=True, slots=True)
class Pattern:
    """The pattern of one attention layer, of all its heads or of one."""

    layer: int
    module: str
    tensor: str  # its name in the forward
    source: str  # `attention.py:58`; "" of a library's
    count: int  # of heads in the layer
    heads: dict[int, Rows]  # those that are to be seen


def layer_of(path: str) -> int | None:
    """The layer that a module's path tells: `blocks.3.attn` -> 3; a number behind `heads` counts something else."""
    parts = path.split(".")
    numbers = (int(part) for at, part in enumerate(parts) if part.isdigit() and not _is_head_list(parts, at))
    return next(numbers, None)


def number_layers(paths: Sequence[str]) -> list[tuple[int, str]]:
    """The number of each: its path's, where each path has another one, else its place in the order of the run."""
    told = [layer_of(path) for path in paths]
    numbers = [each for each in told if each is not None]
    distinct = len(set(numbers)) == len(paths)
    return list(zip(numbers if distinct else range(len(paths)), paths, strict=True))


def without_heads(path: str) -> str:
    """`blocks.0.sa.heads.1` -> `blocks.0.sa.heads`: where each head is a module, they make one layer."""
    parts = path.split(".")
    at = next((at for at in range(len(parts)) if parts[at].isdigit() and _is_head_list(parts, at)), len(parts))
    return ".".join(parts[:at])


def _is_head_list(parts: Sequence[str], at: int) -> bool:
    return at > 0 and re.fullmatch(r"\w*heads?", parts[at - 1]) is not None


def choose_layer(layers: Sequence[tuple[int, str]], layer: int | None, module: str | None, name: str) -> int:
    """Which of the layers, each its number and its module's path, is meant: by default the first.

    Of several in the module, the first is. Raises ShapetraceError where there is no such layer.
    """
    if module is not None:
        paths = [path for _, path in layers]
        if module in paths:
            return paths.index(module)
        inside = [at for at, path in enumerate(paths) if path.startswith(f"{module}.")]
        if inside:
            return inside[0]
        raise ShapetraceError(f"`{module}` has no attention pattern in {name}", suggest(module, paths))
    numbers = [number for number, _ in layers]
    if layer is not None and layer not in numbers:
        raise ShapetraceError(f"{name} has no layer {layer} with an attention pattern", _list(layers))
    return 0 if layer is None else numbers.index(layer)


def choose_heads(count: int, head: int | None, module: str) -> Iterable[int]:
    """That head, or all of so many; raises ShapetraceError where there is no such head."""
    if head is None:
        return range(count)
    if not 0 <= head < count:
        raise ShapetraceError(f"{module or 'the model'} has no head {head}", f"its heads are 0 to {count - 1}")
    return (head,)


def _list(layers: Sequence[tuple[int, str]]) -> str:
    named = [f"{number} ({path})" if path else f"{number}" for number, path in layers]
    return "there is " + ", ".join(named if len(named) < 6 else [*named[:2], "...", named[-1]])


def to_plain(pattern: Pattern, model: str, weights: str, labels: Sequence[str]) -> dict[str, Any]:
    """As JSON tells it: for each head a row for each query, with an entry for each key."""
    heads = [{"head": head, "pattern": [list(row) for row in rows]} for head, rows in pattern.heads.items()]
    return {
        **{"model": model, "weights": weights, "layer": pattern.layer, "module": pattern.module},
        **{"tensor": pattern.tensor, "source": pattern.source, "tokens": list(labels), "heads": heads},
    }
