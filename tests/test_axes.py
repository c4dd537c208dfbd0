"""The axis language: what a comment, a pattern or an annotation says, and whether it fits."""

import pytest

from shapetrace.axes import axes_in_annotation, axes_in_comment, axes_in_pattern, fit_axes


@pytest.mark.parametrize(
    ("comment", "readings"),
    [
        ("(batch, posn, d_model)", [("batch", "posn", "d_model")]),
        ("(batch, posn, d_model), one row each", [("batch", "posn", "d_model")]),
        ("[B, T]", [("B", "T")]),
        ("(T)", [("T",)]),
        ("(n_heads, d_head,)", [("n_heads", "d_head")]),
        ("(B, T, 3 * C)", [("B", "T", "3 * C")]),
        ("(B, T + past, C // n_head)", [("B", "T + past", "C // n_head")]),
        ("(batch, 1)", [("batch", "1")]),
        (
            "(B, nh, T, hs) x (B, nh, hs, T) -> (B, nh, T, T)",
            [("B", "nh", "T", "T"), ("B", "nh", "T", "hs"), ("B", "nh", "hs", "T")],
        ),
        ("scores (not yet scaled)", []),
        ("in place (see below), then (B, T)", [("B", "T")]),
        ("sqrt(d_head)", []),
        ("TODO(me): check", []),
        ("of shape (t)", [("t",)]),
        ("", []),
    ],
)
def test_axes_in_comment(comment, readings):
    assert axes_in_comment(comment) == readings


@pytest.mark.parametrize(
    ("pattern", "axes"),
    [
        ("b p d, n d h -> b p n h", ("b", "p", "n", "h")),
        ("b (h d) -> b h d", ("b", "h", "d")),
        ("b h d -> b (h d)", ("b", "(h d)")),
        ("d -> b d", ("b", "d")),
        ("token -> token", ("token",)),
        ("seq d_model -> batch seq d_model", ("batch", "seq", "d_model")),
        ("... d -> ... h", ()),
        ("b c -> b c 1", ()),
        ("no arrow", ()),
    ],
)
def test_axes_in_pattern(pattern, axes):
    assert axes_in_pattern(pattern) == axes


def test_axes_in_a_pattern_of_letters():
    assert axes_in_pattern("bqd,bkd->bqk", letters=True) == ("b", "q", "k")
    assert axes_in_pattern("b q d, b k d -> b q k", letters=True) == ("b", "q", "k")
    assert axes_in_pattern("...d->...d", letters=True) == ()


@pytest.mark.parametrize(
    ("annotation", "axes"),
    [
        ('Float[Tensor, "batch seq d_model"]', ("batch", "seq", "d_model")),
        ("Int[torch.Tensor, 'batch seq']", ("batch", "seq")),
        ('Float[Tensor, "#batch rows=4"]', ("batch", "rows")),
        ('Float[Tensor, "*batch d"]', ()),
        ("Tensor", ()),
        ("dict[str, int]", ()),
    ],
)
def test_axes_in_annotation(annotation, axes):
    assert axes_in_annotation(annotation) == axes


@pytest.mark.parametrize(
    ("readings", "shape", "axes"),
    [
        ([("B", "T")], (2, 7), ("B", "T")),
        ([("B", "T")], (2, 7, 3), ()),  # another rank
        ([("B", "T", "T")], (2, 7, 8), ()),  # one name, two sizes
        ([("B", "T", "T")], (2, 7, 7), ("B", "T", "T")),
        ([("B", "1")], (2, 1), ("B", "1")),
        ([("B", "1")], (2, 3), ()),  # a size that is not there
        ([("1", "7")], (1, 7), ()),  # sizes only: no names
        ([("B",), ("B", "T")], (2, 7), ("B", "T")),  # the first that fits
        ([], (2,), ()),
    ],
)
def test_fit_axes(readings, shape, axes):
    assert fit_axes(readings, shape) == axes
