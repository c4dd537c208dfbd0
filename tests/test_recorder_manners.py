"""The recorder leaves the model, the interpreter and the memory as it found them."""

import copy
import gc
import importlib
import json
import linecache
import os
import pickle
import subprocess
import sys
import textwrap
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import nn

from shapetrace import load, record, recording, save
from shapetrace.recorder import attributes
from shapetrace.recorder.leaves import walk_leaves
from shapetrace.store import dump
from shapetrace.trace import ModuleCall, walk_calls


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        hidden = self.lin(x)
        return hidden.relu()


class Broken(Block):
    def forward(self, x):
        hidden = self.lin(x)
        wide = hidden.repeat(1, 3)
        return wide @ hidden


def hooks_on(model):
    return [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]


@pytest.mark.parametrize("model", [Block(), Broken(), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(5, 4))])
def test_hooks_and_trace_function_are_gone_afterwards(model):
    before = sys.gettrace()
    training = [module.training for module in model.modules()]
    breaks = not isinstance(model, Block) or isinstance(model, Broken)
    with pytest.raises(RuntimeError, match="cannot be multiplied") if breaks else nullcontext():
        record(model, torch.ones(2, 4))
    assert hooks_on(model) == [0] * len(training)
    assert [module.training for module in model.modules()] == training
    assert sys.gettrace() is before


def test_the_users_own_hooks_stay():
    model = Block()
    seen = []
    model.lin.register_forward_hook(lambda *_: seen.append("hook"))
    record(model, torch.ones(2, 4))
    assert (seen, hooks_on(model)) == (["hook"], [0, 1])


def test_an_exception_passes_through_and_the_trace_holds_what_ran():
    model = Broken()
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"), recording(model) as trace:
        model(torch.ones(2, 4))
    assert [step.module if hasattr(step, "module") else step.name for step in trace.calls[0].steps] == [
        *("x", "lin", "hidden", "wide"),
    ]
    assert str(trace.error) == "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x12 and 2x4)"


def test_a_module_whose_exception_is_caught_by_its_caller():
    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.broken = Broken()
            self.block = Block()

        def forward(self, x):
            try:
                y = self.broken(x)
            except RuntimeError:
                y = self.block(x)
            return y

    trace = record(Careful(), torch.ones(2, 4))
    assert [call.module for call in walk_calls(trace.calls[0])] == ["", "broken", "broken.lin", "block", "block.lin"]
    assert [getattr(step, "name", None) or step.module for step in trace.calls[0].steps] == [
        "x",
        "broken",
        "block",
        "y",
    ]


def test_the_output_is_the_same_with_and_without():
    model, x = Block(), torch.randn(2, 4)
    plain = model(x)
    with recording(model):
        recorded = model(x)
    assert torch.equal(plain, recorded)
    assert plain.requires_grad == recorded.requires_grad


def test_gradients_are_the_same_with_and_without():
    model, x = Block(), torch.randn(2, 4)
    model(x).sum().backward()
    plain = model.lin.weight.grad.clone()
    model.zero_grad()
    with recording(model):
        model(x).sum().backward()
    assert torch.equal(plain, model.lin.weight.grad)


def test_no_activation_stays_alive():
    alive = []

    class Watching(Block):
        def forward(self, x):
            hidden = self.lin(x)
            alive.append(weakref.ref(hidden))
            self.kept_shape = hidden.shape
            out = hidden.relu()
            alive.append(weakref.ref(out))
            return out

    model = Watching()
    with recording(model, stats=True) as trace:
        model(torch.ones(2, 4))
        gc.collect()
        inside = [each() is None for each in alive]
    assert inside == [True, True]
    assert len(trace.calls[0].steps) == 4


def test_the_model_goes_when_its_user_lets_it_go():
    model = Block()
    gone = weakref.ref(model)
    gc.disable()  # nothing of the recorder is to wait for a search for garbage, and the weights with it
    try:
        trace = record(model, torch.ones(2, 4))
        del model
        assert gone() is None
    finally:
        gc.enable()
    assert trace.model.class_name == "Block"


def test_a_forward_that_a_reload_gave_other_code():
    def forward(self, x):
        return x + 1

    def reloaded(self, hidden):
        return hidden + 1

    model = type("Small", (nn.Module,), {"forward": forward})()
    before = record(model, torch.ones(2))
    forward.__code__ = reloaded.__code__
    after = record(model, torch.ones(2))
    names = [[step.name for step in trace.calls[0].steps] for trace in (before, after)]
    assert names == [["x", "out"], ["hidden", "out"]]


def test_a_trace_function_that_asks_for_every_instruction_changes_nothing():
    class Steps(nn.Module):
        def forward(self, x):
            y = x + 1
            y = y
            z = y * 2
            z += 1
            return z

    def spy(frame, event, arg):
        frame.f_trace_opcodes = True
        return spy

    model = Steps()
    plain = record(model, torch.ones(2))
    before = sys.gettrace()
    sys.settrace(spy)
    try:
        stepped = record(model, torch.ones(2))
    finally:
        sys.settrace(before)
    assert stepped == plain
    names = [(step.name, step.in_place) for step in plain.calls[0].steps]
    assert names == [("x", False), ("y", False), ("y", False), ("z", False), ("z", True)]


def test_a_file_of_the_same_text_in_another_folder_is_another_file(tmp_path, monkeypatch):
    text = "from torch import nn\n\nclass Same(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
    sources = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        Path("same.py").write_text(text)
        scope = {"__name__": name}
        exec(compile(text, "same.py", "exec"), scope)  # known by a relative path, as of `python same.py`
        linecache.checkcache()
        sources.append(record(scope["Same"](), torch.ones(2)).calls[0].steps[-1].source)
    assert sources == [f"{tmp_path / name / 'same.py'}:5" for name in ("one", "two")]


def test_what_a_module_owns_is_described_once_for_all_its_calls():
    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(2, 2)

        def forward(self, x):
            return self.lin(self.lin(x))

    first, second = (step for step in record(Again(), torch.ones(1, 2)).calls[0].steps if isinstance(step, ModuleCall))
    assert first.parameters is second.parameters


def test_another_trace_function_goes_on_seeing_every_line():
    lines = []

    def spy(frame, event, arg):
        if (
            frame.f_code.co_name == "forward"
            and frame.f_code.co_filename == __file__
            and event in ("call", "line", "return")
        ):
            lines.append((event, frame.f_lineno - frame.f_code.co_firstlineno))
        return spy

    sys.settrace(spy)
    try:
        record(Block(), torch.ones(2, 4))
        after = sys.gettrace()
    finally:
        sys.settrace(None)
    assert after is spy
    assert lines == [("call", 0), ("line", 1), ("line", 2), ("return", 2)]


def test_a_trace_function_that_returns_none_stays():
    events = []

    def local(frame, event, arg):
        events.append(event)

    def spy(frame, event, arg):
        return local if frame.f_code.co_name == "forward" and frame.f_code.co_filename == __file__ else None

    def run():
        events.clear()
        sys.settrace(spy)
        try:
            yield
        finally:
            sys.settrace(None)

    seen = []
    for how in (lambda model, x: model(x), record):
        for _ in run():
            how(Block(), torch.ones(2, 4))
        seen.append(list(events))
    assert seen[0] == seen[1] == ["line", "line", "return"]


def test_no_code_of_the_users_is_run_by_looking():
    class Touchy(dict):
        def items(self):
            raise RuntimeError("read")

        def __getitem__(self, key):
            raise RuntimeError("read")

        def __getattr__(self, name):
            raise RuntimeError("read")

    class Toy(nn.Module):
        @property
        def sink(self):
            raise RuntimeError("read")

        @sink.setter
        def sink(self, value):
            pass

        def forward(self, x):
            touchy = Touchy()
            touchy["key"] = x
            touchy.attribute = x
            self.sink = x + 1
            info = os.stat("/")
            y = x + 1
            return y

    trace = record(Toy(), torch.ones(2))
    assert [step.name for step in trace.calls[0].steps] == ["x", "touchy.attribute", "value", "y"]


def test_a_dataclass_that_guards_its_fields_is_read_past_its_guard():
    @dataclass
    class Guarded:
        inner: torch.Tensor
        unset: torch.Tensor = field(init=False)

        def __getattribute__(self, name):
            if name in ("inner", "unset"):
                raise RuntimeError("read")
            return super().__getattribute__(name)

    class Toy(nn.Module):
        def forward(self, x):
            guarded = Guarded(x + 1)
            return x + 2

    assert [step.name for step in record(Toy(), torch.ones(2)).calls[0].steps] == ["x", "guarded.inner", "out"]


def test_no_source_is_read_for_a_parameter_that_it_does_not_name(tmp_path, monkeypatch):
    """A base class may be thousands of lines, and to read those takes longer than the model."""
    (tmp_path / "large_base.py").write_text(
        "from torch import nn\nclass Base(nn.Module):\n    def save(self):\n        self.path = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    base = importlib.import_module("large_base").Base
    read, read_source = [], attributes.read_source
    monkeypatch.setattr(attributes, "read_source", lambda name: read.append(name) or read_source(name))

    class Toy(base):
        @torch.no_grad()
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))  # (d_model)

        def forward(self, x):
            return x + 1

    (scale,) = record(Toy(), torch.ones(2)).calls[0].parameters
    assert (scale.name, scale.axes, {os.path.basename(name) for name in read}) == (
        *("scale", ("d_model",), {"test_recorder_manners.py"}),
    )


def test_a_large_container_is_not_walked_on_every_line():
    class Toy(nn.Module):
        def forward(self, x):
            table = {index: index for index in range(200_000)}
            cube = [[[0] * 50 for _ in range(50)] for _ in range(50)]
            for _ in range(50):
                y = x + 1
            return y

    assert len(list(walk_leaves("t", {index: torch.ones(1) for index in range(1000)}))) == 256
    assert list(walk_leaves("t", [[[[[torch.ones(1)]]]]])) == []
    assert [step.name for step in record(Toy(), torch.ones(2)).calls[0].steps] == ["x", *["y"] * 50]


def test_a_copy_made_inside_has_no_hooks_that_work():
    model = Block()
    with recording(model) as trace:
        copied = copy.deepcopy(model)
        pickled = pickle.loads(pickle.dumps(model))
        for other in (copied, pickled):
            other(torch.ones(2, 4))
        model(torch.ones(2, 4))
    assert [len(call.steps) for call in trace.calls] == [4]
    assert hooks_on(model) == [0, 0]


def test_only_the_thread_that_began_is_recorded():
    class Toy(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(4))

        def forward(self, x):
            with ThreadPoolExecutor(4) as pool:
                parts = list(pool.map(lambda block: block(x), self.blocks))
            return torch.stack(parts)

    trace = record(Toy(), torch.ones(2, 4))
    assert [getattr(step, "name", None) or step.module for step in trace.calls[0].steps] == [
        *("x", "parts.0", "parts.1", "parts.2", "parts.3", "out"),
    ]


def test_the_id_of_a_tensor_that_is_gone_may_come_again():
    class Toy(nn.Module):
        def forward(self, x):
            for _ in range(20):
                y = helper(x + 1)
                del y
            return None

    def helper(given):
        return given.sum()

    assert [step.name for step in record(Toy(), torch.ones(2)).calls[0].steps] == ["x", *["given", "y"] * 20]


def test_recordings_within_recordings():
    model = Block()
    with recording(model) as outer, recording(model) as inner:
        model(torch.ones(2, 4))
    assert [step.name for step in outer.calls[0].steps if hasattr(step, "name")] == ["x", "hidden", "out"]
    assert inner == outer


def test_a_debugger_that_starts_inside_is_left_in_place():
    def debugger(frame, event, arg):
        return None

    class Breaks(Block):
        def forward(self, x):
            sys.settrace(debugger)
            return self.lin(x)

    try:
        record(Breaks(), torch.ones(2, 4))
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(None)


def test_coverage_still_sees_every_line(tmp_path):
    """A real coverage run: the forward, a helper, and what runs after the recording."""
    program = """
    import torch
    from torch import nn
    import shapetrace

    def helper(x):
        doubled = x * 2
        return doubled

    class Toy(nn.Module):
        def forward(self, x):
            y = helper(x)
            if y.sum() < 0:
                y = y + 1
            return y

    def after():
        unseen = 1
        return unseen

    trace = shapetrace.record(Toy(), torch.ones(2))
    after()
    print([step.name for step in trace.calls[0].steps])
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))

    def run(*arguments):
        ran = subprocess.run(
            [sys.executable, "-m", "coverage", *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert run("run", "--include=program.py", "program.py") == "['x', 'doubled', 'y']\n"
    run("json", "-o", "coverage.json")
    measured = json.loads((tmp_path / "coverage.json").read_text())["files"]["program.py"]
    # Line 14, `y = y + 1`, never runs.
    assert measured["missing_lines"] == [14]


class Nested(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def test_a_model_as_deep_as_python_runs_it_is_traced_and_saved(tmp_path):
    limit = sys.getrecursionlimit()
    model = nn.Identity()
    with pytest.raises(RecursionError):
        for _ in range(limit):
            model(torch.ones(2))
            deepest, model = model, Nested(model)
    trace = record(deepest, torch.ones(2))
    save(trace, tmp_path / "deep.yaml")
    assert dump(load(tmp_path / "deep.yaml")) == dump(trace)
    assert sys.getrecursionlimit() == limit
