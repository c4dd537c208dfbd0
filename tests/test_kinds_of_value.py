"""Every shape of value that goes into a module, comes out of it, or lies around in its forward."""

import io
import warnings
from collections import deque, namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from shapetrace import record, recording, store
from shapetrace.comparison import compare
from shapetrace.recorder.leaves import walk_leaves
from shapetrace.render.summary import render_trace
from shapetrace.trace import ModuleCall, walk_calls, write_placements, write_value

ONES = torch.ones(2, 3)


def module(forward, **children):
    """A module with this forward and these attributes."""
    made = type("Toy", (nn.Module,), {"forward": forward})()
    for name, child in children.items():
        setattr(made, name, child)
    return made


def lines_of(call):
    """The steps of a call, one line each: `in x (2, 3)`, `y (2, 3)`, `[lin]`."""
    lines = []
    for step in call.steps:
        if isinstance(step, ModuleCall):
            lines.append(f"[{step.module}]")
        else:
            role = "in " if step.role == "input" else ""
            placed = f" {write_placements(step)}" if step.placements else ""
            lines.append(f"{role}{step.name} {write_value(step)}{placed}{', in place' if step.in_place else ''}")
    return lines


def lines_in(model, *inputs, **named):
    """By path, the steps of each call."""
    return {call.module: lines_of(call) for call in walk_calls(record(model, *inputs, **named).calls[0])}


def screen_of(trace):
    out = io.StringIO()
    Console(file=out, width=80, color_system=None).print(render_trace(trace))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


Pair = namedtuple("Pair", "first second")


class KVCache:
    """As people write them: no base class, no tensor library."""

    def __init__(self):
        self.k = self.v = None
        self.length = 0

    @property
    def shape(self):
        raise RuntimeError("a property was run")

    def __iter__(self):
        raise RuntimeError("an iterator was asked for")

    def update(self, k, v):
        self.k = k if self.k is None else torch.cat([self.k, k])
        self.v = v if self.v is None else torch.cat([self.v, v])
        return self.k, self.v


def test_none_among_outputs_keeps_the_indices_right():
    inner = module(lambda self, x: (x @ torch.ones(3, 4), None))
    trace = record(module(lambda self, x: self.inner(x)[0] + 1, inner=inner), ONES)
    assert lines_of(trace.calls[0].steps[1]) == ["in x (2, 3)", "out.0 (2, 4)", "out.1 None"]
    assert store.parse(store.dump(trace)) == trace
    assert (
        screen_of(trace)
        == """\
Toy

Toy
├─ in x (2, 3)
├─ inner  Toy
│  ├─  in x (2, 3)
│  ├─ out.0 (2, 4)
│  └─ out.1 None
└─  out (2, 4)

2 module calls, 4 tensors, 0 parameters (0 B)"""
    )


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        (lambda x: None, []),
        (lambda x: (None, None), []),
        (lambda x: {"logits": x + 1, "past": None}, ["out.logits (2, 3)"]),
        (lambda x: [None, {"a": None, "b": x + 1}], ["out.0 None", "out.1.b (2, 3)"]),
        (lambda x: Pair(None, x + 1), ["out.second (2, 3)"]),
        (lambda x: deque([x + 1, x.sum()]), ["out.0 (2, 3)", "out.1 ()"]),
        (lambda x: x.double().numpy(), ["out ndarray float64 (2, 3)"]),
        (lambda x: (x[:0], np.zeros((0, 2), "int8")), ["out.0 (0, 3)", "out.1 ndarray int8 (0, 2)"]),
        (lambda x: (row for row in x), ["out generator (not walked)"]),
        (lambda x: SimpleNamespace(a=x + 1, n=3), ["out.a (2, 3)"]),
        (lambda x: torch.distributions.Normal(x + 1, x + 2), ["out.loc (2, 3)", "out.scale (2, 3)"]),
        (lambda x: nn.utils.rnn.pack_sequence([x, x[:1]]), ["out.data (3, 3)", "out.batch_sizes (2,) int64"]),
        (lambda x: {1: x + 1, "1": x + 2}, ["out.1 (2, 3)", "out.1' (2, 3)"]),
        (lambda x: {(0, 1): x + 1}, ["out.<tuple> (2, 3)"]),
        (lambda x: {"a", "b"}, []),
    ],
)
def test_outputs(output, lines):
    assert lines_in(module(lambda self, x: output(x)), ONES) == {"": ["in x (2, 3)", *lines]}


def test_an_array_between_two_modules():
    def forward(self, x):
        y = torch.from_numpy(self.inner(x))
        return y

    assert lines_in(module(forward, inner=module(lambda self, x: x.numpy())), torch.ones(2, 4)) == {
        "": ["in x (2, 4)", "[inner]", "y (2, 4)"],
        "inner": ["in x (2, 4)", "out ndarray float32 (2, 4)"],
    }


def test_a_dict_as_the_only_argument():
    batch = {"ids": torch.tensor([[1, 2]]), "mask": torch.ones(1, 2), "image": np.zeros((4, 4), "uint8"), "n": None}
    assert lines_in(module(lambda self, d: None), batch) == {
        "": ["in d.ids (1, 2) int64", "in d.mask (1, 2)", "in d.image ndarray uint8 (4, 4)"]
    }


def test_an_empty_batch():
    model = nn.Linear(4, 3)
    with recording(model, stats=True) as trace:
        model(torch.ones(0, 4))
    assert (
        screen_of(trace)
        == """\
Linear

Linear  15 parameters
├─ param weight (3, 4)
├─   param bias (3,)
├─     in input (0, 4)  empty
└─          out (0, 3)  empty

1 module call, 2 tensors, 15 parameters (60 B)"""
    )


def test_kinds_of_tensors_on_the_screen_and_in_the_file():
    class Marked(Tensor):
        pass

    def forward(self, x):
        csr = x.to_sparse_csr()
        coo = x.to_sparse()
        quantized = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
        ragged = torch.nested.nested_tensor([x, x[:1]])
        marked = x.as_subclass(Marked) + 1
        plain = nn.Parameter(x)
        return None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # nested tensors are a prototype, say some versions of torch
        model = module(forward)
        with recording(model, stats=True) as trace:
            model(ONES)
    assert lines_of(trace.calls[0]) == [
        "in x (2, 3)",
        "csr sparse_csr float32 (2, 3)",
        "coo sparse_coo float32 (2, 3)",
        "quantized (2, 3) qint8",
        "ragged nested float32 (2, ?, 3)",
        "marked Marked float32 (2, 3)",
        "plain (2, 3)",
    ]
    assert store.parse(store.dump(trace)) == trace
    dense = record(module(lambda self, x: (x + 1,)), ONES)
    sparse = record(module(lambda self, x: ((x + 1).to_sparse(),)), ONES)
    assert [(each.kind, each.name, each.old, each.new) for each in compare(dense, sparse).changes] == [
        ("retyped", "out.0", "", "sparse_coo")
    ]


def test_fake_tensors_have_shapes_and_no_values():
    with torch._subclasses.fake_tensor.FakeTensorMode():
        model = nn.Linear(3, 2)
        with recording(model, stats=True) as trace:
            model(torch.ones(5, 3))
    assert lines_of(trace.calls[0]) == ["in input FakeTensor float32 (5, 3)", "out FakeTensor float32 (5, 2)"]
    assert [step.stats for step in trace.calls[0].steps] == [None, None]


def test_a_distributed_tensor():
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    def forward(self, x):
        sharded = distribute_tensor(x, self.mesh, [Shard(0)])
        sharded.mul_(2)
        return sharded + 1

    model = module(forward)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model.mesh = init_device_mesh("cpu", (1,))
        told = lines_in(model, torch.ones(4, 3))
    finally:
        dist.destroy_process_group()
    assert told == {
        "": [
            "in x (4, 3)",
            "sharded (4, 3) Shard(0)",
            "sharded (4, 3) Shard(0), in place",
            "out (4, 3) Shard(0)",
        ]
    }


def test_under_vmap_each_example_is_seen():
    model = nn.Linear(3, 2)
    with recording(model, stats=True) as trace:
        torch.vmap(model)(torch.ones(7, 2, 3))
    assert lines_of(trace.calls[0]) == ["in input (2, 3)", "out (2, 2)"]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_modes(mode):
    def forward(self, x):
        y = self.lin(x)
        return y.relu()

    with mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert lines_in(module(forward, lin=nn.Linear(3, 2)), ONES) == {
            "": ["in x (2, 3)", "[lin]", "y (2, 2) bfloat16", "out (2, 2) bfloat16"],
            "lin": ["in input (2, 3)", "out (2, 2) bfloat16"],
        }


def test_a_cache_of_the_users_own():
    def forward(self, x, cache):
        for layer in self.layers:
            x = layer(x, cache)
        return x, cache

    def step(self, x, cache):
        k, v = cache.update(x + 1, x + 2)
        return k + v

    model = module(forward, layers=nn.ModuleList([module(step), module(step)]))

    def layer(length):
        grown = f"({length}, 3)"
        seen = [f"self.k {grown}", f"self.v {grown}", f"k {grown}", f"v {grown}", f"out {grown}"]
        return ["in x (2, 3)", "k (2, 3)", "v (2, 3)", *seen]

    told = lines_in(model, ONES, KVCache())
    assert told.pop("") == [
        *("in x (2, 3)", "[layers.0]", "x (2, 3)", "[layers.1]", "x (4, 3)", "out.1.k (4, 3)", "out.1.v (4, 3)")
    ]
    assert told == {"layers.0": layer(2), "layers.1": layer(4)}


def test_a_cache_is_told_where_it_comes_in_where_it_changes_and_where_it_goes_out():
    def forward(self, x, cache):
        held = cache
        x = self.inner(x, cache=held)
        held.k = held.k * 2  # doubled
        unrelated = x + 1
        return unrelated, held

    def inner(self, x, cache):
        cache.v.add_(1)
        return x + 1

    cache = KVCache()
    cache.update(torch.zeros(1), torch.zeros(2))
    trace = record(module(forward, inner=module(inner)), ONES, cache)
    assert {call.module: lines_of(call) for call in walk_calls(trace.calls[0])} == {
        "": [
            *("in x (2, 3)", "in cache.k (1,)", "in cache.v (2,)", "[inner]", "x (2, 3)"),
            *("held.k (1,)", "unrelated (2, 3)", "out.1.v (2,), in place"),
        ],
        "inner": ["in x (2, 3)", "cache.v (2,), in place", "out (2, 3)"],
    }
    assert [step.comment for step in trace.calls[0].steps if getattr(step, "name", "") == "held.k"] == ["doubled"]


def test_hugging_face_caches():
    from transformers import DynamicCache, EncoderDecoderCache, GPT2Config, StaticCache

    sizes = GPT2Config(n_layer=2, n_embd=8, n_head=2)
    states = torch.ones(1, 2, 3, 4)

    def filled(cache):
        for layer in range(2):
            cache.update(states, states, layer)
        return cache

    both = EncoderDecoderCache(filled(DynamicCache(config=sizes)), DynamicCache(config=sizes))
    assert [(path, tuple(tensor.shape)) for path, tensor in walk_leaves("past", both)] == [
        ("past.self_attention_cache.0.key", (1, 2, 3, 4)),
        ("past.self_attention_cache.0.value", (1, 2, 3, 4)),
        ("past.self_attention_cache.1.key", (1, 2, 3, 4)),
        ("past.self_attention_cache.1.value", (1, 2, 3, 4)),
    ]
    static = filled(StaticCache(config=sizes, max_cache_len=8))
    shapes = {path: tuple(tensor.shape) for path, tensor in walk_leaves("past", static)}
    assert {path: shape for path, shape in shapes.items() if shape} == {
        "past.0.key": (1, 2, 8, 4),
        "past.0.value": (1, 2, 8, 4),
        "past.1.key": (1, 2, 8, 4),
        "past.1.value": (1, 2, 8, 4),
    }
    legacy = tuple((states, states) for _ in range(2))
    assert [path for path, _ in walk_leaves("past", legacy)] == ["past.0.0", "past.0.1", "past.1.0", "past.1.1"]


def test_the_layers_of_a_model_with_a_cache_are_alike():
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 3, "n_embd": 8, "n_head": 2, "vocab_size": 11, "n_positions": 16}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        first = screen_of(record(model, ids, use_cache=True))
        after = screen_of(record(model, ids[:, :1], cache=model(ids, use_cache=True).cache))
    for screen, before, length in ((first, [], 3), (after, [3, 3], 4)):
        lines = [line.strip("├└─│ ") for line in screen.splitlines()]
        assert "h.0 ... h.2  GPT2Block  x3  872 each" in lines
        cached = [line.split(" (")[1] for line in lines if ".0..2." in line]
        assert cached == [f"1, 2, {size}, 4)  x3" for size in (*before, length, length)]
