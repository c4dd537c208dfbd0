"""The recorder leaves the model, the interpreter and the memory as it found them."""

import gc
import json
import subprocess
import sys
import textwrap
import weakref
from contextlib import suppress

import pytest
import torch
from torch import nn

from shapetrace import record, recording
from shapetrace.trace import walk_calls


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
    with suppress(RuntimeError):
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
    assert trace.error == "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x12 and 2x4)"


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
