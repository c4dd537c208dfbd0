"""Equal neighbours told once."""

import pytest

from shapetrace.folding import fold, fold_loops, fold_names, form_of, likeness_of, span
from shapetrace.trace import ModuleCall, ParameterRecord, TensorRecord


@pytest.mark.parametrize(
    ("letters", "runs"),
    [
        ("", []),
        ("a", [("a", 1)]),
        ("aaa", [("a", 3)]),
        ("abcbcbcdd", [("a", 1), ("bc", 3), ("d", 2)]),
        ("abab", [("ab", 2)]),
        ("xabababy", [("x", 1), ("ab", 3), ("y", 1)]),
        ("aabaab", [("aab", 2)]),
        ("abcabd", [("a", 1), ("b", 1), ("c", 1), ("a", 1), ("b", 1), ("d", 1)]),
    ],
)
def test_fold(letters, runs):
    assert [("".join(run.items), run.times) for run in fold(letters, lambda letter: letter)] == runs


def test_what_is_folded_is_nothing_lost():
    letters = "abbbcabcabcxyxyx"
    assert "".join("".join(run.items) * run.times for run in fold(letters, lambda letter: letter)) == letters


def block(path, width=4, tied=""):
    inner = ModuleCall(f"{path}.lin", "Linear", parameters=(ParameterRecord("W", (width, 4), tied=tied),))
    return ModuleCall(path, "Block", steps=(TensorRecord("x", "input", (2, 4), "float32"), inner))


def test_layers_are_alike_but_for_their_number():
    assert likeness_of(block("blocks.0")) == likeness_of(block("blocks.11"))
    assert likeness_of(block("blocks.1", tied="blocks.0.lin.W")) == likeness_of(
        block("blocks.2", tied="blocks.1.lin.W")
    )


def test_layers_that_differ_are_not_alike():
    assert likeness_of(block("blocks.0")) != likeness_of(block("blocks.1", width=5))
    assert likeness_of(block("blocks.0")) != likeness_of(block("layers.0"))
    assert likeness_of(block("ln1")) != likeness_of(block("ln2"))


def test_fold_names():
    names = [f"blocks.{layer}.attn.{name}" for layer in range(12) for name in ("mask", "IGNORE")]
    assert fold_names(["embed.W_E", *names]) == [
        "embed.W_E",
        "blocks.0.attn.mask ... blocks.11.attn.mask  x12",
        "blocks.0.attn.IGNORE ... blocks.11.attn.IGNORE  x12",
    ]


def test_span():
    assert span("cache.0.key", "cache.11.key") == "cache.0..11.key"
    assert span("scores", "scores") == "scores"


def growing(passes):
    """A loop that makes its sequence longer, and a tensor after it."""
    longer = [TensorRecord("x", "local", (1, length), "float32") for length in range(1, passes + 1)]
    return [*longer, TensorRecord("y", "local", (1,), "float32")]


@pytest.mark.parametrize(("passes", "times"), [(3, [1, 1, 1, 1]), (16, [16, 1]), (40, [40, 1])])
def test_many_passes_that_differ_in_their_sizes_are_one_loop(passes, times):
    runs = fold_loops(growing(passes), likeness_of, form_of)
    assert [run.times for run in runs] == times
    assert runs[-2].last[0].shape == (1, passes)


def test_modules_of_different_sizes_are_no_loop():
    blocks = [block(f"blocks.{index}", width=index + 1) for index in range(20)]
    assert [run.times for run in fold_loops(blocks, likeness_of, form_of)] == [1] * 20


def test_a_loop_of_any_length_is_folded():
    body = list(range(300))
    assert [(len(run.items), run.times) for run in fold(body * 5, lambda number: number)] == [(300, 5)]
