"""Run any module once under forward hooks and a frame watcher, and write down what happens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from shapetrace.errors import ShapetraceError
from shapetrace.headroom import headroom
from shapetrace.recorder.calls import Call, CallStack, Observer
from shapetrace.recorder.crash.shadow import Outputs
from shapetrace.recorder.eager import running_eagerly
from shapetrace.recorder.forwards import Forward, describe_forward
from shapetrace.recorder.frames import Spectator
from shapetrace.recorder.notes import notes_of
from shapetrace.recorder.parameters import Owners, describe_model
from shapetrace.recorder.paths import ModulePaths, name_modules, name_parameters, without_replication
from shapetrace.recorder.placings import placings_of
from shapetrace.recorder.source import NO_STATEMENT, read_source
from shapetrace.recorder.user_code import user_code_of
from shapetrace.recorder.watcher import FrameWatcher, Unwatched
from shapetrace.trace import Failure, ModelRecord, ModuleCall, TensorRecord, Trace

_MOST_FRAMES = 2_000  # beyond Python's limit: who has raised that has seen how many calls the machine's stack holds


def record(model: nn.Module, /, *inputs: Any, **named_inputs: Any) -> Trace:
    """Call the model once with these inputs and return the trace of it.

    >>> trace = record(torch.nn.Linear(3, 2), torch.ones(5, 3))
    >>> [(step.name, step.shape) for step in trace.calls[0].steps]
    [('input', (5, 3)), ('out', (5, 2))]

    Raises whatever the model raises. The model, its hooks and the interpreter are left as they were found.
    """
    with recording(model) as trace:
        model(*inputs, **named_inputs)
    return trace


@contextmanager
def recording(
    model: nn.Module,
    *,
    name: str = "",
    weights: str = "",
    stats: bool = False,
    observe: Observer | None = None,
    watch: Callable[[Outputs], Spectator] | None = None,
) -> Iterator[Trace]:
    """Record each call of the model, or of a module in it, that the block makes; the trace is whole when it ends.

    name and weights go into the trace's first line. With stats each tensor's min, max, mean and rms are noted.
    Modules that torch.compile has compiled run as they are written. Only the thread that began is watched.
    `observe` is handed every tensor at the moment it gets its name, and has to copy what it wants to keep.
    `watch` makes a spectator of every frame and statement of user code, from what modules have returned.
    An exception passes through, with a note of where it was raised and from what; the trace then holds what ran until
    then, and `trace.error`.
    Raises ShapetraceError for what is no module.
    """
    if not isinstance(model, nn.Module):
        raise ShapetraceError(f"a recording takes a torch.nn.Module, not {type(model).__name__}")
    model = without_replication(model)
    trace = Trace(ModelRecord(name, type(model).__name__, 0, 0))  # filled when the block ends
    recorder = _Recorder(model, CallStack(stats, observe), watch)
    failure = None
    recorder.start()
    try:
        # A hook is one more call within each module's, and a model may stand at the limit.
        with running_eagerly(), headroom(min(sys.getrecursionlimit() // 2, _MOST_FRAMES)):
            yield trace
    except BaseException as raised:
        from shapetrace.recorder.crash.failure import summarise  # imported where something fails

        recorder.stop()
        failure = recorder.describe(raised)
        summary = summarise(failure)
        if summary:
            raised.add_note(summary)
        raise
    finally:
        recorder.stop()
        _fill(trace, replace(recorder.trace(name, weights), error=failure))


def _fill(trace: Trace, finished: Trace) -> None:
    """A trace never changes once it is whole; until then it is this function's to write."""
    for each in fields(Trace):
        object.__setattr__(trace, each.name, getattr(finished, each.name))


class _Recorder:
    """Hooks on every module of one model, feeding a CallStack."""

    def __init__(self, model: nn.Module, stack: CallStack, watch: Callable[[Outputs], Spectator] | None = None):
        self._model = model
        self._stack = stack
        self._modules: dict[str, nn.Module] = name_modules(model)
        self._paths = ModulePaths(self._modules)
        self._placings = placings_of(self._modules)
        self._is_watched = user_code_of(model)
        self._outputs = Outputs()
        self._read = cache(read_source)  # each file once
        spectator = watch(self._outputs) if watch is not None else None
        self._watcher = FrameWatcher(stack, self._is_watched, self._read, spectator)
        self._handles: list[RemovableHandle] = []
        self._forwards: dict[int, tuple[Any, Forward]] = {}  # by its id, which it keeps for as long as it is here
        self._left: dict[int, str] = {}  # by the id of each module that an exception may have left, its path

    def start(self) -> None:
        enter, leave = Unwatched(self._watcher, self._enter), Unwatched(self._watcher, self._leave)
        for module in self._modules.values():
            # By way of the class: a scripted module refuses hooks, and heeds them all the same where Python calls it.
            self._handles += (
                nn.Module.register_forward_pre_hook(module, enter, with_kwargs=True),
                nn.Module.register_forward_hook(module, leave, with_kwargs=True, always_call=True),
            )
        self._watcher.start()

    def stop(self) -> None:
        self._watcher.restore()
        for handle in self._handles:
            handle.remove()
        self._stack.end_all()
        self._watcher.stop()

    def describe(self, error: BaseException) -> Failure:
        """What was raised, in which module, by which statement and from what."""
        from shapetrace.recorder.crash.failure import describe_failure, message_of

        try:
            calls = [call.written() for call in self._stack.finished]
            return describe_failure(error, self._is_watched, self._left, calls, self._outputs)
        except Exception as mistake:  # ours, which must not stand in for the user's
            self._watcher.fail(mistake)
            return Failure(type(error).__name__, message_of(error))

    def trace(self, name: str, weights: str) -> Trace:
        """What was recorded, with what each module owns: described last, so that it costs the forward nothing."""
        parameters = name_parameters(self._model)
        notes = notes_of(self._model, name_modules(self._model), parameters)
        owners = Owners(parameters, self._placings)
        called: set[str] = set()
        calls = tuple([self._describe(call, owners, notes, called) for call in self._stack.finished])
        uncalled = [
            owners.describe(path, each, self._note(path, each, notes))
            for path, each in self._modules.items()
            if path not in called
        ]
        owning = tuple(each for each in uncalled if each.parameters or each.buffers)
        return Trace(describe_model(self._model, parameters, name, weights, self._placings.mesh), calls, owning)

    def _describe(self, call: Call, owners: Owners, notes: dict[int, str], called: set[str]) -> ModuleCall:
        """The call with those inside it, whose paths are added to `called`."""
        called.add(call.path)
        steps = [
            step if isinstance(step, TensorRecord) else self._describe(step, owners, notes, called)
            for step in call.steps
        ]
        note = self._note(call.path, call.module, notes)
        return owners.describe(call.path, call.module, note, tuple(steps), call.forward.source)

    def _note(self, path: str, module: nn.Module, notes: dict[int, str]) -> str:
        first, said = self._paths.first_path_of(module), notes.get(id(module), "")
        return said if path == first else "; ".join(filter(None, (f"same module as {first}", said)))

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        path = self._paths.path_of(module, self._stack.callers)
        forward = self._forward_of(module)
        self._stack.begin(module, path, forward)
        for name, value in forward.name_inputs(args, kwargs):
            statement = forward.arguments.get(name, NO_STATEMENT)
            self._stack.tell(name, value, "input", statement, statement.first)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Called when the forward is over, also by an exception: then without an output."""
        if output is None:
            self._left[id(module)] = self._stack.under_way[-1].path
        self._stack.end(module, output)
        self._outputs.keep(module, self._stack.caller, output)

    def _forward_of(self, module: nn.Module) -> Forward:
        forward: Any = module.forward
        forward = getattr(forward, "__func__", forward)
        known = self._forwards.get(id(forward))
        if known is None:
            known = self._forwards[id(forward)] = (forward, describe_forward(module, self._is_watched, self._read))
        return known[1]
