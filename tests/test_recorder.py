"""What a run of a module is written down as."""

import importlib
import json
import os
import sys
import warnings
from dataclasses import dataclass

import einops
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapetrace import ShapetraceError, record, recording
from shapetrace.render.display import as_html
from shapetrace.render.page import render_trace_page
from shapetrace.schema import to_plain
from shapetrace.store import dump
from shapetrace.trace import ModuleCall, TensorRecord, split_source, tensors_of, walk_calls, walk_modules, write_source


def steps_of(call):
    """The steps of a call as (name, shape), a module inside as its path."""
    return [step.module if isinstance(step, ModuleCall) else (step.name, step.shape) for step in call.steps]


def names_of(model, *inputs, **named):
    return [tensor.name for tensor in tensors_of(record(model, *inputs, **named).calls[0])]


def module(forward):
    """A module with this forward and nothing else."""
    return type("Toy", (nn.Module,), {"forward": forward})()


ONES = torch.ones(2, 3)


def test_input_locals_and_unnamed_output_in_order():
    class Toy(nn.Module):
        def forward(self, x):
            doubled = x * 2
            total = doubled.sum(-1)
            return total + 1

    assert steps_of(record(Toy(), ONES).calls[0]) == [
        ("x", (2, 3)),
        ("doubled", (2, 3)),
        ("total", (2,)),
        ("out", (2,)),
    ]


def test_a_named_output_is_not_told_twice():
    def forward(self, x):
        y = x + 1
        return y

    assert names_of(module(forward), ONES) == ["x", "y"]


def test_every_way_to_bind_a_name():
    class Toy(nn.Module):
        def forward(self, x):
            q, k = x.chunk(2, dim=0)
            first, *rest = x.unbind(1)
            if (walrus := x.sum()) > 0:
                a = b = x + walrus
            a += 1
            c: Tensor = x - 1
            for row in x:
                d = row * 2
            with torch.enable_grad() as _, torch.no_grad():
                e = d.exp()
            self.cached = e + 1
            holder = {}
            holder["key"] = x * 5
            return a, b, c, d, q, k, first, rest, holder

    assert names_of(Toy(), ONES) == [
        "x",
        *("q", "k", "first", "rest.0", "rest.1", "walrus", "a", "b"),
        *("a", "c"),  # `a += 1` changes what b is another name of, too: told once
        *("row", "d", "row", "d", "e", "self.cached", "holder.key"),
    ]


def test_targets_in_the_order_in_which_they_are_written():
    def forward(self, x):
        k = q = None
        q, k = x + 1, x + 2
        return q * k

    assert names_of(module(forward), ONES) == ["x", "q", "k", "out"]


def test_rebinding_a_name_keeps_both_shapes():
    def forward(self, x):
        y = x.sum(0)
        y = y.sum()
        return y

    assert steps_of(record(module(forward), ONES).calls[0]) == [("x", (2, 3)), ("y", (3,)), ("y", ())]


def test_an_assignment_that_binds_the_same_tensor_is_told():
    def forward(self, x):
        x = F.dropout(x, 0.5, training=False)
        y = x
        return y

    assert names_of(module(forward), ONES) == ["x", "x", "y"]


def test_a_change_in_place():
    def forward(self, x):
        scores = x + 1
        scores.masked_fill_(scores > 1, 0.0)  # none left
        scores[0] = 7
        return scores

    found = [(each.name, each.in_place, each.comment) for each in tensors_of(record(module(forward), ONES).calls[0])]
    assert found == [("x", False, ""), ("scores", False, ""), ("scores", True, "none left"), ("scores", True, "")]


def test_an_output_changed_in_place_by_torch():
    trace = record(nn.Sequential(nn.ReLU(inplace=True)), ONES.clone())
    relu = trace.calls[0].steps[1]
    assert [(each.name, each.role, each.in_place) for each in tensors_of(relu)] == [
        ("input", "input", False),
        ("out", "output", True),
    ]


def in_place_of(model, *inputs):
    """(name, whether it was changed in place) of each tensor."""
    return [(each.name, each.in_place) for each in tensors_of(record(model, *inputs).calls[0])]


def test_under_inference_mode_changes_in_place_are_told_where_the_source_tells_them():
    def forward(self, x):
        y = x + 1
        y += 1
        y.mul_(2)
        return y

    with torch.inference_mode():
        assert in_place_of(module(forward), torch.ones(2)) == [("x", False), ("y", False), ("y", True), ("y", True)]


def test_changes_in_place_of_attributes_and_items():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(2, 3))

        def forward(self, x):
            self.total = x + 1
            self.total += x
            self.total.mul_(2)
            self.keys[:, :2] = x[:, :2]
            self.keys[:1].copy_(x[:1])
            self.keys[0].add_(1)
            parts = {"k": x + 2}
            parts["k"] += 1
            parts["k"].mul_(2)
            rows = [x * 3]
            rows[0].zero_()
            self.total = self.total
            return None

    assert in_place_of(Cache(), ONES) == [
        *(("x", False), ("self.total", False), ("self.total", True), ("self.total", True)),
        *(("self.keys", True), ("self.keys", True), ("self.keys", True)),
        *(("parts.k", False), ("parts.k", True), ("parts.k", True), ("rows.0", False), ("rows.0", True)),
        ("self.total", False),
    ]


def test_several_statements_on_one_line():
    def forward(self, x):
        b = x + 1; a = b + 1  # fmt: skip  # noqa: E702
        for i in range(2): y = x + i  # fmt: skip  # noqa: E701
        return None

    assert names_of(module(forward), ONES) == ["x", "b", "a", "y", "y"]


def test_a_variable_that_an_inner_function_binds_is_told_once():
    def forward(self, x):
        found = None

        def find():
            nonlocal found
            found = x + 1

        find()
        return None

    assert names_of(module(forward), ONES) == ["x", "found"]


def test_a_statement_that_raised_has_bound_nothing():
    def forward(self, x):
        y = x + 1
        try:
            y = x @ x
        except RuntimeError:
            z = y * 2
        return None

    assert names_of(module(forward), ONES) == ["x", "y", "z"]


def test_the_comment_of_a_helpers_return_is_not_the_forwards():
    def helper(h):
        return h * 2  # doubled

    def forward(self, x):
        y = helper(x)
        return y + 1

    assert [each.comment for each in tensors_of(record(module(forward), ONES).calls[0])] == ["", "", ""]


def test_a_comment_above_the_body_is_not_the_heads():
    def forward(self, x):
        for row in x:  # one row
            # what the body does
            y = row + 1  # head #1 of 2
        return None

    assert {each.name: each.comment for each in tensors_of(record(module(forward), ONES).calls[0])} == {
        "x": "",
        "row": "one row",
        "y": "head #1 of 2",
    }


def test_an_except_line_with_an_attribute_of_self():
    class Careful(nn.Module):
        Error = ValueError

        def __init__(self):
            super().__init__()
            if True:
                self.W = nn.Parameter(torch.ones(3))  # (d)

        def reset(self):
            self.W = nn.Parameter(torch.ones(3))  # after reset

        def forward(self, x):
            try:
                return x * self.W
            except self.Error:
                return x

        class Inner(nn.Module):
            def __init__(self):
                super().__init__()
                self.W = nn.Parameter(torch.ones(3))  # inner

            def forward(self, x):
                return x

    assert record(Careful(), ONES).calls[0].parameters[0].comment == "(d)"
    assert record(Careful.Inner(), ONES).calls[0].parameters[0].comment == "inner"


def test_a_line_for_two_arguments_tells_of_neither():
    def forward(self, x, *rest, mask=None):  # of which?
        return None

    assert [each.comment for each in tensors_of(record(module(forward), ONES, ONES, mask=ONES).calls[0])] == [
        "",
        "",
        "",
    ]


def test_an_edited_source_is_read_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = tmp_path / "edited_model.py"
    text = "from torch import nn\nclass Toy(nn.Module):\n    def forward(self, x):\n        y = x + 1  # first\n"
    file.write_text(text)
    edited = importlib.import_module("edited_model")
    comments = [tensors_of(record(edited.Toy(), ONES).calls[0])[1].comment]
    file.write_text(text.replace("class", "\n\nclass").replace("first", "second"))
    importlib.reload(edited)
    assert [*comments, tensors_of(record(edited.Toy(), ONES).calls[0])[1].comment] == ["first", "second"]


def test_compiled_modules_run_as_they_are_written():
    class Toy(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x):
            y = self.lin(x)
            return y + 1

    for compiled in (torch.compile(Toy(), backend="eager"), Toy()):
        compiled.compile(backend="eager")
        trace = record(compiled, ONES)
        assert [tensor.name for tensor in tensors_of(trace.calls[0])][-1] in ("y", "out")
        assert [call.module.removeprefix("_orig_mod").strip(".") for call in walk_calls(trace.calls[0])][-1] == "lin"


def test_helpers_of_user_code_are_watched_and_torch_is_not():
    def scale(scores):  # raw
        scaled = scores / 2
        return scaled

    class Toy(nn.Module):
        def forward(self, x):
            z = scale(x @ x.T)
            return self.again(z)

        def again(self, z):
            twice = z * 2
            return twice

    assert names_of(Toy(), ONES) == ["x", "scores", "scaled", "z", "twice"]


def test_module_calls_stand_where_they_happen():
    class Toy(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 4)
            self.b = nn.Linear(4, 2)

        def forward(self, x):
            hidden = self.a(x).relu()
            return self.b(input=hidden)

    trace = record(Toy(), ONES)
    assert steps_of(trace.calls[0]) == [("x", (2, 3)), "a", ("hidden", (2, 4)), "b", ("out", (2, 2))]
    assert [steps_of(call) for call in walk_calls(trace.calls[0])][1:] == [
        [("input", (2, 3)), ("out", (2, 4))],
        [("input", (2, 4)), ("out", (2, 2))],
    ]
    assert (trace.model.parameters, trace.model.class_name, trace.model.name) == (26, "Toy", "Toy")


def test_a_module_called_twice_has_two_calls():
    class Toy(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x):
            return self.lin(self.lin(x))

    trace = record(Toy(), ONES)
    assert steps_of(trace.calls[0]) == [("x", (2, 3)), "lin", "lin", ("out", (2, 3))]
    assert trace.model.parameters == 12


def test_a_shared_module_is_called_by_the_name_its_caller_has_for_it():
    act = nn.ReLU()
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 3), act), nn.Sequential(nn.Linear(3, 3), act))
    calls = [call.module for call in walk_calls(record(model, ONES).calls[0])]
    assert calls == ["", "0", "0.0", "0.1", "1", "1.0", "1.1"]


def test_a_child_that_refers_to_its_parent():
    class Toy(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.a.owner = self

        def forward(self, x):
            return self.a(x)

    trace = record(Toy(), ONES)
    assert steps_of(trace.calls[0]) == [("x", (2, 3)), "a", ("out", (2, 3))]
    assert trace.model.parameters == 12


def test_inputs_by_position_by_name_and_inside_containers():
    class Toy(nn.Module):
        def forward(self, first, *rest, scale=1, batch, **others):
            return first.sum()

    inputs = [
        (each.name, each.shape)
        for each in tensors_of(record(Toy(), ONES, ONES[0], batch={"ids": ONES, "n": 3}, more=[None, ONES]).calls[0])
    ]
    assert inputs == [("first", (2, 3)), ("rest.0", (3,)), ("batch.ids", (2, 3)), ("more.1", (2, 3)), ("out", ())]


@dataclass
class Output:
    logits: Tensor
    past: Tensor | None = None


@pytest.mark.parametrize(
    ("output", "names"),
    [
        (lambda x: (x + 1, None, x + 2), ["out.0", "out.1", "out.2"]),
        (lambda x: {"logits": x + 1, "aux": {"norm": x.norm(), "n": 3}}, ["out.logits", "out.aux.norm"]),
        (lambda x: Output(x + 1), ["out.logits"]),
        (lambda x: x.max(dim=1), ["out.values", "out.indices"]),
        (lambda x: torch.Size([1]), []),
        (lambda x: None, []),
        (lambda x: "text", []),
    ],
)
def test_every_tensor_of_an_output_by_its_path(output, names):
    def forward(self, x):
        return output(x)

    assert names_of(module(forward), ONES) == ["x", *names]


def test_a_generator_is_not_used_up():
    class Parts(nn.Module):
        def forward(self, x):
            return (row for row in x)

    class Toy(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = Parts()

        def forward(self, x):
            return sum(self.parts(x))

    assert steps_of(record(Toy(), ONES).calls[0]) == [("x", (2, 3)), "parts", ("out", (3,))]


def test_what_is_sent_into_a_generator_is_bound_when_that_goes_on():
    class Toy(nn.Module):
        def rows(self, x):
            first = x + 1  # a row
            got = yield first  # sent
            taken = yield from self.more(got)  # returned
            yield taken

        def more(self, x):
            sent = yield x * 2  # sent further
            return sent[:1]

        def forward(self, x):
            rows = self.rows(x)
            a = next(rows)
            b = rows.send(x[:, :2])
            c = rows.send(a)
            return b, c

    steps = record(Toy(), ONES).calls[0].steps
    assert [(each.name, each.shape, each.comment) for each in steps] == [
        ("x", (2, 3), ""),
        ("first", (2, 3), "a row"),
        ("a", (2, 3), ""),
        ("got", (2, 2), "sent"),
        ("b", (2, 2), ""),
        ("sent", (2, 3), "sent further"),
        ("taken", (1, 3), "returned"),
        ("c", (1, 3), ""),
    ]


def test_arguments_of_a_generator_are_told_when_it_begins():
    class Part(nn.Module):
        def forward(self, rows):
            next(rows)

    class Toy(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([Part(), Part()])

        def rows(self, value):  # (b, d)
            yield
            value = value.mean(1)  # smaller
            yield

        def forward(self, x):
            rows = self.rows(x + 1)
            for part in self.parts:
                part(rows)
            rows.close()

    found = [each for call in walk_modules(record(Toy(), ONES)) for each in tensors_of(call) if each.name == "value"]
    assert [(each.shape, each.comment) for each in found] == [((2, 3), "(b, d)"), ((2,), "smaller")]


def test_what_a_generator_binds_or_changes_by_what_is_sent():
    class Toy(nn.Module):
        def rows(self, x):
            total = x + 1
            for _ in range(2):
                total += yield total  # added
                row = yield total[:1]  # a row
            yield row

        def forward(self, x):
            rows = self.rows(x)
            for value in (None, x, x[0], x, x[1]):
                rows.send(value)
            return None

    steps = record(Toy(), ONES).calls[0].steps
    assert [(each.name, each.shape, each.comment, each.in_place) for each in steps if each.name != "value"] == [
        ("x", (2, 3), "", False),
        ("total", (2, 3), "", False),
        ("total", (2, 3), "added", True),
        ("row", (3,), "a row", False),
        ("total", (2, 3), "added", True),
        ("row", (3,), "a row", False),
    ]


def test_dtypes_shapes_and_devices_of_all_kinds():
    def forward(self, x):
        empty = x[:0]
        scalar = x.sum()
        integer = x.long()
        spectrum = torch.fft.rfft(x)
        half = x.bfloat16()
        meta = torch.empty(5, device="meta")
        ragged = torch.nested.nested_tensor([x, x[:, :2].T], layout=torch.strided)
        jagged = torch.nested.nested_tensor([x[:1], x], layout=torch.jagged)
        sparse = x.to_sparse()
        return

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that nested tensors are a prototype, the first of them says
        found = tensors_of(record(module(forward), ONES).calls[0])
    assert [(each.name, each.shape, each.dtype, each.device) for each in found] == [
        ("x", (2, 3), "float32", "cpu"),
        ("empty", (0, 3), "float32", "cpu"),
        ("scalar", (), "float32", "cpu"),
        ("integer", (2, 3), "int64", "cpu"),
        ("spectrum", (2, 2), "complex64", "cpu"),
        ("half", (2, 3), "bfloat16", "cpu"),
        ("meta", (5,), "float32", "meta"),
        ("ragged", (2, 2, -1), "float32", "cpu"),
        ("jagged", (2, -1, 3), "float32", "cpu"),
        ("sparse", (2, 3), "float32", "cpu"),
    ]


def test_comments_and_axes_come_from_the_source():
    class Toy(nn.Module):
        def __init__(self):
            super().__init__()
            self.W = nn.Parameter(torch.ones(3, 4))  # (d_in, d_out)
            self.register_buffer("mask", torch.ones(2))  # one a row
            self.b = nn.Parameter(torch.zeros(4))  # type: ignore

        def forward(
            self,
            x: "Float[Tensor, 'batch d_in']",  # noqa: F722, F821
            y=None,  # never given
        ):
            z = einops.einsum(
                x,
                self.W,
                "batch d_in, d_in d_out -> batch d_out",
            )
            grown = einops.rearrange(z, "b (h d) -> b h d", h=2) + 1  # heads apart
            q, k = grown.unbind(1)  # (batch, half) each  # type: ignore[misc]
            stale = q.T  # (batch, half, too_many)
            return stale + k.T  # (half, batch)

    trace = record(Toy(), ONES)
    call = trace.calls[0]
    assert [(each.name, each.comment, each.axes) for each in (*call.parameters, *call.buffers, *tensors_of(call))] == [
        ("W", "(d_in, d_out)", ("d_in", "d_out")),
        ("b", "", ()),
        ("mask", "one a row", ()),
        ("x", "", ("batch", "d_in")),
        ("z", "", ("batch", "d_out")),
        ("grown", "heads apart", ("b", "h", "d")),
        ("q", "(batch, half) each", ("batch", "half")),
        ("k", "(batch, half) each", ("batch", "half")),
        ("stale", "(batch, half, too_many)", ()),
        ("out", "(half, batch)", ("half", "batch")),
    ]


def test_a_parameter_takes_the_comment_of_the_line_that_uses_it():
    class Toy(nn.Module):
        def __init__(self):
            super().__init__()
            self.W = nn.Parameter(torch.ones(3, 4))

        def forward(self, x):
            y = torch.matmul(
                x,
                self.W,  # (d_in, d_out)
            )  # (batch, d_out)
            return y

    call = record(Toy(), ONES).calls[0]
    assert [(each.name, each.comment) for each in (*call.parameters, *tensors_of(call))] == [
        ("W", "(d_in, d_out)"),
        ("x", ""),
        ("y", "(batch, d_out)"),
    ]


def test_where_the_line_stands():
    def forward(self, x):
        y = x + 1
        return y * 2

    line = forward.__code__.co_firstlineno
    call = record(module(forward), ONES).calls[0]
    sources = [call.source, *(each.source for each in tensors_of(call))]
    assert sources == [f"{__file__}:{line}", f"{__file__}:{line}", f"{__file__}:{line + 1}", f"{__file__}:{line + 2}"]
    assert [split_source(each) for each in sources[2:]] == [(__file__, line + 1), (__file__, line + 2)]
    assert write_source(sources[2]) == f"test_recorder.py:{line + 1}"


def test_a_relative_file_name_is_made_whole(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("def forward(self, x):\n    y = x + 1\n    return y\n")
    monkeypatch.chdir(tmp_path)
    space = {}
    exec(compile((tmp_path / "mine.py").read_text(), "mine.py", "exec"), space)
    call = record(module(space["forward"]), ONES).calls[0]
    assert [each.source for each in tensors_of(call)] == [f"{tmp_path}/mine.py:1", f"{tmp_path}/mine.py:2"]


def test_where_a_file_lies_is_in_no_output():
    def forward(self, x):
        y = x + 1
        return y * 2

    trace = record(module(forward), ONES)
    folder = os.path.dirname(__file__)
    for shown in (repr(trace), dump(trace), json.dumps(to_plain(trace)), render_trace_page(trace), as_html(trace)):
        assert folder not in shown
    assert f"test_recorder.py:{forward.__code__.co_firstlineno + 1}" in render_trace_page(trace)


def test_a_source_that_cannot_be_read_gives_names_without_comments():
    space = {}
    exec("def forward(self, x):\n    y = x + 1  # lost\n    return y", space)
    found = tensors_of(record(module(space["forward"]), ONES).calls[0])
    assert [(each.name, each.comment) for each in found] == [("x", ""), ("y", "")]


def test_a_forward_replaced_on_the_instance_and_a_decorated_one():
    class Toy(nn.Module):
        @torch.no_grad()
        def forward(self, x):  # (rows, columns)
            y = x + 1
            return y

    decorated = Toy()
    assert [(each.name, each.axes) for each in tensors_of(record(decorated, ONES).calls[0])] == [
        ("x", ("rows", "columns")),
        ("y", ()),
    ]
    decorated.forward = lambda given: given * 2
    assert names_of(decorated, ONES) == ["given", "out"]


def test_parameters_tied_frozen_and_lazy():
    class Toy(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight
            self.lazy = nn.LazyLinear(2)
            self.lazy_unused = nn.LazyLinear(2)

        def forward(self, ids):
            return self.head(self.embed(ids)), self.lazy(ONES)

    trace = record(Toy(), torch.tensor([[1, 2]]))
    owned = {call.module: call.parameters for call in (*walk_calls(trace.calls[0]), *trace.uncalled)}
    assert [(each.shape, each.tied) for each in owned["head"]] == [((5, 3), "embed.weight")]
    assert [(each.name, each.shape) for each in owned["lazy"]] == [("weight", (2, 3)), ("bias", (2,))]
    assert [(each.name, each.shape, each.trainable) for each in owned["lazy_unused"]] == [
        ("weight", None, True),
        ("bias", None, True),
    ]
    assert (trace.model.parameters, trace.model.trainable) == (23, 23)


def test_a_module_that_never_runs_is_named_apart():
    class Toy(nn.Module):
        def __init__(self):
            super().__init__()
            self.used = nn.Linear(3, 2)
            self.unused = nn.Linear(4, 400)

        def forward(self, x):
            return self.used(x)

    trace = record(Toy(), ONES)
    assert [(each.module, [p.shape for p in each.parameters]) for each in trace.uncalled] == [
        ("unused", [(400, 4), (400,)])
    ]
    assert trace.model.parameters == 8 + 2000


def test_several_calls_in_one_block():
    model = nn.Linear(3, 2)
    with recording(model, name="twice") as trace:
        model(ONES)
        model(ONES[:1])
    assert [steps_of(call) for call in trace.calls] == [
        [("input", (2, 3)), ("out", (2, 2))],
        [("input", (1, 3)), ("out", (1, 2))],
    ]
    assert trace.model.name == "twice"


def test_a_part_of_the_model_can_be_called():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    with recording(model) as trace:
        model[1](ONES)
    assert [call.module for call in trace.calls] == ["1"]
    assert [each.module for each in trace.uncalled] == ["0"]


def test_stats_when_asked_for():
    def forward(self, x):
        y = torch.tensor([1.0, -3.0, float("inf"), float("nan")])
        empty = x[:0]
        complex_one = torch.tensor([3 + 4j])
        ids = torch.tensor([2, 4])
        tiny = torch.empty(2, dtype=torch.uint4)
        return

    model = module(forward)
    with recording(model, stats=True) as trace:
        model(ONES)
    record_of = {each.name: each.stats for each in tensors_of(trace.calls[0])}
    assert record_of.pop("tiny") is None
    figures = {name: (s.min, s.max, s.mean, s.rms, s.nan, s.inf) for name, s in record_of.items()}
    assert figures == {
        "x": (1.0, 1.0, 1.0, 1.0, 0, 0),
        "y": (-3.0, 1.0, -1.0, 2.23607, 1, 1),
        "empty": (None, None, None, None, 0, 0),
        "complex_one": (5.0, 5.0, 5.0, 5.0, 0, 0),
        "ids": (2.0, 4.0, 3.0, 3.16228, 0, 0),
    }


def test_the_observer_sees_each_tensor_when_it_gets_its_name():
    def forward(self, x):
        y = x + 1
        y.zero_()
        return y

    seen = []
    model = module(forward)
    with recording(model, observe=lambda path, record, tensor: seen.append((path, record.name, tensor.sum().item()))):
        model(ONES)
    assert seen == [("", "x", 6.0), ("", "y", 12.0), ("", "y", 0.0)]


def test_a_trace_is_a_value():
    def forward(self, x):
        return x + 1

    one, other = record(module(forward), ONES), record(module(forward), ONES)
    assert one == other
    assert hash(one) == hash(other)
    assert all(isinstance(step, TensorRecord) for step in one.calls[0].steps)


def test_what_is_no_module():
    with pytest.raises(ShapetraceError, match=r"a recording takes a torch.nn.Module, not function"):
        record(lambda x: x, ONES)
