"""Traces as files: one tensor a line, read back equal, and every wrong file refused by name."""

import gc
import os

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shapetrace import store
from shapetrace.errors import ShapetraceError, TraceFileError
from shapetrace.trace import (
    Failure,
    InputRecord,
    ModelRecord,
    ModuleCall,
    Operand,
    ParameterRecord,
    TensorRecord,
    TensorStats,
    Trace,
)

SMALL = Trace(
    ModelRecord("toy", "Toy", 6, 3, "random (seed 0)"),
    (
        ModuleCall(
            "",
            "Toy",
            steps=(
                TensorRecord("tokens", "input", (1, 7), "int64", comment="token ids"),
                ModuleCall(
                    "embed",
                    "Embed",
                    parameters=(ParameterRecord("W_E", (50, 4), trainable=False, axes=("d_vocab", "d_model")),),
                    buffers=(TensorRecord("IGNORE", "buffer", (), "float32"),),
                    steps=(
                        TensorRecord(
                            "out",
                            "local",
                            (1, 7, 4),
                            "float32",
                            in_place=True,
                            stats=TensorStats(-1.0, 2.5, None, 2.0),
                        ),
                    ),
                ),
            ),
        ),
    ),
    input=InputRecord("a 'b'", (50256, 1), ("<|endoftext|>", " b")),
)
SMALL_YAML = """\
format: shapetrace/1
model: {name: toy, class: Toy, parameters: 6, trainable: 3, weights: random (seed 0)}
input: {text: a 'b', ids: [50256, 1], tokens: [<|endoftext|>, ' b']}
tensors: 4
call:
  module: ''
  class: Toy
  steps:
  - {name: tokens, role: input, shape: [1, 7], dtype: int64, comment: token ids}
  - module: embed
    class: Embed
    parameters:
    - {name: W_E, shape: [50, 4], trainable: false, axes: [d_vocab, d_model]}
    buffers:
    - {name: IGNORE, role: buffer, shape: [], dtype: float32}
    steps:
    - {name: out, role: local, shape: [1, 7, 4], dtype: float32, in_place: true, stats: {min: -1.0, max: 2.5, mean: null, rms: 2.0}}
"""  # noqa: E501 - one tensor a line


def test_one_tensor_a_line():
    assert store.dump(SMALL) == SMALL_YAML


def test_read_back_equal():
    assert store.parse(SMALL_YAML) == SMALL


def test_several_calls_stand_under_calls():
    twice = Trace(SMALL.model, SMALL.calls * 2)
    assert "\ncalls:\n- module: ''" in store.dump(twice)
    assert store.parse(store.dump(twice)) == twice


# Any text YAML can hold; surrogates and a few control characters are no text for it.
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
sizes = st.integers(-1, 2**63 - 1)
shapes = st.lists(sizes, max_size=4).map(tuple)
numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
figures = st.builds(TensorStats, numbers, numbers, numbers, numbers, sizes, sizes)
names = st.lists(texts, max_size=3).map(tuple)
tensors = st.builds(
    TensorRecord, texts, texts, shapes, texts, texts, st.booleans(), names, texts, st.none() | figures, source=texts
)
parameters = st.builds(ParameterRecord, texts, st.none() | shapes, texts, texts, st.booleans(), texts, names, texts)


def calls_of(steps):
    return st.builds(
        ModuleCall,
        texts,
        texts,
        texts,
        st.lists(parameters, max_size=2).map(tuple),
        st.lists(tensors, max_size=2).map(tuple),
        steps,
    )


modules = st.recursive(
    calls_of(st.lists(tensors, max_size=2).map(tuple)),
    lambda inner: calls_of(st.lists(tensors | inner, max_size=3).map(tuple)),
    max_leaves=4,
)
traces = st.builds(
    Trace,
    st.builds(ModelRecord, texts, texts, sizes, sizes, texts),
    st.lists(modules, max_size=3).map(tuple),
    st.lists(modules, max_size=2).map(tuple),
    st.none()
    | st.lists(st.tuples(sizes, texts)).map(
        lambda rows: InputRecord("", *(tuple(zip(*rows, strict=True)) or ((), ())))
    ),
    st.just(()),
    st.none()
    | st.builds(
        Failure,
        *[texts] * 5,
        st.lists(st.builds(Operand, texts, st.none() | shapes, texts, texts, names, texts), max_size=2).map(tuple),
        texts,
    ),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(traces)
def test_any_trace_is_read_back_equal(trace):
    assert store.parse(store.dump(trace)) == trace


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(tensors)
def test_a_tensor_is_one_line(tensor):
    text = store.dump(Trace(ModelRecord("", "", 0, 0), (ModuleCall("", "", steps=(tensor,)),)))
    assert [line for line in text.split("\n") if "role" in line] == [text.split("\n")[-2]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a trace: it has no `format` line"),
        ("a: 1", "not a trace: it has no `format` line"),
        ("- a", "not a trace: it has no `format` line"),
        ("format: shapetrace/2", "its format is 'shapetrace/2'; this version reads 'shapetrace/1'"),
        ("format: shapetrace/1", "the file has no `model`"),
        (SMALL_YAML.replace("shape: [1, 7]", "shape: [1, x]"), "call.steps[0].shape[1] is 'x', not a whole number"),
        (SMALL_YAML.replace("shape: [1, 7]", "shape: 7"), "call.steps[0].shape is 7, not a list"),
        (SMALL_YAML.replace("shape: [1, 7]", "shap: [1, 7]"), "call.steps[0].shap is no field of a trace"),
        (SMALL_YAML.replace("dtype: int64, ", ""), "call.steps[0] has no `dtype`"),
        (SMALL_YAML.replace("parameters: 6", "parameters: true"), "model.parameters is True, not a whole number"),
        (SMALL_YAML.replace("module: embed", "module: 3"), "call.steps[1].module is 3, not text"),
        (SMALL_YAML[:-60], "not readable as YAML: "),
        ("<<<<<<< HEAD\n" + SMALL_YAML, "not readable as YAML: "),
        (SMALL_YAML.replace("  module", "\tmodule", 1), "not readable as YAML: "),
        ("format: !!python/object/apply:os.system [echo]", "line 1 has a tag (`!`), and no trace has"),
        (SMALL_YAML.replace("shape: [1, 7]", "shape: &a [1, 7]"), "line 9 has an alias (`&` or `*`), and no trace has"),
        (SMALL_YAML + "call: {module: '', class: X}\n", "not readable as YAML: `call` comes twice in line 18"),
        (SMALL_YAML[: SMALL_YAML.index("    steps:\n    - {name: out")], "it says that it has 4 tensors, and has 3"),
        (SMALL_YAML.replace("shape: [1, 7]", "shape: [-2, 7]"), "call.steps[0].shape[0] is out of range"),
        (SMALL_YAML.replace("shape: [1, 7]", f"shape: [{10**400}]"), "call.steps[0].shape[0] is out of range"),
        (SMALL_YAML.replace("ids: [50256, 1]", "ids: [1]"), "its ids, tokens and predictions are not equally many"),
        ("format: shapetrace/1\nmodel: " + "[" * 2000, "not readable as YAML: "),
    ],
)
def test_a_wrong_file_is_refused_by_name(text, message):
    with pytest.raises(TraceFileError) as refused:
        store.parse(text)
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(
    "value", ["&a x", "*a", "!a x", "! x", "[1,*a]", "{a: &b 1}", "{'a':*b}", "[&a]", "- &a 1", "? !a x"]
)
def test_what_no_trace_has_is_found_wherever_it_stands(value):
    with pytest.raises(TraceFileError, match="and no trace has"):
        store.parse(f"format: shapetrace/1\nmodel:\n  {value}\n")


@pytest.mark.parametrize(
    "comment", ["a * b", "x != y", "&c", "*c", "!c", "a*b", "(a) *b", "<<", "yes", "1_000", "2001-01-01"]
)
def test_a_comment_that_looks_like_something_else_is_kept(comment):
    call = ModuleCall("", "Net", steps=(TensorRecord("x", "local", (2,), "float32", comment=comment),))
    trace = Trace(SMALL.model, (call,))
    assert store.parse(store.dump(trace)) == trace


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(TraceFileError, match=r"cannot read `.*none.yaml`: No such file or directory"):
        store.load(tmp_path / "none.yaml")


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceFileError, match="is not a text file"):
        store.load(tmp_path / "a.yaml")


def test_nothing_is_left_half_written(tmp_path, monkeypatch):
    path = tmp_path / "a.yaml"
    path.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ShapetraceError, match=r"cannot write `.*`: No space left on device"):
        store.save(SMALL, path)
    assert [each.name for each in tmp_path.iterdir()] == ["a.yaml"]
    assert path.read_text() == "old"


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ShapetraceError, match=r"cannot write `.*`: No such file or directory"):
        store.save(SMALL, tmp_path / "none" / "a.yaml")


def test_the_file_is_plain_yaml(tmp_path):
    store.save(SMALL, tmp_path / "a.yaml")
    assert yaml.safe_load((tmp_path / "a.yaml").read_text())["call"]["class"] == "Toy"
    assert store.load(tmp_path / "a.yaml") == SMALL


def test_any_message_of_an_exception_can_be_kept(tmp_path):
    message = "\x1b[31mred\x00 \ud800\r\n\u2028 é"
    trace = Trace(ModelRecord("m", "M", 0, 0), error=Failure("Odd", message))
    store.save(trace, tmp_path / "t.yaml")
    assert store.load(tmp_path / "t.yaml").error.message == message.replace("\ud800", "\\ud800")
    store.write_text(tmp_path / "t.html", message)
    assert (tmp_path / "t.html").read_bytes().decode() == message.replace("\ud800", "\\ud800")


@pytest.mark.parametrize("was_on", [True, False])
def test_the_garbage_collector_is_left_as_it_was(was_on):
    (gc.enable if was_on else gc.disable)()
    try:
        store.parse(SMALL_YAML)
        with pytest.raises(TraceFileError):
            store.parse("[")
        after = gc.isenabled()
    finally:
        gc.enable()
    assert after is was_on
