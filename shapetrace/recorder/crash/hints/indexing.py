"""Looking up: ids and positions past the end, too many indices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from shapetrace.recorder.crash.hints.evidence import Evidence, is_real, shape, told
from shapetrace.recorder.crash.operation import Term


def explain(evidence: Evidence) -> Iterator[str]:
    """The largest id beside the size of the table."""
    operation = evidence.operation
    tensors = operation.tensors
    if isinstance(operation.callee, nn.Embedding) and tensors:
        name = f"{operation.module_name}.weight" if operation.module_name else "weight"
        yield from _past_the_end(tensors[0], name, operation.callee.weight, 0)
    elif operation.name == "embedding" and len(tensors) > 1 and tensors[1].tensor is not None:
        yield from _past_the_end(tensors[0], tensors[1].text, tensors[1].tensor, 0)
    elif operation.name in ("gather", "index_select", "take_along_dim") and len(tensors) > 1:
        numbers = [each.value for each in operation.terms if isinstance(each.value, int)]
        axis = numbers[0] if numbers else operation.keywords.get("dim", 0)
        assert tensors[0].tensor is not None
        yield from _past_the_end(tensors[1], tensors[0].text, tensors[0].tensor, axis % tensors[0].tensor.ndim)
    elif operation.name == "index" and operation.terms[0].tensor is not None:
        yield from _index(operation.terms[0], operation.terms[1:])


def _index(table: Term, indices: tuple[Term, ...]) -> Iterator[str]:
    """Each index beside the axis that it is for: `...` stands for several, `None` for none, a mask for its own."""
    assert table.tensor is not None
    consumed = sum(_axes_of(each.value) for each in indices)
    if consumed > table.tensor.ndim:
        yield f"{told(table)} has {table.tensor.ndim} axes, and {consumed} are indexed"
        return
    axis = 0
    for index in indices:
        size = int(table.tensor.shape[axis]) if axis < table.tensor.ndim else 0
        if index.value is ...:
            axis += table.tensor.ndim - consumed
            continue
        if isinstance(index.value, Tensor) and index.value.dtype != torch.bool:
            yield from _past_the_end(index, table.text, table.tensor, axis, lowest=-size)
        elif isinstance(index.value, tuple | list):
            wrong = [each for each in index.value if isinstance(each, int) and not -size <= each < size]
            yield from (_no_entry(table, axis, size, f"no {each}") for each in wrong)
        elif isinstance(index.value, int) and not isinstance(index.value, bool) and not -size <= index.value < size:
            written = f"{index.text} is {index.value}" if index.text != str(index.value) else f"no {index.value}"
            yield _no_entry(table, axis, size, written)
        axis += _axes_of(index.value)


def _no_entry(table: Term, axis: int, size: int, written: str) -> str:
    return f"axis {axis} of {told(table)} has {size} entries, 0 to {size - 1}, and {written}"


def _axes_of(index: Any) -> int:
    """How many axes an index is for."""
    if index is None or index is ... or isinstance(index, bool):
        return 0
    return index.ndim if isinstance(index, Tensor) and index.dtype == torch.bool else 1


def _past_the_end(ids: Term, name: str, table: Tensor, axis: int, lowest: int = 0) -> Iterator[str]:
    """Ids go from 0, and where they index from the end too, to one less than the table has rows."""
    size = int(table.shape[axis])
    if ids.tensor is None or not is_real(ids.tensor):
        return
    if ids.tensor.dtype == torch.bool or ids.tensor.is_floating_point():
        return
    largest, smallest = int(ids.tensor.max()), int(ids.tensor.min())
    if lowest <= smallest and largest < size:
        return
    wrong = largest if largest >= size else smallest
    place = tuple((ids.tensor == wrong).nonzero()[0].tolist())
    at = f" at {place if len(place) != 1 else place[0]}" if place else ""
    rows = f"{'rows' if axis == 0 else f'entries on axis {axis}'}, 0 to {size - 1:,}"
    ending = ": there are more positions than it was made for" if _are_positions(ids.tensor) else ""
    yield f"{ids.text} {shape(ids)} has {wrong:,}{at}, and {name} {tuple(table.shape)} has {size:,} {rows}{ending}"


def _are_positions(ids: Tensor) -> bool:
    """0, 1, 2, ... along the last axis, and more than two of them."""
    return ids.ndim > 0 and ids.shape[-1] > 2 and bool((ids[..., 1:] - ids[..., :-1] == 1).all())
