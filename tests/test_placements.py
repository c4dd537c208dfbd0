"""A DTensor in a trace: the whole's shape, the local shape and the placement, kept, shown and compared."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from shapetrace import store
from shapetrace.comparison import compare
from shapetrace.render.page import render_trace_page
from shapetrace.render.summary import render_trace
from shapetrace.render.theme import THEME
from shapetrace.selection import select_modules
from shapetrace.trace import ModelRecord, ModuleCall, ParameterRecord, TensorRecord, Trace, write_placements

Q = TensorRecord(
    "q",
    "local",
    (1, 7, 4, 5),
    "float32",
    axes=("batch", "posn", "n_heads", "d_head"),
    comment="(batch, posn, n_heads, d_head), the questions",
    placements=("Shard(2)",),
    local_shape=(1, 7, 2, 5),
)
OUT = TensorRecord("out", "output", (1, 7, 12), "float32", placements=("Partial(sum)",), local_shape=(1, 7, 12))
MASK = TensorRecord("mask", "local", (7, 7), "bool", comment="hidden")
W_Q = ParameterRecord("W_Q", (4, 12, 5), comment="by head", placements=("Shard(0)",), local_shape=(2, 12, 5))
SCALE = TensorRecord("scale", "buffer", (), "float32", placements=("Replicate",), local_shape=())
TRACE = Trace(
    ModelRecord("toy", "Toy", 240, 240, "random (seed 0)", "tensor=2, rank 0"),
    (ModuleCall("", "Toy", steps=(ModuleCall("attn", "Attention", "", (W_Q,), (SCALE,), (Q, MASK, OUT)),)),),
)


def test_in_the_file_one_line_a_tensor():
    assert store.dump(TRACE) == (
        """\
format: shapetrace/1
model: {name: toy, class: Toy, parameters: 240, trainable: 240, weights: random (seed 0), mesh: 'tensor=2, rank 0'}
tensors: 5
call:
  module: ''
  class: Toy
  steps:
  - module: attn
    class: Attention
    parameters:
    - {name: W_Q, shape: [4, 12, 5], comment: by head, placements: [Shard(0)], local_shape: [2, 12, 5]}
    buffers:
    - {name: scale, role: buffer, shape: [], dtype: float32, placements: [Replicate], local_shape: []}
    steps:
    - {name: q, role: local, shape: [1, 7, 4, 5], dtype: float32, axes: [batch, posn, n_heads, d_head], """
        """comment: '(batch, posn, n_heads, d_head), the questions', placements: [Shard(2)], local_shape: [1, 7, 2, 5]}
    - {name: mask, role: local, shape: [7, 7], dtype: bool, comment: hidden}
    - {name: out, role: output, shape: [1, 7, 12], dtype: float32, placements: [Partial(sum)], local_shape: [1, 7, 12]}
"""
    )
    assert store.parse(store.dump(TRACE)) == TRACE


@pytest.mark.parametrize(
    ("placements", "local_shape", "written"),
    [
        ((), None, ""),
        (("Replicate",), (4, 6), "Replicate"),
        (("Shard(0)",), (2, 6), "Shard(0) (2, 6)"),
        (("Shard(0)", "Shard(1)"), (2, 3), "Shard(0), Shard(1) (2, 3)"),
    ],
)
def test_the_local_shape_is_told_where_it_is_a_part(placements, local_shape, written):
    assert write_placements(ParameterRecord("w", (4, 6), placements=placements, local_shape=local_shape)) == written


def text_of(renderable):
    console = Console(width=80, color_system=None, file=io.StringIO(), theme=THEME, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def test_on_screen():
    shown = """\
toy  weights: random (seed 0)  mesh: tensor=2, rank 0

Toy  240 parameters
└─ attn  Attention  240
   ├─    param W_Q (4, 12, 5)    Shard(0) (2, 12, 5)  by head
   ├─ buffer scale ()            Replicate
   ├─            q (1, 7, 4, 5)  Shard(2) (1, 7, 2, 5)
   │                             (batch, posn, n_heads, d_head), the questions
   ├─         mask (7, 7) bool   hidden
   └─          out (1, 7, 12)    Partial(sum)

2 module calls, 3 tensors, 240 parameters (960 B)"""
    assert text_of(render_trace(TRACE)) == shown


def test_parameters_of_one_module():
    shown = text_of(render_trace(select_modules(TRACE, "attn")))
    assert "W_Q  (4, 12, 5)  240  Shard(0) (2, 12, 5)  by head\n" in shown


def test_in_the_page():
    page = render_trace_page(TRACE)
    assert "mesh: tensor=2, rank 0" in page
    assert "<span class=flag>Shard(2) (1, 7, 2, 5)</span>" in page
    assert "<span class=flag>Shard(0) (2, 12, 5)</span>" in page


def changed(**tensor):
    (call,) = TRACE.calls
    (attn,) = call.steps
    steps = (replace(Q, **tensor), *attn.steps[1:])
    return replace(TRACE, calls=(replace(call, steps=(replace(attn, steps=steps),)),))


@pytest.mark.parametrize(
    ("fields", "kind", "old", "new"),
    [
        ({"placements": ("Replicate",), "local_shape": (1, 7, 4, 5)}, "placed", "Shard(2)", "Replicate"),
        ({"placements": (), "local_shape": None}, "placed", "Shard(2)", ""),
        ({"local_shape": (1, 7, 1, 5)}, "local shape", "(1, 7, 2, 5)", "(1, 7, 1, 5)"),
        ({"shape": (1, 8, 4, 5), "local_shape": (1, 8, 2, 5)}, "reshaped", "(1, 7, 4, 5)", "(1, 8, 4, 5)"),
    ],
)
def test_compared(fields, kind, old, new):
    told = [
        (each.kind, each.module, each.name, each.old, each.new) for each in compare(TRACE, changed(**fields)).changes
    ]
    assert told == [(kind, "attn", "q", old, new)]
