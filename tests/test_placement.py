"""Where a model runs, and in which precision: `--device` and `--dtype`."""

import json
import re

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from shapetrace.cli import main
from shapetrace.errors import ShapetraceError
from shapetrace.inputs import Inputs
from shapetrace.recorder import record
from shapetrace.target import Target
from shapetrace.target.placement import find_device, place

MODEL = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d_model=8):
        super().__init__()
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.register_buffer("order", torch.arange(5))

    def forward(self, x):  # (batch, posn, d_model)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.mT + self.order  # (batch, query, key)
        return scores.softmax(-1) @ v
"""
HERE = torch.accelerator.current_accelerator(check_available=True)
needs_accelerator = pytest.mark.skipif(HERE is None, reason="torch finds no accelerator on this machine")
TINY = [word for size in ("n_layers=2", "d_model=40", "n_heads=5", "d_head=8", "d_mlp=80") for word in ("--set", size)]


@pytest.fixture
def model(tmp_path, monkeypatch):
    (tmp_path / "attention.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return ["--model", "attention.py:Attention", "--input", "x=float32[2,5,8]"]


def run(*arguments, command="run", code=0):
    result = CliRunner().invoke(main, [command, *arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


HALF = """\
attention.py:Attention  weights: as built (seed 0), in bfloat16

Attention  216 parameters
├─ buffer order (5,) int64
├─         in x (2, 5, 8) bfloat16  (batch, posn, d_model)
├─ qkv  Linear  216
│  ├─ param weight (24, 8) bfloat16
│  ├─   param bias (24,) bfloat16
│  ├─     in input (2, 5, 8) bfloat16
│  └─          out (2, 5, 24) bfloat16
├─            q (2, 5, 8) bfloat16
├─            k (2, 5, 8) bfloat16
├─            v (2, 5, 8) bfloat16
├─       scores (2, 5, 5) bfloat16  (batch, query, key)
└─          out (2, 5, 8) bfloat16

2 module calls, 8 tensors, 216 parameters (432 B)
"""
HALF_ELSEWHERE = """\
attention.py:Attention  weights: as built (seed 0), in bfloat16

Attention  216 parameters
├─ buffer order (5,) int64          cuda
├─         in x (2, 5, 8) bfloat16  cuda  (batch, posn, d_model)
├─ qkv  Linear  216
│  ├─ param weight (24, 8) bfloat16     cuda
│  ├─   param bias (24,) bfloat16       cuda
│  ├─     in input (2, 5, 8) bfloat16   cuda
│  └─          out (2, 5, 24) bfloat16  cuda
├─            q (2, 5, 8) bfloat16  cuda
├─            k (2, 5, 8) bfloat16  cuda
├─            v (2, 5, 8) bfloat16  cuda
├─       scores (2, 5, 5) bfloat16  cuda  (batch, query, key)
└─          out (2, 5, 8) bfloat16  cuda

2 module calls, 8 tensors, 216 parameters (432 B)
"""


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_run_in_another_precision(model, dtype):
    assert run(*model, "--dtype", dtype).stdout == HALF.replace("bfloat16", dtype)


def test_a_trace_of_another_device_shows_it(model, tmp_path):
    run(*model, "--dtype", "bfloat16", "--save", "trace.yaml")
    text = (tmp_path / "trace.yaml").read_text()
    (tmp_path / "trace.yaml").write_text(re.sub("dtype: (bfloat16|int64)", r"dtype: \1, device: cuda", text))
    assert run("trace.yaml", command="show").stdout == HALF_ELSEWHERE


@needs_accelerator
def test_a_run_on_the_accelerator(model):
    printed = run(*model, "--device", HERE.type, "--dtype", "bfloat16").stdout
    assert printed == HALF_ELSEWHERE.replace("cuda", HERE.type)


def test_a_precision_that_the_model_has_anyway_is_not_told(model):
    assert run(*model, "--dtype", "float32", "--device", "cpu").stdout == run(*model).stdout


@pytest.mark.parametrize("name", ["gpt2-small", "forge-small", "hf:gpt2?n_layer=2&n_embd=40&n_head=5"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_any_model_runs_in_any_precision(name, dtype):
    sizes = {"gpt2-small": TINY, "forge-small": TINY[:6]}.get(name, [])
    trace = json.loads(
        run("The cat", "--model", name, *sizes, "--weights", "random", "--dtype", dtype, "--json").stdout
    )
    assert trace["model"]["weights"] == f"random (seed 0), in {dtype}"
    kinds = {step["dtype"] for step in steps_of(trace["call"]) if step["dtype"] not in ("int64", "bool", "")}
    assert kinds == {dtype, *(["float32"] if name == "gpt2-small" else [])}  # the ones that its mask is made of


def steps_of(call):
    for step in call["steps"]:
        yield from steps_of(step) if "module" in step else [step]


def test_meta_and_params_in_another_precision():
    trace = json.loads(run("The cat", "--meta", *TINY, "--dtype", "bfloat16", "--json").stdout)
    assert (trace["model"]["weights"], trace["call"]["steps"][-1]["dtype"]) == ("none (shapes only)", "bfloat16")
    full, half = (
        json.loads(run(*TINY, *words, "--json", command="params").stdout) for words in ([], ["--dtype", "bfloat16"])
    )
    assert (half["parameters"], half["bytes"]) == (full["parameters"], full["bytes"] / 2)


def test_the_other_commands_take_both():
    words = ["The cat", *TINY, "--weights", "random", "--device", "cpu", "--dtype", "float16", "--json"]
    assert json.loads(run(*words, "--head", "1", command="attention").stdout)["weights"].endswith(", in float16")
    assert json.loads(run(*words, "-n", "2", command="generate").stdout)["weights"].endswith(", in float16")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "kuda"], "error: `kuda` is no device of torch's\n\nhint: this machine has cpu"),
        (["--device", "meta"], "error: there are no values on the meta device\n\nhint: `shapetrace run --meta` shows"),
        (["--meta", "--device", "cpu"], "Usage: main run [OPTIONS] [TEXT]"),
        (["--dtype", "float8"], "Usage: main run [OPTIONS] [TEXT]"),
    ],
)
def test_bad_input_is_one_message_and_exit_2(arguments, message):
    result = run("The cat", *arguments, code=2)
    assert (result.stdout, result.stderr.startswith(message)) == ("", True), result.stderr


@pytest.mark.parametrize("name", ["cuda", "cuda:7", "mps", "xpu"])
def test_an_accelerator_that_is_not_here(name, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    with pytest.raises(ShapetraceError) as raised:
        find_device(name)
    assert str(raised.value) == f"there is no {name.partition(':')[0]} here\n\nhint: this machine has cpu"


def test_an_accelerator_of_fewer_devices(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    assert [find_device(name) for name in ("cuda", "cuda:1")] == [torch.device("cuda"), torch.device("cuda:1")]
    with pytest.raises(ShapetraceError) as raised:
        find_device("cuda:2")
    assert str(raised.value) == "there is no cuda:2 here\n\nhint: this machine has cpu, cuda:0, cuda:1"


class Kinds(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("angles", torch.ones(4, dtype=torch.complex64))
        self.register_buffer("order", torch.arange(4))


def test_what_is_no_real_number_stays_as_it_is_and_ties_stay_ties():
    model = Kinds()
    parameter = model.embed.weight
    placed = place(Target("kinds", model, "as built"), torch.device("cpu"), torch.bfloat16)
    assert placed == Target("kinds", model, "as built, in bfloat16")
    assert model.embed.weight is model.head.weight is parameter
    assert {key: each.dtype for key, each in model.state_dict().items()} == {
        "embed.weight": torch.bfloat16,
        "head.weight": torch.bfloat16,
        "angles": torch.complex64,
        "order": torch.int64,
    }


def test_what_torch_refuses_is_told_in_its_words():
    class Stubborn(nn.Linear):
        def to(self, *args, **kwargs):
            raise RuntimeError("Cannot convert this\nand more")

    with pytest.raises(ShapetraceError) as raised:
        place(Target("mine", Stubborn(2, 2), "as built"), torch.device("cpu"), torch.float64)
    assert str(raised.value) == (
        "mine cannot be float64 on cpu: Cannot convert this\n\nhint: take another `--device` or `--dtype`"
    )


def test_inputs_follow():
    inputs = Inputs((torch.ones(1), torch.tensor([1]), True), {"x": torch.ones(1, dtype=torch.float64), "n": 3})
    moved = inputs.to(torch.device("meta"), torch.bfloat16)
    assert [(each.dtype, each.device.type) for each in (*moved.args[:2], moved.kwargs["x"])] == [
        (torch.bfloat16, "meta"),
        (torch.int64, "meta"),
        (torch.bfloat16, "meta"),
    ]
    assert (moved.args[2], moved.kwargs["n"]) == (True, 3)


@needs_accelerator
def test_the_other_commands_on_the_accelerator():
    words = ["The cat", *TINY, "--weights", "random", "--dtype", "float32", "--json"]
    for command, more in (("attention", ["--head", "1"]), ("generate", ["-n", "3", "--greedy"])):
        there, here = (
            json.loads(run(*words, *more, "--device", each, command=command).stdout) for each in (HERE.type, "cpu")
        )
        assert shape_of(there) == shape_of(here)


def shape_of(value):
    """The same without its figures, which are rounded otherwise elsewhere."""
    if isinstance(value, dict):
        return {key: shape_of(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape_of(each) for each in value]
    return type(value) if isinstance(value, float) else value


@needs_accelerator
def test_a_module_is_recorded_where_it_is():
    trace = record(nn.Linear(3, 2).to(HERE), torch.ones(5, 3, device=HERE))
    assert [(step.name, step.shape, step.device) for step in trace.calls[0].steps] == [
        ("input", (5, 3), HERE.type),
        ("out", (5, 2), HERE.type),
    ]
