"""Which tensor of yours is which activation of the reference, by module and name."""

from __future__ import annotations

from torch import Tensor

from shapetrace.divergence.observation import Observation, Observed
from shapetrace.divergence.tolerance import measure, visible_scores
from shapetrace.report import TensorRow

# What TransformerLens calls it, and what else it is called where a GPT-2 is written by hand.
_SAME_NAMES = {
    "scale": ("residual_std", "std"),
    "normalized": ("residual", "x_norm"),
    "attn_scores": ("attn_scores_masked", "scores", "masked"),
    "pattern": ("attn_pattern", "weights", "probs"),
}
# A hook of a block that sits on what one of its modules returns.
_OUTPUT_OF = {"embed": "embed", "pos_embed": "pos_embed", "attn_out": "attn", "mlp_out": "mlp"}


def align(reference: str, activation: Tensor, seen: Observation, rtol: float) -> TensorRow:
    """The tensor of yours that stands for the activation, and how far apart they are.

    Where several have the name, as after `scores = scores / 8`, it is the nearest one, else the last.
    """
    module, _, hook = reference.rpartition(".")
    tensor = hook.removeprefix("hook_")
    visible = visible_scores(activation) if tensor == "attn_scores" else None
    found = _candidates(module, tensor, seen)
    if not found:
        return TensorRow(reference, "", "", None)
    measured = [(each, measure(each.value, activation, rtol, visible)) for each in found]
    nearest = min(reversed(measured), key=lambda each: each[1].relative)
    return TensorRow(reference, nearest[0].name, nearest[0].record.source, nearest[1])


def _candidates(module: str, tensor: str, seen: Observation) -> list[Observed]:
    path = f"{module}.{_OUTPUT_OF[tensor]}" if module and tensor in _OUTPUT_OF else _OUTPUT_OF.get(tensor, module)
    if tensor in _OUTPUT_OF or tensor in ("out", "resid_post"):
        return [seen.outputs[path]] if path in seen.outputs else []
    names = (tensor, *_SAME_NAMES.get(tensor, ()))
    return [each for each in seen.of(module) if each.record.name in names]
