"""Equal neighbours told once."""

import pytest

from shapetrace.folding import fold, fold_names, likeness_of
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
