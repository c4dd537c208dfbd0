"""Every shape of module: shared, wrapped, decorated, compiled, scripted, checkpointed, and what is told of each."""

import functools
import io

import pytest
import torch
from rich.console import Console
from torch import nn
from torch.utils.checkpoint import checkpoint

from shapetrace import record, recording
from shapetrace.parameters import count_bytes, count_parameters, unique_parameters
from shapetrace.recorder.parameters import describe_modules
from shapetrace.render.summary import render_trace
from shapetrace.trace import ModuleCall, walk_calls, walk_modules, write_value

ONES = torch.ones(2, 3)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x, mask=None):  # (batch, d)
        y = self.lin(x)
        return y.relu()


LAYER = ["in x (2, 3)", "[lin]", "y (2, 3)", "out (2, 3)"]


def module(forward, **children):
    """A module with this forward and these attributes."""
    made = type("Toy", (nn.Module,), {"forward": forward})()
    for name, child in children.items():
        setattr(made, name, child)
    return made


def lines_of(call):
    """The steps of a call, one line each: `in x (2, 3)`, `y (2, 3)`, `[lin]`."""
    return [
        f"[{step.module}]"
        if isinstance(step, ModuleCall)
        else f"{'in ' if step.role == 'input' else ''}{step.name} {write_value(step)}"
        for step in call.steps
    ]


def paths_and_notes(trace):
    return {each.module: each.note for each in walk_modules(trace)}


def screen_of(trace):
    out = io.StringIO()
    Console(file=out, width=80, color_system=None).print(render_trace(trace))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def tree_of(trace):
    """The screen without the lines around the tree."""
    return screen_of(trace).split("\n\n")[1]


# Sharing, and what is counted


def test_a_shared_module_says_which_one_it_is():
    act = nn.ReLU()
    trace = record(
        nn.Sequential(nn.Sequential(nn.Linear(4, 4), act), nn.Sequential(nn.Linear(4, 4), act)),
        ONES[:, :1].expand(2, 4),
    )
    assert trace.model.parameters == 40
    assert paths_and_notes(trace) == {
        **{"": "", "0": "", "0.0": "", "0.1": "", "1": "", "1.0": ""},
        "1.1": "same module as 0.1",
    }


def test_a_layer_called_twice_is_counted_once():
    lin = nn.Linear(4, 4)
    trace = record(module(lambda self, x: self.lin(self.lin(x)), lin=lin), torch.ones(2, 4))
    assert (lines_of(trace.calls[0]), trace.model.parameters) == (["in x (2, 4)", "[lin]", "[lin]", "out (2, 4)"], 20)
    assert "├─ lin  Linear  x2  20 each" in tree_of(trace)


def test_tied_embeddings_are_left_out_once():
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device("meta"):
        modules = describe_modules(GPT2LMHeadModel(GPT2Config()))
    counts = {path: count_parameters(modules, path) for path in ("", "transformer.wte", "transformer.wpe", "lm_head")}
    assert counts == {"": 124_439_808, "transformer.wte": 38_597_376, "transformer.wpe": 786_432, "lm_head": 38_597_376}
    within = sum(count_parameters(modules, path) for path in ("transformer.h", "transformer.ln_f"))
    assert within == counts[""] - counts["transformer.wte"] - counts["transformer.wpe"] == 85_056_000


def test_parameters_of_the_modules_own():
    class Scaled(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Linear(4, 4))
            self.scale = nn.Parameter(torch.ones(1))
            self.pos = nn.Parameter(torch.ones(1, 4))
            self.spectrum = nn.Parameter(torch.ones(3, dtype=torch.complex64))

    trace = record(Scaled(), torch.ones(2, 4))
    records = unique_parameters(walk_modules(trace))
    assert {name: (each.shape, each.dtype) for name, each in records.items()} == {
        "scale": ((1,), "float32"),
        "pos": ((1, 4), "float32"),
        "spectrum": ((3,), "complex64"),
        "0.weight": ((4, 4), "float32"),
        "0.bias": ((4,), "float32"),
    }
    assert (trace.model.parameters, count_bytes(records.values())) == (28, 25 * 4 + 3 * 8)


def test_frozen_and_partly_frozen():
    model = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 2))
    model[1].weight.requires_grad_(False)
    trace = record(model, torch.ones(1, 4))
    assert (trace.model.parameters, trace.model.trainable) == (30, 2)
    assert {each.module: [p.trainable for p in each.parameters] for each in walk_modules(trace)} == {
        **{"": [], "0": [False, False], "1": [False, True]},
    }


def test_children_and_parameters_that_are_none():
    model = module(lambda self, x: self.lin(x), lin=nn.Linear(4, 4))
    model.register_module("norm", None)
    model.register_parameter("g", None)
    model.register_buffer("mask", None)
    trace = record(model, torch.ones(2, 4))
    assert (paths_and_notes(trace), trace.model.parameters) == ({"": "", "lin": ""}, 20)


def test_containers_of_containers():
    pair = lambda: nn.ModuleDict({"in": nn.Linear(4, 4), "out": nn.Linear(4, 4)})  # noqa: E731

    def forward(self, x):
        for each in self.b:
            x = each["out"](each["in"](x))
        return x

    trace = record(module(forward, b=nn.ModuleList([pair(), pair()])), torch.ones(2, 4))
    assert [call.module for call in walk_calls(trace.calls[0])] == ["", "b.0.in", "b.0.out", "b.1.in", "b.1.out"]
    assert trace.model.parameters == 80


def test_lists_and_dicts_of_parameters():
    model = module(lambda self, x: x * self.ps[0] + self.pd["a"])
    model.ps = nn.ParameterList([torch.ones(3), torch.ones(2, 3)])
    model.pd = nn.ParameterDict({"a": torch.ones(3)})
    trace = record(model, ONES)
    assert {each.module: [p.name for p in each.parameters] for each in trace.uncalled} == {
        "ps": ["0", "1"],
        "pd": ["a"],
    }
    assert trace.model.parameters == 12


def test_lazy_modules_before_and_after_their_first_call():
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    assert [[p.shape for p in each.parameters] for each in describe_modules(model)] == [[], [None, None], []]
    trace = record(model, torch.ones(2, 4))
    assert trace.model.parameters == 15
    assert [(p.name, p.shape) for p in trace.calls[0].steps[1].parameters] == [("weight", (3, 4)), ("bias", (3,))]


# What a reader has to be told


def test_layers_in_a_plain_list():
    class Toy(nn.Module):
        def __init__(self):
            super().__init__()
            self.ls = [nn.Linear(4, 4), nn.Linear(4, 4)]
            self.known = nn.Linear(4, 4)
            self.order = [self.known]
            self.extra = {"scale": nn.Parameter(torch.ones(4))}

        def forward(self, x):
            for each in (*self.ls, *self.order):
                x = each(x)
            return x

    model = Toy()
    trace = record(model, torch.ones(2, 4))
    assert trace.model.parameters == 20
    note = "`ls` holds 2 modules in a plain list, not registered: 40 parameters; "
    note += "`extra` holds 1 parameter in a plain dict, not registered: 4 parameters"
    assert paths_and_notes(trace) == {"": note, "known": ""}
    assert [each.note for each in describe_modules(model)] == [note, ""]


def test_a_reference_to_the_parent():
    model = module(lambda self, x: self.a(x), a=nn.Linear(4, 4))
    model.a.owner = model
    trace = record(model, torch.ones(2, 4))
    assert (paths_and_notes(trace), trace.model.parameters) == ({"": "", "a": "`owner` refers back to the root"}, 20)


def test_recursion():
    def forward(self, x, left=2):
        y = x * 2
        return self(y, left - 1) if left else y

    trace = record(module(forward), ONES)
    assert [call.module for call in walk_calls(trace.calls[0])] == ["", "", ""]
    assert (
        tree_of(trace)
        == """\
Toy
├─ in x (2, 3)
├─    y (2, 3)
├─ Toy
│  ├─ in x (2, 3)
│  ├─    y (2, 3)
│  ├─ Toy
│  │  ├─ in x (2, 3)
│  │  └─    y (2, 3)
│  └─  out (2, 3)
└─  out (2, 3)"""
    )


# Wrapped and decorated


def without_wraps(function):
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def with_wraps(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def logged(log):
    def decorate(function):
        def wrapper(self, *args, **kwargs):
            log(self)
            return function(self, *args, **kwargs)

        return wrapper

    return decorate


@pytest.mark.parametrize(
    "decorate",
    [
        *(without_wraps, with_wraps, logged(lambda module: None), torch.no_grad(), torch.compile(backend="eager")),
        lambda function: without_wraps(with_wraps(without_wraps(function))),
    ],
)
def test_decorated_forwards(decorate):
    class Toy(nn.Module):
        @decorate
        def forward(
            self,
            x,  # (rows, columns)
            mask=None,
            *rest,
        ):
            y = x + mask
            return y * 2  # (rows, twice)

    trace = record(Toy(), ONES, ONES, ONES)
    assert lines_of(trace.calls[0]) == ["in x (2, 3)", "in mask (2, 3)", "in rest.0 (2, 3)", "y (2, 3)", "out (2, 3)"]
    assert [step.axes for step in trace.calls[0].steps] == [("rows", "columns"), (), (), (), ("rows", "twice")]


def test_forwards_replaced_on_the_instance():
    given = {"partial": functools.partial(lambda n, z: z * n, 2), "lambda": lambda z: z + 1, "method": Layer().forward}
    told = {}
    for name, forward in given.items():
        model = nn.Linear(3, 3)
        model.forward = forward
        told[name] = lines_of(record(model, ONES).calls[0])[0]
    wrapped = nn.Linear(3, 3)
    plain = wrapped.forward
    wrapped.forward = lambda *args, **kwargs: plain(*args, **kwargs)
    told["around"] = lines_of(record(wrapped, ONES).calls[0])[0]
    assert told == {
        **{"partial": "in z (2, 3)", "lambda": "in z (2, 3)", "method": "in x (2, 3)", "around": "in input (2, 3)"},
    }


def test_a_decorator_that_hides_what_it_calls_leaves_the_names_it_has():
    def hidden(self, *args):
        return HIDDEN[0](self, *args)

    assert lines_of(record(module(hidden), ONES).calls[0]) == ["in args.0 (2, 3)", "y (2, 3)"]


def add_one(self, x):
    y = x + 1
    return y


HIDDEN = [add_one]


def test_source_that_cannot_be_read():
    space = {}
    exec("def forward(self, x, *, scale):\n    y = x * scale  # lost\n    return y + 1", space)
    trace = record(module(space["forward"]), ONES, scale=torch.tensor(2.0))
    assert lines_of(trace.calls[0]) == ["in x (2, 3)", "in scale ()", "y (2, 3)", "out (2, 3)"]
    assert {step.comment for step in trace.calls[0].steps} == {""}


COMPILED = "compiled: shown as it is written"


def test_compiled_modules_have_the_names_and_classes_that_were_written():
    inside = Layer()
    inside.compile(backend="eager")
    traces = {
        "root": record(torch.compile(Layer(), backend="eager"), ONES),
        "child": record(nn.Sequential(torch.compile(Layer(), backend="eager")), ONES),
        "in place": record(inside, ONES),
    }
    assert {name: paths_and_notes(trace) for name, trace in traces.items()} == {
        "root": {"": COMPILED, "lin": ""},
        "child": {"": "", "0": COMPILED, "0.lin": ""},
        "in place": {"": COMPILED, "lin": ""},
    }
    assert [lines_of(traces[name].calls[0]) for name in ("root", "in place")] == [LAYER, LAYER]
    assert traces["root"].model == record(Layer(), ONES).model
    assert [[p.tied for p in each.parameters] for each in walk_modules(traces["root"])] == [[], ["", ""]]


def test_checkpoint_wrappers_are_no_part_of_a_name():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    trace = record(nn.Sequential(checkpoint_wrapper(Layer()), nn.ReLU()), ONES)
    assert [call.module for call in walk_calls(trace.calls[0])] == ["", "0", "0.lin", "1"]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("make", [torch.jit.script, lambda model: torch.jit.trace(model, ONES)])
def test_scripted_and_traced_modules(make):
    scripted = make(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
    hooks = [(len(each._forward_hooks), len(each._forward_pre_hooks)) for each in scripted.modules()]
    root, child = record(scripted, ONES), record(nn.Sequential(scripted, nn.ReLU()), ONES)
    assert lines_of(root.calls[0]) == ["in input (2, 3)", "out (2, 2)"]
    assert paths_and_notes(root) == {"": "scripted: its inside is not seen", "0": "inside a scripted module"}
    assert paths_and_notes(child) == {
        **{"": "", "0": "scripted: its inside is not seen", "1": "", "0.0": "inside a scripted module"},
    }
    assert [(each.class_name, each.parameters != ()) for each in walk_modules(root)] == [
        ("Sequential", False),
        ("Linear", True),
    ]
    assert (root.model.class_name, root.model.parameters) == ("Sequential", 8)
    assert hooks == [(len(each._forward_hooks), len(each._forward_pre_hooks)) for each in scripted.modules()]


# Activation checkpointing


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_backward_runs_again_is_told_once(reentrant):
    def part(h):
        z = h * 2
        return z

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = Layer()

        def forward(self, x):
            h = checkpoint(self.a, x, use_reentrant=reentrant)
            return checkpoint(part, h, use_reentrant=reentrant).sum()

    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Checkpointed()

        def forward(self, x):
            loss = self.model(x)
            loss.backward()
            return loss

    x = ONES.clone().requires_grad_()
    inside = record(Step(), x)
    assert lines_of(inside.calls[0]) == ["in x (2, 3)", "[model]", "loss ()"]
    model = Checkpointed()
    with recording(model) as outside:
        model(x).backward()
    assert x.grad is not None
    assert [lines_of(call) for call in outside.calls] == [
        ["in x (2, 3)", "[a]", "h (2, 3)", "z (2, 3)", "out ()"],
    ]
    assert [call.module for call in walk_calls(outside.calls[0])] == ["", "a", "a.lin"]


# Loops


def test_loops_are_one_line_on_the_screen():
    def forward(self, x):
        for _ in range(100):
            x = self.lin(x)
        for _ in range(500):
            x = x + 1
        parts = [x * n for n in range(30)]
        return torch.stack(parts)

    assert (
        tree_of(record(module(forward, lin=nn.Linear(3, 3)), ONES))
        == """\
Toy  12 parameters
├─        in x (2, 3)
├─ lin  Linear  x100  12 each
│  ├─ param weight (3, 3)
│  ├─   param bias (3,)
│  ├─     in input (2, 3)
│  └─          out (2, 3)
├─           x (2, 3)      x100
├─           x (2, 3)      x500
├─ parts.0..29 (2, 3)      x30
└─         out (30, 2, 3)"""
    )


def test_a_loop_that_makes_a_sequence_longer_is_one_too():
    class Grow(nn.Module):
        def forward(self, x):
            for _ in range(20):
                last = self.lin(x)[-1:]
                x = torch.cat([x, last])  # (posn, d)
            return x

        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)

    trace = record(Grow(), ONES)
    assert (
        tree_of(trace)
        == """\
Grow  12 parameters
├─ in x (2, 3)
├─ lin  Linear  x20  12 each
│  ├─ param weight (3, 3)
│  ├─   param bias (3,)
│  ├─     in input (2..21, 3)
│  └─          out (2..21, 3)
├─ last (1, 3)      x20
└─    x (3..22, 3)  x20  (posn, d)"""
    )


def test_a_few_steps_of_different_sizes_stay_apart():
    def forward(self, x):
        for _ in range(4):
            x = torch.cat([x, x])
        return x

    assert (
        tree_of(record(module(forward), ONES))
        == """\
Toy
├─ in x (2, 3)
├─    x (4, 3)
├─    x (8, 3)
├─    x (16, 3)
└─    x (32, 3)"""
    )


def test_a_long_loop_body_is_told_once():
    body = "\n".join(f"        y{index} = x + {index}" for index in range(90))
    space = {}
    exec(f"def forward(self, x):\n    for _ in range(10):\n{body}\n    return y0", space)
    lines = screen_of(record(module(space["forward"]), ONES)).splitlines()
    assert sum("x10" in line for line in lines) == 90
    assert len(lines) < 100


def test_layers_of_a_folded_block_have_one_name():
    block = lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU())  # noqa: E731
    assert (
        tree_of(record(nn.Sequential(block(), block()), ONES))
        == """\
Sequential  24 parameters
├─ in input (2, 3)
├─ 0 ... 1  Sequential  x2  12 each
│  ├─ in input (2, 3)
│  ├─ 0  Linear  12
│  │  ├─ param weight (3, 3)
│  │  ├─   param bias (3,)
│  │  ├─     in input (2, 3)
│  │  └─          out (2, 3)
│  ├─ 1  ReLU
│  │  ├─ in input (2, 3)
│  │  └─      out (2, 3)
│  └─      out (2, 3)
└─      out (2, 3)"""
    )
