"""Which tensor of yours is which activation of the reference, by module and name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from torch import Tensor

from shapetrace.divergence.observation import Observation, Observed
from shapetrace.divergence.tolerance import measure, visible_scores
from shapetrace.report import Difference, TensorRow
from shapetrace.trace import write_source

# What TransformerLens calls it, and what else it is called where a GPT-2 is written by hand.
_SAME_NAMES = {
    "scale": ("residual_std", "std"),
    "normalized": ("residual", "x_norm"),
    "attn_scores": ("attn_scores_masked", "scores", "masked"),
    "pattern": ("attn_pattern", "weights", "probs"),
}
# A hook of a block that sits on what one of its modules returns.
_OUTPUT_OF = {"embed": "embed", "pos_embed": "pos_embed", "attn_out": "attn", "mlp_out": "mlp"}


@dataclass(frozen=True, slots=True)
class Aligned:
    """A tensor of yours, its axes in the reference's order, beside the activation that it stands for."""

    row: TensorRow
    seen: Observed | None  # None: nothing of yours stands for it
    yours: Tensor | None
    reference: Tensor
    visible: Tensor | None  # where the comparison looked; None: everywhere


def align(name: str, activation: Tensor, seen: Observation, rtol: float) -> Aligned:
    """Find the tensor of yours for the activation of that hook name, and measure how far apart they are.

    Where several have a fitting name, as after `scores = scores / 8`, it is the nearest one, else the last; masked
    scores come before those that are not masked yet, for the reference's are.
    """
    module, _, hook = name.rpartition(".")
    tensor = hook.removeprefix("hook_")
    visible = visible_scores(activation) if tensor == "attn_scores" else None
    found = _candidates(module, tensor, seen)
    if visible is not None:
        found = [each for each in found if _is_masked(each.value, visible)] or found
    best: tuple[Difference, Observed, Tensor] | None = None
    for each in reversed(found):
        difference, arranged = measure_best(each.value, activation, rtol, visible)
        if best is None or difference.relative < best[0].relative:
            best = (difference, each, arranged)
    if best is None:
        return Aligned(TensorRow(name, "", "", None), None, None, activation, visible)
    difference, chosen, arranged = best
    row = TensorRow(name, chosen.name, write_source(chosen.record.source), difference)
    return Aligned(row, chosen, arranged, activation, visible)


def _candidates(module: str, tensor: str, seen: Observation) -> list[Observed]:
    path = f"{module}.{_OUTPUT_OF[tensor]}" if module and tensor in _OUTPUT_OF else _OUTPUT_OF.get(tensor, module)
    if tensor in _OUTPUT_OF or tensor in ("out", "resid_post"):
        return [seen.outputs[path]] if path in seen.outputs else []
    names = (tensor, *_SAME_NAMES.get(tensor, ()))
    return [each for each in seen.of(module) if each.record.name in names]


def arrangements(yours: Tensor, reference: Tensor) -> Iterator[Tensor]:
    """The tensor as it is, then with its axes in each other order that fits, or repeated along the axes it lacks."""
    yield yours
    if yours.ndim == reference.ndim:
        for order in permutations(range(yours.ndim)):
            if order != (*range(yours.ndim),) and tuple(yours.shape[axis] for axis in order) == tuple(reference.shape):
                yield yours.permute(order)
    elif yours.ndim < reference.ndim:
        trailing = reference.shape[reference.ndim - yours.ndim :]
        if all(size in (1, other) for size, other in zip(yours.shape, trailing, strict=True)):
            yield yours.expand_as(reference)


def measure_best(
    yours: Tensor, reference: Tensor, rtol: float, visible: Tensor | None = None
) -> tuple[Difference, Tensor]:
    """Measure the first arrangement that agrees, else the one that comes nearest."""
    best: tuple[Difference, Tensor] | None = None
    for arranged in arrangements(yours, reference):
        difference = measure(arranged, reference, rtol, visible)
        if best is None or difference.relative < best[0].relative:
            best = (difference, arranged)
        if difference.ok:
            break
    assert best is not None
    return best


def _is_masked(scores: Tensor, visible: Tensor) -> bool:
    """Whether what the reference hides is lower, in these scores, than all that it shows."""
    if scores.shape != visible.shape or visible.all():
        return False
    return bool(scores[~visible].max() < scores[visible].min())
