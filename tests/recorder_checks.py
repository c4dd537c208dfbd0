"""Whether the recorder does right by a model: it changes nothing, loses nothing, and says the same each time."""

from __future__ import annotations

import io
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import transformers
from architectures import Architecture, Subject, in_short, make_subject
from rich.console import Console
from torch import Tensor, nn

from shapetrace import record, recording
from shapetrace.render.display import as_rich
from shapetrace.store import dump, parse
from shapetrace.trace import Trace, tensors_of, walk_calls, walk_modules


@dataclass(slots=True)
class Outcome:
    """What became of one architecture."""

    architecture: str
    class_name: str
    verdict: str = "does not run"  # without us; else traced or wrong, or lost with the process it was in
    reason: str = ""
    takes: str = ""  # the inputs' names
    reproducible: bool = True  # whether two runs without us give the same numbers
    tensors: int = 0
    modules: int = 0
    seconds_plain: float = 0
    seconds_traced: float = 0


def examine(architecture: Architecture) -> Outcome:
    """Build it, run it without us, run it with us, and compare."""
    outcome = Outcome(str(architecture), architecture.class_name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome.takes = getattr(transformers, architecture.class_name).main_input_name
            subject = make_subject(architecture)
        except Exception as error:
            outcome.reason = in_short(error)
            return outcome
        outcome.takes = " ".join(subject.inputs)
        try:
            faults = list(faults_of(subject, outcome))
        except Exception as error:
            faults = [f"{type(error).__name__}: {error}"]
        faults += [str(each.message) for each in caught if "shapetrace" in str(each.message)]
    outcome.reason = "; ".join(dict.fromkeys(faults))
    outcome.verdict = "wrong" if faults else "traced"
    return outcome


def faults_of(subject: Subject, outcome: Outcome) -> Iterator[str]:
    """What is not as it has to be; what was measured goes into the outcome."""
    model = subject.model
    plain = subject.run()
    start = time.perf_counter()
    again, called = subject.run(), classes_called(subject)
    outcome.seconds_plain = (time.perf_counter() - start) / 2
    outcome.reproducible = all_equal(plain, again)
    hooks, tracer, start = hooks_on(model), sys.gettrace(), time.perf_counter()
    with recording(model) as trace:
        traced = subject.run()
    outcome.seconds_traced = time.perf_counter() - start
    if outcome.reproducible and not all_equal(plain, traced):
        yield "the output is another than without the recorder"
    if [each.shape for each in plain] != [each.shape for each in traced]:
        yield "the shapes of the output are others than without the recorder"
    if hooks_on(model) != hooks:
        yield "hooks are left on the model"
    if sys.gettrace() is not tracer:
        yield "the trace function is another than before"
    outcome.tensors = sum(len(tensors_of(call)) for call in walk_modules(trace))
    outcome.modules = sum(1 for _ in walk_modules(trace))
    yield from faults_of_trace(trace, subject, called)


def faults_of_trace(trace: Trace, subject: Subject, called: list[str]) -> Iterator[str]:
    model = subject.model
    if trace.error:
        yield f"the trace has an error: {trace.error}"
    counted = sum(each.numel() for each in {id(each): each for each in model.parameters()}.values())
    if trace.model.parameters != counted:
        yield f"{trace.model.parameters} parameters in the trace, {counted} in the model"
    calls = [each for call in trace.calls for each in walk_calls(call)]
    if [each.class_name for each in calls] != called:
        yield f"{len(calls)} module calls in the trace, {len(called)} in the run, or in another order"
    if not any(each.role == "local" for call in calls for each in tensors_of(call)):
        yield "no tensor inside a forward has a name"
    shapes = {each.shape for each in tensors_of(trace.calls[0])}
    missing = [name for name, each in subject.outputs().items() if tuple(each.shape) not in shapes]
    if missing:
        yield f"not in the trace: the outputs {', '.join(missing)}"
    if parse(dump(trace)) != trace:
        yield "the trace is another after it was stored and read"
    with torch.no_grad():
        torch.manual_seed(0)
        if record(model, **subject.inputs) != trace:
            yield "a second trace is another than the first"
    Console(file=io.StringIO(), width=80).print(as_rich(trace))


def classes_called(subject: Subject) -> list[str]:
    """Of each module call of a run, in the order in which they begin, the class."""
    called: list[str] = []
    handles = [
        module.register_forward_pre_hook(lambda module, _: called.append(type(module).__name__))
        for module in subject.model.modules()
    ]
    subject.run()
    for handle in handles:
        handle.remove()
    return called


def all_equal(left: list[Tensor], right: list[Tensor]) -> bool:
    """The same numbers, bit by bit but for the payload of a NaN."""
    return len(left) == len(right) and all(map(_are_equal, left, right))


def _are_equal(left: Tensor, right: Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(left, right) or torch.allclose(left, right, rtol=0, atol=0, equal_nan=True)


def hooks_on(model: nn.Module) -> list[int]:
    return [
        sum(map(len, (each._forward_hooks, each._forward_pre_hooks, each._backward_hooks))) for each in model.modules()
    ]
