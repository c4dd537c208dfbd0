"""What changed between two traces."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from shapetrace import save
from shapetrace.cli import main
from shapetrace.comparison import Change, Comparison, Dimension, compare, fold_changes
from shapetrace.pairing import pair_up
from shapetrace.trace import ModelRecord, ModuleCall, ParameterRecord, TensorRecord, TensorStats, Trace


def tensor(name, *shape, **fields):
    return TensorRecord(name, fields.pop("role", "local"), shape or (2, 3), fields.pop("dtype", "float32"), **fields)


def trace_of(*steps, parameters=(), **fields):
    return Trace(
        ModelRecord("toy", "Toy", 0, 0), (ModuleCall("", "Toy", parameters=tuple(parameters), steps=steps, **fields),)
    )


def block(layer, *steps, name="Block"):
    return ModuleCall(f"blocks.{layer}", name, steps=steps)


ABC = (tensor("a"), tensor("b"), tensor("c"))


def changes(old, new, **options):
    return [
        (each.kind, each.what, each.module, each.name, each.old, each.new)
        for each in compare(old, new, **options).changes
    ]


@pytest.mark.parametrize(
    ("old", "new", "pairs"),
    [
        ("abc", "abc", ["same aa", "same bb", "same cc"]),
        ("abc", "ac", ["same aa", "removed b-", "same cc"]),
        ("ac", "abc", ["same aa", "added -b", "same cc"]),
        ("abc", "axc", ["same aa", "renamed bx", "same cc"]),
        ("abc", "aBXc", ["same aa", "renamed bB", "added -X", "same cc"]),
        ("abcd", "acbd", ["same aa", "moved cc", "same bb", "same dd"]),
        ("aab", "ab", ["removed a-", "same aa", "same bb"]),
        ("pqmn", "xmnp", ["renamed qx", "same mm", "same nn", "moved pp"]),
        ("", "a", ["added -a"]),
        ("", "", []),
    ],
)
def test_pair_up(old, new, pairs):
    found = pair_up(old, new, lambda letter: letter, lambda letter: True)
    written = [f"{pair.kind} {pair.old or '-'}{pair.new or '-'}" for pair in found]
    assert written == pairs


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ((*ABC, tensor("d")), [("added", "tensor", "", "d", "", "(2, 3) float32")]),
        (ABC[:2], [("removed", "tensor", "", "c", "(2, 3) float32", "")]),
        ((ABC[0], tensor("x"), ABC[2]), [("renamed", "tensor", "", "x", "b", "x")]),
        ((ABC[0], tensor("b", 2, 4), ABC[2]), [("reshaped", "tensor", "", "b", "(2, 3)", "(2, 4)")]),
        ((ABC[0], tensor("b", dtype="int64"), ABC[2]), [("retyped", "tensor", "", "b", "float32", "int64")]),
        ((ABC[0], tensor("b", comment="new"), ABC[2]), [("recommented", "tensor", "", "b", "", "new")]),
        ((ABC[0], tensor("b", axes=("B", "T")), ABC[2]), [("axes", "tensor", "", "b", "", "B T")]),
        ((ABC[0], tensor("b", in_place=True), ABC[2]), [("in place", "tensor", "", "b", "False", "True")]),
        ((ABC[0], tensor("b", role="output"), ABC[2]), [("role", "tensor", "", "b", "local", "output")]),
        (ABC, []),
    ],
)
def test_one_tensor(new, told):
    assert changes(trace_of(*ABC), trace_of(*new)) == told


def test_a_reordered_pair():
    (change,) = compare(trace_of(*ABC), trace_of(ABC[0], ABC[2], ABC[1])).changes
    assert (change.kind, change.name, change.old, change.new) == ("moved", "c", "after b", "after a")


def test_comments_can_be_left_out():
    assert changes(trace_of(tensor("a")), trace_of(tensor("a", comment="new")), comments=False) == []


def test_parameters_and_buffers():
    old = trace_of(
        parameters=[ParameterRecord("W", (2, 3)), ParameterRecord("b", (3,))], buffers=(tensor("m", 1, role="buffer"),)
    )
    new = trace_of(parameters=[ParameterRecord("b", (3,), trainable=False), ParameterRecord("V", (2, 3))])
    assert changes(old, new) == [
        ("removed", "parameter", "", "W", "(2, 3) float32", ""),
        ("trainable", "parameter", "", "b", "True", "False"),
        ("added", "parameter", "", "V", "", "(2, 3) float32"),
        ("removed", "buffer", "", "m", "(1,) float32", ""),
    ]


def test_modules():
    old = trace_of(block(0, *ABC), block(1, *ABC))
    assert changes(old, trace_of(block(0, *ABC))) == [("removed", "module", "blocks.1", "", "Block", "")]
    assert changes(trace_of(block(0, *ABC)), old) == [("added", "module", "blocks.1", "", "", "Block")]
    assert changes(old, trace_of(block(0, *ABC), block(1, *ABC, name="Layer"))) == [
        ("class", "module", "blocks.1", "", "Block", "Layer"),
    ]
    renamed = trace_of(block(0, *ABC), replace(block(1, *ABC), module="layers.1"))
    assert changes(old, renamed) == [("renamed", "module", "layers.1", "", "blocks.1", "layers.1")]


def test_equal_layers_are_folded():
    old = trace_of(*(block(layer, tensor("q", 1, 12, 7)) for layer in range(12)))
    new = trace_of(*(block(layer, tensor("q", 1, 6, 7)) for layer in range(2)), *old.calls[0].steps[2:])
    (folded,) = fold_changes(compare(old, new).changes)
    first, last, times = folded
    assert (first.module, last.module, times, first.old, first.new) == (
        "blocks.0",
        "blocks.1",
        2,
        "(1, 12, 7)",
        "(1, 6, 7)",
    )


def test_layers_that_are_not_neighbours_are_not_folded():
    old = trace_of(*(block(layer, tensor("q", 1, 12, 7)) for layer in range(4)))
    changed = [block(layer, tensor("q", 1, 12 if layer == 1 else 6, 7)) for layer in range(4)]
    folded = fold_changes(compare(old, trace_of(*changed)).changes)
    assert [(first.module, last.module, times) for first, last, times in folded] == [
        ("blocks.0", "blocks.0", 1),
        ("blocks.2", "blocks.3", 2),
    ]


def test_a_size_that_changed_everywhere_is_told_once():
    def run(posn, width=4):
        named = {"axes": ("batch", "posn", "d")}
        return trace_of(*(tensor(name, 1, posn, 4, **named) for name in "abcd"), tensor("e", 1, posn, width, **named))

    assert compare(run(7), run(8)) == Comparison((Dimension(7, 8, ("posn",), 5),))
    assert compare(run(7), run(8, width=5)) == Comparison(
        (Dimension(7, 8, ("posn",), 5),),
        (
            Change(
                "reshaped", "tensor", "", "e", "(1, 7, 4)", "(1, 8, 5)", (1, 7, 4), (1, 8, 5), ("batch", "posn", "d")
            ),
        ),
    )


def test_a_size_that_changed_in_some_tensors_only_is_told_by_name():
    old = trace_of(*(block(layer, tensor("q", 1, 64), tensor("k", 1, 64), tensor("v", 1, 64)) for layer in range(2)))
    new = trace_of(old.calls[0].steps[0], block(1, tensor("q", 1, 32), tensor("k", 1, 32), tensor("v", 1, 32)))
    assert [(each.module, each.name) for each in compare(old, new).changes] == [("blocks.1", name) for name in "qkv"]
    turned = [trace_of(*(tensor(name, *shape) for name in "abc")) for shape in ((7, 12), (12, 7))]
    assert [each.name for each in compare(*turned).changes] == ["a", "b", "c"]


def test_an_error_and_a_note_are_told():
    old = trace_of(tensor("a"))
    assert changes(old, replace(old, error="RuntimeError: no")) == [("error", "module", "", "", "", "RuntimeError: no")]
    noted = replace(old, calls=(replace(old.calls[0], note="scripted"),))
    assert changes(old, noted) == [("note", "module", "", "", "", "scripted")]


@pytest.mark.parametrize(
    ("stats", "told"),
    [
        (TensorStats(-2.0, 1.0, 0.5, 1.0, samples=(1.0, 0.5)), []),
        (TensorStats(-2.0, 1.00001, 0.5, 1.0, samples=(1.0, 0.5)), []),  # within 1e-4 of the scale, which is 2
        (TensorStats(-2.0, 1.0, 0.6, 1.0, samples=(1.0, 0.7)), [("mean 0.5, sample 1 0.5", "mean 0.6, sample 1 0.7")]),
        (TensorStats(-2.0, 1.0, 0.5, 1.0, nan=1, samples=(1.0, 0.5)), [("nan 0", "nan 1")]),
        (TensorStats(-2.0, 1.0, 0.5, 1.0, samples=(1.0, None)), [("sample 1 0.5", "sample 1 -")]),
        (None, [("figures", "no figures")]),
    ],
)
def test_values(stats, told):
    old = trace_of(tensor("a", stats=TensorStats(-2.0, 1.0, 0.5, 1.0, samples=(1.0, 0.5))))
    new = trace_of(tensor("a", stats=stats))
    assert [(each.old, each.new) for each in compare(old, new, rtol=1e-4).changes] == told
    assert compare(old, new).same


def run(*arguments, code):
    result = CliRunner().invoke(main, ["compare", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def test_the_command(tmp_path):
    layers = [block(layer, tensor("x", 1, 7, 64), tensor("scores", 1, 12, 7, 7)) for layer in range(3)]
    wider = [block(layer, tensor("x", 1, 7, 64), tensor("scores", 1, 12, 8, 8)) for layer in range(2)]
    save(trace_of(*layers, tensor("logits", 7)), tmp_path / "old.yaml")
    save(trace_of(*wider, layers[2], tensor("scores", 7, dtype="int64")), tmp_path / "new.yaml")
    assert run(tmp_path / "old.yaml", tmp_path / "old.yaml", code=0).stdout == "the same\n"
    assert run(tmp_path / "old.yaml", tmp_path / "new.yaml", code=1).stdout == (
        "different: 2 reshaped, 1 added, 1 removed\n"
        "reshaped  blocks.0 ... blocks.1  x2: scores  (1, 12, [7], [7]) -> (1, 12, [8],\n"
        "                                             [8])\n"
        "added     the model: scores                  (7,) int64\n"
        "removed   the model: logits                  (7,) float32\n"
    )
    plain = json.loads(run(tmp_path / "old.yaml", tmp_path / "new.yaml", "--json", code=1).stdout)
    assert (plain["same"], plain["changes"][0]["kind"], plain["changes"][0]["old_shape"]) == (
        False,
        "reshaped",
        [1, 12, 7, 7],
    )
    assert run(tmp_path / "old.yaml", tmp_path / "old.yaml", "--rtol", "nan", code=2).stdout == ""
    assert run(tmp_path / "old.yaml", tmp_path / "none.yaml", code=2).stderr.startswith("error: cannot read `")
