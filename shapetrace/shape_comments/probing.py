"""Inputs whose sizes tell axes apart: a batch and a sequence as long as nothing else in the model is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from shapetrace.errors import ShapetraceError
from shapetrace.inputs import Asked, Inputs
from shapetrace.meta import on_meta
from shapetrace.recorder.tensors import shape_of_parameter
from shapetrace.running import prepare
from shapetrace.shape_comments.checking import conclude_call, watch_call
from shapetrace.shape_comments.explaining import Probe
from shapetrace.shape_comments.findings import ShapeComments
from shapetrace.shape_comments.watching import Watcher
from shapetrace.target import Target
from shapetrace.target.seeding import seeded
from shapetrace.target.vocabulary import vocabulary_of

# The first that is no size of the model's own is taken. Some models take few positions, and some no batch: then the
# last two are tried, and the inputs as they were prepared.
_POSITIONS = (11, 13, 17, 19, 23, 29, 31, 7, 5)
_BATCHES = (3, 5, 7, 13, 2)


def check_target(
    target: Target,
    asked: Asked,
    seed: int = 0,
    meta: bool = False,
    note: Any = lambda text: None,
    built: Watcher | None = None,
) -> ShapeComments:
    """Check the target's shape comments on these inputs; what was left open gets sizes of its own.

    built: what was seen while the target was built.

    Raises ShapetraceError where the forward needs other inputs, or raises.
    """
    is_open = asked.text is None and asked.ids is None  # then the tokens are drawn here
    inputs = prepare(target, asked, seed, meta, (lambda text: None) if is_open else note)
    error: Exception | None = None
    for given, probe in _attempts(target.model, inputs, asked, seed, meta):
        try:
            with seeded(seed), on_meta() if meta else nullcontext():
                _, watcher = watch_call(target.model, given.args, given.kwargs)
        except Exception as raised:
            error = raised
        else:
            return conclude_call(target.model, watcher, probe, built)
    reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    raise ShapetraceError(
        f"{target.name}: the forward raised, so that its comments cannot be checked: {reason}",
        "`shapetrace run` with the same model and inputs shows where",
    ) from error


def _attempts(model: nn.Module, inputs: Inputs, asked: Asked, seed: int, meta: bool) -> Iterator[tuple[Inputs, Probe]]:
    tokens = inputs.given
    if tokens is None or asked.described:
        yield inputs, Probe()
        return
    is_open = asked.text is None and asked.ids is None
    taken = sizes_of(model) | (set() if is_open else {len(tokens.ids)})
    batch = next((each for each in _BATCHES if each not in taken), _BATCHES[0])
    lengths = [each for each in _POSITIONS if each != batch]
    free = [each for each in lengths if each not in taken] or lengths
    for posn in dict.fromkeys((free[0], *lengths[-2:])) if is_open else (len(tokens.ids),):
        ids = _draw(model, batch, posn, seed) if is_open else torch.tensor([tokens.ids]).repeat(batch, 1)
        yield _with_ids(inputs, ids.to("meta") if meta else ids), Probe(batch, posn if is_open else None)
    yield inputs, Probe(1)


def _draw(model: nn.Module, batch: int, posn: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocabulary_of(model) or 2, (batch, posn), generator=generator)


def _with_ids(inputs: Inputs, ids: Tensor) -> Inputs:
    """The inputs with these ids, (batch, posn), wherever the token ids were."""
    assert inputs.given is not None
    shape = (1, len(inputs.given.ids))

    def swap(value: Any) -> Any:
        return ids.clone() if isinstance(value, Tensor) and tuple(value.shape) == shape else value

    return replace(
        inputs, args=tuple(map(swap, inputs.args)), kwargs={key: swap(each) for key, each in inputs.kwargs.items()}
    )


def sizes_of(model: nn.Module) -> set[int]:
    """Every size that the model has of its own: axes of its weights, integers of its modules and configs, quotients."""
    sizes: set[int] = set()
    for tensor in (*model.parameters(), *model.buffers()):
        sizes.update(shape_of_parameter(tensor) or ())
    for module in model.modules():
        for owner in (vars(module), *(_fields(each) for each in vars(module).values())):
            sizes.update(each for each in owner.values() if type(each) is int)
    return sizes | {
        first // second for first in sizes for second in sizes if 1 < second < first and first % second == 0
    }


def _fields(config: Any) -> Mapping[str, Any]:
    if isinstance(config, dict):
        return {str(key): each for key, each in config.items()}
    stored = getattr(config, "__dict__", None)
    return stored if isinstance(stored, dict) and not isinstance(config, nn.Module | Tensor) else {}
