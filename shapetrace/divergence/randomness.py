"""What differs between two runs of one model on the same tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from shapetrace.divergence.alignment import Aligned
from shapetrace.divergence.arrangements import arrangements
from shapetrace.divergence.observation import Observation, Observed, observe
from shapetrace.divergence.verdict import Verdict
from shapetrace.report import Cause


def observe_twice(model: nn.Module, *inputs: Any) -> tuple[Observation, Observed | None]:
    """A run, and the first tensor in it that another run, from another seed, gives other values.

    The random state is left as it was.
    """
    first = next(model.parameters(), None)
    devices = [first.device] if first is not None and first.is_cuda else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(0)
        one = observe(model, *inputs)
        torch.manual_seed(1)
        other = observe(model, *inputs)
    for mine, again in zip(one.tensors, other.tensors, strict=False):
        if mine.name != again.name or not _same(mine.value, again.value):
            return one, mine
    return one, None


def judge_randomness(
    first: Observed | None, verdict: Verdict | None, aligned: Mapping[str, Aligned], seen: Observation, training: bool
) -> Verdict | None:
    """The verdict where what two runs differ in comes before what else is wrong; None where it does not."""
    if first is None or verdict is None:
        return None
    order = {id(each.value): index for index, each in reversed([*enumerate(seen.tensors)])}
    explained = verdict.explanation is not None and verdict.seen is not None
    if explained and verdict.seen and order.get(id(verdict.seen.value), -1) < order[id(first.value)]:
        return None
    advice = (
        "your model is in training mode: call `.eval()` first"
        if training
        else "something draws random numbers outside of training, such as a functional dropout without `self.training`"
    )
    for each in aligned.values():
        rate = _rate(first.value, each.reference)
        if rate is not None:
            cause = Cause(
                "random", f"Two runs differ: dropout zeroes {rate:.0%} of {each.definition.tensor}; {advice}.", rate
            )
            return Verdict(each, first, cause=cause)
    return replace(
        verdict, explanation=None, cause=Cause("random", f"Two runs differ, from `{first.name}` on; {advice}.")
    )


def _rate(yours: Tensor, reference: Tensor) -> float | None:
    """The share of entries that are zeroed where the others are 1 / (1 - rate) times the reference."""
    if not yours.is_floating_point() or yours.numel() != reference.numel():
        return None
    for arranged in arrangements(yours, tuple(reference.shape)):
        kept = (arranged != 0) & (reference != 0) & reference.isfinite()
        if not kept.any() or kept.sum() == (reference != 0).sum():
            continue
        ratios = (arranged[kept].double() / reference[kept].double()).sort().values
        middle = float(ratios[len(ratios) // 2])
        near = (ratios / middle - 1).abs() < 1e-3
        if middle > 1 and near.double().mean() > 0.98:
            return 1 - 1 / middle
    return None


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.nan_to_num(0.125), other.nan_to_num(0.125))
