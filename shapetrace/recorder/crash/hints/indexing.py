"""Looking up: ids and positions past the end, too many indices."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from shapetrace.recorder.crash.hints.evidence import Evidence, is_real, shape, told
from shapetrace.recorder.crash.operation import Term


def explain(evidence: Evidence) -> Iterator[str]:
    """The largest id beside the size of the table."""
    operation = evidence.operation
    tensors = operation.tensors
    table = operation.callee if isinstance(operation.callee, nn.Embedding) else None
    if table is not None and tensors:
        yield from _past_the_end(tensors[0], f"{operation.module_name}.weight", table.weight, 0)
    elif operation.name == "embedding" and len(tensors) > 1 and tensors[1].tensor is not None:
        yield from _past_the_end(tensors[0], tensors[1].text, tensors[1].tensor, 0)
    elif operation.name in ("gather", "index_select", "take_along_dim") and len(tensors) > 1:
        axis = next(
            (each.value for each in operation.terms if isinstance(each.value, int)), operation.keywords.get("dim", 0)
        )
        assert tensors[0].tensor is not None
        yield from _past_the_end(tensors[1], tensors[0].text, tensors[0].tensor, axis)
    elif operation.name == "index" and tensors:
        yield from _index(evidence, tensors[0])


def _index(evidence: Evidence, table: Term) -> Iterator[str]:
    assert table.tensor is not None
    indices = evidence.operation.terms[1:]
    if len(indices) > table.tensor.ndim and None not in [each.value for each in indices]:
        yield f"{told(table)} has {table.tensor.ndim} axes, and {len(indices)} indices are given"
    for axis, index in enumerate(indices[: table.tensor.ndim]):
        size = table.tensor.shape[axis]
        if isinstance(index.value, Tensor):
            yield from _past_the_end(index, table.text, table.tensor, axis)
        elif isinstance(index.value, int) and not -size <= index.value < size:
            written = f"{index.text} is {index.value}" if index.text != str(index.value) else f"no {index.value}"
            yield f"axis {axis} of {told(table)} has {size} entries, 0 to {size - 1}, and {written}"


def _past_the_end(ids: Term, name: str, table: Tensor, axis: int) -> Iterator[str]:
    """Ids go from 0 to one less than the table has rows."""
    size = int(table.shape[axis])
    if (
        ids.tensor is None
        or not is_real(ids.tensor)
        or ids.tensor.dtype == torch.bool
        or ids.tensor.is_floating_point()
    ):
        return
    largest, smallest = int(ids.tensor.max()), int(ids.tensor.min())
    if smallest >= 0 and largest < size:
        return
    wrong = largest if largest >= size else smallest
    place = tuple((ids.tensor == wrong).nonzero()[0].tolist())
    rows = (
        f"{name} {tuple(table.shape)} has {size:,} rows, 0 to {size - 1:,}"
        if axis == 0
        else f"axis {axis} of {name} is {size}"
    )
    ending = ": there are more positions than it was made for" if _are_positions(ids.tensor) else ""
    yield f"{ids.text} {shape(ids)} has {wrong:,} at {place if len(place) != 1 else place[0]}, and {rows}{ending}"


def _are_positions(ids: Tensor) -> bool:
    """0, 1, 2, ... along the last axis, and more than two of them."""
    return ids.ndim > 0 and ids.shape[-1] > 2 and bool((ids[..., 1:] - ids[..., :-1] == 1).all())
