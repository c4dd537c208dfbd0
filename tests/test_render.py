"""What a person sees, compared exactly: at 80 columns, without colour, and where there is ASCII only."""

import io

import torch
from rich.console import Console
from rich.padding import Padding
from torch import nn

from shapetrace import record, recording
from shapetrace.recorder.parameters import describe_modules
from shapetrace.render.failure import render_failure, render_operands
from shapetrace.render.parameters import render_parameters
from shapetrace.render.summary import render_trace
from shapetrace.render.theme import THEME, write_bytes
from shapetrace.render.tree import View
from shapetrace.selection import select_modules
from shapetrace.trace import (
    Failure,
    InputRecord,
    ModelRecord,
    ModuleCall,
    Operand,
    TensorRecord,
    Trace,
    write_shape,
)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.W = nn.Parameter(torch.ones(4, 4))  # (d_in, d_out), one column for each output and a long story about it
        self.b = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):  # (batch, d_in)
        scores = x @ self.W
        scores += self.b  # shifted
        return scores * self.scale


class Toy(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(4, 2)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def text_of(renderable, width=80, encoding="utf-8"):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(width=width, color_system=None, file=file, theme=THEME, highlight=False, markup=False)
    console.print(renderable)
    file.flush()
    written = file.buffer.getvalue().decode(encoding)
    assert all(len(line) <= width for line in written.splitlines())
    return "\n".join(line.rstrip() for line in written.splitlines())


def test_a_tree_with_equal_blocks_folded():
    assert (
        text_of(render_trace(record(Toy(), torch.ones(2, 4))))
        == """\
Toy

Toy  76 parameters
├─ in x (2, 4)
├─ blocks.0 ... blocks.2  Block  x3  20 each
│  ├─      param W (4, 4)  (d_in, d_out), one column for each output and a long
│  │                       story about it
│  ├─      param b (4,)    frozen
│  ├─ buffer scale ()
│  ├─         in x (2, 4)  (batch, d_in)
│  ├─       scores (2, 4)
│  ├─       scores (2, 4)  in place  shifted
│  └─          out (2, 4)
├─    x (2, 4)  x3
├─ head  Linear  10
│  ├─ param weight (2, 4)
│  ├─   param bias (2,)
│  ├─     in input (2, 4)
│  └─          out (2, 2)
└─  out (2, 2)

not called, though what uses their parameters may have run
└─ unused  Linear  6
   ├─ param weight (2, 2)
   └─   param bias (2,)

5 module calls, 19 tensors, 76 parameters (304 B, 12 of them frozen)"""
    )


def test_a_narrow_terminal_puts_the_comment_below():
    assert (
        text_of(render_trace(record(Block(), torch.ones(2, 4)), View()), width=40)
        == """\
Block

Block  20 parameters
├─      param W (4, 4)
│      (d_in, d_out), one column for
│      each output and a long story
│      about it
├─      param b (4,)    frozen
├─ buffer scale ()
├─         in x (2, 4)  (batch, d_in)
├─       scores (2, 4)
├─       scores (2, 4)
│      in place  shifted
└─          out (2, 4)

1 module call, 4 tensors, 20 parameters
(80 B, 4 of them frozen)"""
    )


def test_ascii_only():
    model = nn.Sequential(nn.Linear(4, 2, bias=False))
    assert (
        text_of(render_trace(record(model, torch.ones(2, 4))), encoding="ascii")
        == """\
Sequential

Sequential  8 parameters
+- in input (2, 4)
+- 0  Linear  8
|  +- param weight (2, 4)
|  +-     in input (2, 4)
|  `-          out (2, 2)
`-      out (2, 2)

2 module calls, 4 tensors, 8 parameters (32 B)"""
    )


def test_depth_and_expand():
    trace = record(Toy(2), torch.ones(2, 4))
    assert text_of(render_trace(trace, View(depth=1, expand=True))).splitlines()[2:9] == [
        "Toy  56 parameters",
        "├─ in x (2, 4)",
        "├─ blocks.0  Block  20",
        "├─    x (2, 4)",
        "├─ blocks.1  Block  20",
        "├─    x (2, 4)",
        "├─ head  Linear  10",
    ]
    assert text_of(render_trace(trace, View(depth=0))).splitlines()[2:4] == ["Toy  56 parameters", ""]


def test_one_module_has_its_parameters_in_a_table():
    assert (
        text_of(render_trace(select_modules(record(Toy(), torch.ones(2, 4)), "blocks.1")))
        == """\
Toy

parameters of blocks.1
W  (4, 4)  16  (d_in, d_out), one column for each output and a long story about
               it
b  (4,)     4  frozen
total: 20 parameters

blocks.1  Block  20 parameters
├─ buffer scale ()
├─         in x (2, 4)  (batch, d_in)
├─       scores (2, 4)
├─       scores (2, 4)  in place  shifted
└─          out (2, 4)

1 module call, 4 tensors, 20 parameters (80 B, 4 of them frozen)"""
    )


def test_stats_stand_below_the_comment():
    model = nn.Identity()
    with recording(model, stats=True) as trace:
        model(torch.tensor([1.0, 2.0, float("nan")]))
    assert text_of(render_trace(trace)).splitlines()[3] == "└─ in input (3,)  min 1  max 2  mean 1.5  rms 1.58  1 nan"


def text_trace(weights, predictions=()):
    given = InputRecord("a b", (50256, 64, 275), ("<|endoftext|>", "a", " b"))
    call = ModuleCall("", "Toy", steps=(TensorRecord("tokens", "input", (1, 3), "int64"),))
    return Trace(ModelRecord("toy", "Toy", 0, 0, weights), (call,), input=given, predictions=predictions)


def test_tokens_and_predictions():
    assert (
        text_of(render_trace(text_trace("model.safetensors", ("\n", " b", "c"))))
        == """\
toy  weights: model.safetensors

Toy
└─ in tokens (1, 3) int64

posn     id  token            most likely next
   0  50256  '<|endoftext|>'  '\\n'
   1     64  'a'              ' b'
   2    275  ' b'             'c'

1 module call, 1 tensor, 0 parameters (0 B)"""
    )


def test_random_weights_predict_nothing():
    assert "predictions mean nothing and are not\nshown." in text_of(render_trace(text_trace("random (seed 0)")))


def test_a_long_text_is_told_by_its_first_tokens():
    given = InputRecord("a" * 25, tuple(range(25)), ("a",) * 25)
    trace = Trace(ModelRecord("toy", "Toy", 0, 0), (), input=given)
    assert text_of(render_trace(trace)).splitlines()[-4:-1] == [
        "  19  19  'a'",
        "... and 5 more tokens, shown with --expand",
        "",
    ]
    assert "more token" not in text_of(render_trace(trace, View(expand=True)))


def test_breakdown():
    model = nn.ModuleDict(
        {"embed": nn.Embedding(10, 4), "blocks": nn.ModuleList(Block() for _ in range(2)), "head": nn.Linear(4, 10)}
    )
    model["head"].weight = model["embed"].weight
    modules = describe_modules(model)
    assert (
        text_of(render_parameters("toy", modules, [""], remark="A remark."))
        == """\
toy  ModuleDict

module         parameters    share              bytes
embed                  40   44.4 %  ━━━━        160 B
blocks                 40   44.4 %  ━━━━        160 B
  0 ... 1  x2          20   22.2 %  ━━           80 B
head                   10   11.1 %  ━            40 B
total                  90  100.0 %  ━━━━━━━━━━  360 B

frozen (8): blocks.0.b ... blocks.1.b  x2
tied, counted once: head.weight is embed.weight
buffers, not counted: blocks.0.scale ... blocks.1.scale  x2

A remark."""
    )


def test_numbers():
    assert [write_bytes(n) for n in (0, 999, 1000, 652_349_764, 6.5e9, 2e15)] == [
        *("0 B", "999 B", "1.0 kB", "652.3 MB", "6.5 GB", "2,000.0 TB"),
    ]
    assert [write_shape(shape) for shape in ((), (7,), (1, 7, 768), None)] == ["()", "(7,)", "(1, 7, 768)", "(?)"]


FAILURE = Failure(
    "RuntimeError",
    "no",
    "attn",
    "m.py:3",
    "y = a @ some_rather_long_name",
    (
        Operand("a", (1, 2), "float32", axes=("b", "n")),
        Operand("some_rather_long_name", (1, 12, 1024, 1024), "float16", axes=("batch", "heads", "query", "key")),
    ),
)


def test_operands_on_a_wide_screen_stand_in_columns():
    assert "      a                      (1, 2)               float32  b=1 n=2\n" in text_of(
        render_failure(FAILURE), 110
    )


def test_operands_whose_columns_just_fit():
    operands = (Operand("a", (1, 2, 3, 4), "float32"), Operand("a_name", (), "int64", axes=("b",)))
    assert text_of(render_operands(operands), 32) == "a       (1, 2, 3, 4)  float32\na_name  ()            int64"
    assert text_of(Padding(render_operands(operands), (0, 0, 0, 2), expand=False), 31) == (
        "  a       (1, 2, 3, 4)  float32\n  a_name  ()            int64"
    )


def test_operands_on_a_narrow_screen_stand_below_each_other():
    assert text_of(render_failure(FAILURE), 40).splitlines()[4:10] == [
        "      a  (1, 2)  float32  b=1 n=2",
        "      some_rather_long_name",
        "        (1, 12, 1024, 1024)  float16",
        "        batch=1 heads=12 query=1024",
        "        key=1024",
        "",
    ]


def test_a_long_message_is_cut_in_the_middle():
    told = Failure("ValueError", "\n".join(f"line {number}" for number in range(3000)))
    lines = text_of(render_failure(told)).splitlines()
    assert lines == [
        "ValueError: line 0",
        *(f"line {number}" for number in range(1, 12)),
        "... 2,982 more lines",
        *(f"line {number}" for number in range(2994, 3000)),
    ]
    nineteen = Failure("ValueError", "\n".join(map(str, range(19))))
    assert len(text_of(render_failure(nineteen)).splitlines()) == 19
    wide = text_of(render_failure(Failure("ValueError", "x" * 100_000)))
    assert wide.replace("\n", " ").endswith("xxx ... 99,012 more characters")
    assert len(wide) < 1100
