"""A module that its user has spread over several processes: traced as it is, on each of them."""

import re
from pathlib import Path

import pytest
from launching import torchrun

from shapetrace import load
from shapetrace.store import dump
from shapetrace.trace import tensors_of, walk_modules

SCRIPT = Path(__file__).parent / "scripts" / "spread.py"


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Of one start of two processes, every trace, by model and rank."""
    folder = tmp_path_factory.mktemp("spread")
    ran = torchrun(SCRIPT, folder)
    assert ran.returncode == 0, ran.stderr
    return {path.stem: load(path) for path in folder.iterdir()}


def rows(trace):
    return dump(trace).partition("call:\n")[2]


def without_stats(trace):
    return re.sub(r", stats: {.*?}", "", rows(trace))


def without_placements(text):
    return re.sub(r", placements: .*?, local_shape: .*?]", "", text)


def test_tensor_parallel_on_the_first_rank(traces):
    trace = traces["tensor0"]
    assert trace.model.mesh == "tensor=2, rank 0"
    shown = """\
  module: ''
  class: Net
  parameters:
  - {name: scale, shape: [4]}
  steps:
  - {name: x, role: input, shape: [3, 4], dtype: float32}
  - module: mlp
    class: MLP
    steps:
    - {name: x, role: input, shape: [3, 4], dtype: float32, axes: [batch, d_model], comment: '(batch, d_model)'}
    - module: mlp.up
      class: Linear
      parameters:
      - {name: weight, shape: [5, 4], placements: [Shard(0)], local_shape: [3, 4]}
      - {name: bias, shape: [5], placements: [Shard(0)], local_shape: [3]}
      steps:
      - {name: input, role: input, shape: [3, 4], dtype: float32, placements: [Replicate], local_shape: [3, 4]}
      - {name: out, role: output, shape: [3, 5], dtype: float32, placements: [Shard(1)], local_shape: [3, 3]}
    - {name: hidden, role: local, shape: [3, 5], dtype: float32, axes: [batch, d_mlp], comment: '(batch, d_mlp)', placements: [Shard(1)], local_shape: [3, 3]}
    - {name: hidden, role: local, shape: [3, 5], dtype: float32, in_place: true, comment: shifted, placements: [Shard(1)], local_shape: [3, 3]}
    - module: mlp.down
      class: Linear
      parameters:
      - {name: weight, shape: [4, 5], placements: [Shard(1)], local_shape: [4, 3]}
      - {name: bias, shape: [4], placements: [Replicate], local_shape: [4]}
      steps:
      - {name: input, role: input, shape: [3, 5], dtype: float32, placements: [Shard(1)], local_shape: [3, 3]}
      - {name: out, role: output, shape: [3, 4], dtype: float32}
    - {name: out, role: output, shape: [3, 4], dtype: float32, axes: [batch, d_model], comment: '(batch, d_model)'}
  - {name: y, role: local, shape: [3, 4], dtype: float32}
  - {name: out, role: output, shape: [3, 4], dtype: float32}
"""  # noqa: E501 - one tensor a line
    assert without_stats(trace) == shown


def test_what_five_do_not_divide_into_is_less_on_the_second_rank(traces):
    first, second = rows(traces["tensor0"]), rows(traces["tensor1"])
    smaller = {"[3, 3]": "[3, 2]", "[4, 3]": "[4, 2]", "[3]": "[2]"}
    for one, other in smaller.items():
        first = first.replace(f"local_shape: {one}", f"local_shape: {other}")
    up = "shape: [5, 4], placements: [Shard(0)], local_shape: "
    assert first.replace(f"{up}[3, 4]", f"{up}[2, 4]") == second


def test_figures_are_those_of_the_whole(traces):
    hidden = traces["tensor0"].calls[0].steps[1].steps[2]
    assert (hidden.name, hidden.shape, hidden.stats.samples) == ("hidden", (3, 5), (0.0,) * 4)
    assert hidden.stats == traces["tensor1"].calls[0].steps[1].steps[2].stats


def test_fsdp_shows_parameters_as_they_are_kept_and_activations_as_they_are_made(traces):
    trace = traces["fsdp0"]
    owned = {call.module: call.parameters for call in walk_modules(trace)}
    assert [(each.name, each.placements, each.local_shape) for path in owned for each in owned[path]] == [
        ("scale", ("Shard(0)",), (2,)),
        ("weight", ("Shard(0)",), (3, 4)),
        ("bias", ("Shard(0)",), (3,)),
        ("weight", ("Shard(0)",), (2, 5)),
        ("bias", ("Shard(0)",), (2,)),
    ]
    assert trace.calls[0].class_name == "Net"
    assert not {each.placements for call in walk_modules(trace) for each in tensors_of(call)} - {()}
    assert without_placements(rows(trace)) == rows(traces["plain0"])


def test_data_parallel_wrappers_are_no_part_of_the_names(traces):
    assert dump(traces["ddp0"]) == dump(traces["plain0"])
    assert [call.module for call in walk_modules(traces["fsdp10"])] == ["", "mlp", "mlp.up", "mlp.down"]
