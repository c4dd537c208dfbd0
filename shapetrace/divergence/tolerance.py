"""How far apart two tensors are, and whether that is more than rounding.

Differences are relative: max|yours - reference| / max|reference|. What rounding costs was measured between hand-written
GPT-2s and transformer_lens 3.9 and 4.3, over seeds, 2 to 12 layers and activations of scales from 1 to 3000, in units
of the dtype's eps (torch.finfo):

  float32, float64   at most 18 eps for a module fed the reference's input, 76 eps from token ids to logits, whatever
                     the weights: sums of thousands of terms are rounded term by term
  bfloat16, float16  sums are kept in float32 and rounded once, so that weights as usual cost 1 to 4 eps; but each
                     tensor is rounded, and what a softmax or a cancellation makes of that depends on the weights:
                     35 eps in the patterns of weights five times as large

So in float32 and float64 the limits are fixed, some ten times the noise. In the narrow dtypes the rounding is measured
where it happens: GPT-2's definitions are computed in float64 on the very same weights, and the reference's own distance
from them says what rounding costs at each tensor. A second implementation was 2 to 5 times as far from the reference
as the reference from the exact values, in every tensor of every trial.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shapetrace.report import Difference

# By dtype, in eps: for a module fed the reference's input, and from token ids. 2e-5 and 5e-5 in float32.
_FIXED = {torch.float64: (180.0, 450.0), torch.float32: (168.0, 420.0)}
NARROW = (torch.bfloat16, torch.float16)
# Times the reference's own rounding, which is taken to be one eps at least: other code rounds more often.
_TIMES = 8.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest relative difference that is still rounding."""

    isolated: float  # of a module that is fed the reference's input
    end_to_end: float
    measured: Mapping[str, float] = field(default_factory=dict)  # by activation and by module's path, where it was

    def of(self, activation: str) -> float:
        """Of an activation, from token ids."""
        return self.measured.get(activation, self.end_to_end)

    def of_module(self, path: str, is_isolated: bool) -> float:
        """Of what the reference's module of that path returns."""
        return self.measured.get(path, self.isolated if is_isolated else self.end_to_end)

    @property
    def range(self) -> tuple[float, float]:
        """The strictest limit and the widest."""
        limits = (*self.measured.values(), *(() if self.measured else (self.isolated, self.end_to_end)))
        return min(limits), max(limits)


def tolerance_of(dtype: torch.dtype) -> Tolerance:
    """Where rounding is not measured; dtypes other than float64 are compared as float32."""
    kind = dtype if dtype in _FIXED else torch.float32
    eps = torch.finfo(kind).eps
    isolated, end_to_end = (float(f"{times * eps:.1g}") for times in _FIXED[kind])
    return Tolerance(isolated, end_to_end)


def measured_tolerance(dtype: torch.dtype, rounding: Mapping[str, float]) -> Tolerance:
    """rounding: by activation and by module's path how far the reference is from the exact values, relative."""
    eps = torch.finfo(dtype).eps
    limits = {name: _TIMES * max(eps, each) for name, each in rounding.items()}
    return Tolerance(_TIMES * eps, _TIMES * eps, limits)


# Scores this far below the largest of their row get no weight in a softmax.
_HIDDEN = 30.0


def measure(yours: Tensor, reference: Tensor, rtol: float, visible: Tensor | None = None) -> Difference:
    """Compare two tensors of equal shape, in float64, where `visible` is True.

    A nan or an infinity on one side only, or of another sign, is a difference without measure: inf.
    """
    if yours.shape != reference.shape:
        return Difference(math.inf, math.inf, scale_of(reference), False)
    mine, theirs = yours.detach().cpu().double(), reference.detach().cpu().double()
    if visible is not None:
        visible = visible.cpu().expand_as(theirs)
        mine, theirs = mine[visible], theirs[visible]
    largest = float((mine - theirs).abs().max()) if mine.numel() else 0.0
    if math.isfinite(largest):  # a nan or an infinity on either side would show here
        scale = float(theirs.abs().max()) if theirs.numel() else 0.0
    else:
        scale = scale_of(theirs)
        if not all(torch.equal(test(mine), test(theirs)) for test in (torch.isnan, torch.isposinf, torch.isneginf)):
            return Difference(math.inf, math.inf, scale, False)
        finite = theirs.isfinite()
        largest = float((mine[finite] - theirs[finite]).abs().max()) if finite.any() else 0.0
    relative = largest / scale if scale else (math.inf if largest else 0.0)
    return Difference(largest, relative, scale, relative <= rtol)


def find_worst(yours: Tensor, reference: Tensor, count: int) -> list[tuple[int, ...]]:
    """Where two tensors of one shape are furthest apart, the worst first."""
    apart = (yours.detach().cpu().double() - reference.detach().cpu().double()).abs().nan_to_num(math.inf, math.inf)
    apart[(yours == reference).cpu() | (yours.isnan() & reference.isnan()).cpu()] = 0.0
    places = apart.flatten().topk(min(count, apart.numel())).indices
    return [tuple(int(each) for each in torch.unravel_index(place, apart.shape)) for place in places]


def scale_of(tensor: Tensor) -> float:
    """The largest finite absolute value; 0 where there is none."""
    values = tensor.detach().cpu().double().abs()
    values = values[values.isfinite()]
    return float(values.max().item()) if values.numel() else 0.0


def squares_of(tensor: Tensor) -> float:
    """The sum of the squares of the finite entries: the same whatever the order of the axes."""
    return float(tensor.detach().cpu().double().nan_to_num(0, 0, 0).square().sum())


def visible_scores(reference_scores: Tensor) -> Tensor:
    """Where attention scores are not masked: -inf and the dtype's lowest value are the reference's ways to mask."""
    return reference_scores > torch.finfo(reference_scores.dtype).min


def is_hidden(scores: Tensor, where: Tensor) -> bool:
    """Whether these cells of the scores get no weight beside the others of their row."""
    largest = scores.masked_fill(where, -math.inf).amax(-1, keepdim=True)
    is_even = scores.amax(-1, keepdim=True) == scores.amin(-1, keepdim=True)  # a row in which nothing is visible
    hidden = (scores <= largest - _HIDDEN) | (scores == -math.inf) | (is_even & (largest == -math.inf))
    return bool((~where | hidden).all())
