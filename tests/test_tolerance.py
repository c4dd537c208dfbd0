"""How far apart two tensors are."""

import math

import pytest
import torch

from shapetrace.divergence.tolerance import Tolerance, measure, measured_tolerance, tolerance_of, visible_scores
from shapetrace.report import Difference

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("yours", "reference", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], Difference(0.0, 0.0, 2.0, True)),
        ([1.0, 2.5], [1.0, 2.0], Difference(0.5, 0.25, 2.0, False)),
        ([1.0, -2.0 - 2e-7], [1.0, -2.0], Difference(2e-7, 1e-7, 2.0, True)),  # relative to the largest value
        ([0.0], [0.0], Difference(0.0, 0.0, 0.0, True)),
        ([1e-9], [0.0], Difference(1e-9, INF, 0.0, False)),
        ([NAN, 1.0], [NAN, 1.0], Difference(0.0, 0.0, 1.0, True)),
        ([INF, -INF, 1.0], [INF, -INF, 1.0], Difference(0.0, 0.0, 1.0, True)),
        ([NAN, 1.0], [0.0, 1.0], Difference(INF, INF, 1.0, False)),
        ([0.0, 1.0], [NAN, 1.0], Difference(INF, INF, 1.0, False)),
        ([INF, 1.0], [-INF, 1.0], Difference(INF, INF, 1.0, False)),
        ([INF, 1.0], [NAN, 1.0], Difference(INF, INF, 1.0, False)),
        ([-INF, 1.0], [-3e38, 1.0], Difference(INF, INF, 3e38, False)),
        ([1.0], [1.0, 1.0], Difference(INF, INF, 1.0, False)),
        ([], [], Difference(0.0, 0.0, 0.0, True)),
    ],
)
def test_measure(yours, reference, expected):
    found = measure(*(torch.tensor(each, dtype=torch.float64) for each in (yours, reference)), rtol=2e-5)
    assert (found.ok, found.scale) == (expected.ok, expected.scale)
    assert (found.max_abs_diff, found.relative) == pytest.approx((expected.max_abs_diff, expected.relative), rel=1e-6)


def test_masked_scores_are_compared_where_they_are_visible():
    lowest = torch.finfo(torch.float32).min
    for mask in (-INF, lowest):
        reference = torch.tensor([[1.0, mask], [2.0, 3.0]])
        assert visible_scores(reference).tolist() == [[True, False], [True, True]]
        for fill in (-INF, -1e9, lowest):
            yours = torch.tensor([[1.0, fill], [2.0, 3.0]])
            assert measure(yours, reference, 1e-5, visible_scores(reference)) == Difference(0.0, 0.0, 3.0, True)


def test_tolerances_follow_the_precision():
    assert tolerance_of(torch.float64) == Tolerance(4e-14, 1e-13)
    assert tolerance_of(torch.float32) == tolerance_of(torch.int64) == Tolerance(2e-5, 5e-5)
    assert tolerance_of(torch.float32).range == (2e-5, 5e-5)


def test_a_narrow_dtype_tolerates_eight_times_what_the_reference_loses():
    tolerance = measured_tolerance(torch.bfloat16, {"hook_q": 3 / 128, "hook_k": 0.0, "blocks.0": 2 / 128})
    assert [tolerance.of(name) for name in ("hook_q", "hook_k", "hook_v")] == [24 / 128, 8 / 128, 8 / 128]
    assert [tolerance.of_module("blocks.0", alone) for alone in (True, False)] == [16 / 128, 16 / 128]
    assert tolerance.range == (8 / 128, 24 / 128)
    assert measured_tolerance(torch.float16, {"hook_q": 0.0}).of("hook_q") == 8 / 1024
