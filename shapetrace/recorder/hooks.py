"""Run any module once under forward hooks and a frame watcher, and write down what happens."""

from __future__ import annotations

import inspect
import os
import site
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

import shapetrace
from shapetrace.recorder.calls import NO_STATEMENT, CallStack, Observer
from shapetrace.recorder.frames import FrameWatcher
from shapetrace.recorder.leaves import walk_leaves
from shapetrace.recorder.parameters import describe_model, describe_module, first_names
from shapetrace.recorder.paths import ModulePaths
from shapetrace.recorder.source import Statement, read_source
from shapetrace.trace import ModelRecord, ModuleCall, Trace


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
) -> Iterator[Trace]:
    """Record each call of the model, or of a module in it, that the block makes; the trace is whole when it ends.

    name and weights go into the trace's first line. With stats each tensor's min, max, mean and rms are noted.
    `observe` is handed every tensor at the moment it gets its name, and has to copy what it wants to keep.
    An exception passes through; the trace then holds what ran until then, and `trace.error`.
    """
    trace = Trace(ModelRecord(name, type(model).__name__, 0, 0))  # filled when the block ends
    recorder = _Recorder(model, CallStack(stats, observe))
    error = ""
    recorder.start()
    try:
        yield trace
    except BaseException as raised:
        error = f"{type(raised).__name__}: {raised}"
        raise
    finally:
        recorder.stop()
        _fill(trace, replace(recorder.trace(name, weights), error=error))


def _fill(trace: Trace, finished: Trace) -> None:
    """A trace never changes once it is whole; until then it is this function's to write."""
    for each in fields(Trace):
        object.__setattr__(trace, each.name, getattr(finished, each.name))


class _Recorder:
    """Hooks on every module of one model, feeding a CallStack."""

    def __init__(self, model: nn.Module, stack: CallStack):
        self._model = model
        self._stack = stack
        self._paths = ModulePaths(model)
        self._first_names = first_names(model)
        self._is_watched = _user_code_of(model)
        self._watcher = FrameWatcher(stack, self._is_watched)
        self._handles: list[RemovableHandle] = []
        self._modules: dict[str, nn.Module] = dict(model.named_modules())
        self._signatures: dict[Any, tuple[list[str], str, dict[str, Statement]]] = {}
        self._unhooked: dict[str, str] = {}

    def start(self) -> None:
        for path, module in self._modules.items():
            try:
                self._handles.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
                self._handles.append(module.register_forward_hook(self._leave, with_kwargs=True, always_call=True))
            except RuntimeError:  # torch.jit.ScriptModule
                self._unhooked[path] = "scripted: takes no hooks"
        self._watcher.start()

    def stop(self) -> None:
        self._watcher.stop()
        for handle in self._handles:
            handle.remove()
        self._stack.end_all()

    def trace(self, name: str, weights: str) -> Trace:
        """What was recorded, with what each module owns: described last, so that it costs the forward nothing."""
        described = {path: describe_module(path, each, self._first_names) for path, each in self._modules.items()}
        called: set[str] = set()

        def complete(call: ModuleCall) -> ModuleCall:
            called.add(call.module)
            steps = tuple(complete(step) if isinstance(step, ModuleCall) else step for step in call.steps)
            return replace(described[call.module], steps=steps)

        calls = tuple(map(complete, self._stack.finished))
        uncalled = tuple(
            replace(each, note=self._unhooked.get(path, ""))
            for path, each in described.items()
            if path not in called and (each.parameters or each.buffers)
        )
        return Trace(describe_model(self._model, name, weights), calls, uncalled)

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        paused = self._watcher.pause()
        try:
            self._begin(module, args, kwargs)
        finally:
            if paused:
                self._watcher.resume()

    def _leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Called when the forward is over, also by an exception: then without an output."""
        paused = self._watcher.pause()
        try:
            self._stack.end(module, output)
        finally:
            if paused:
                self._watcher.resume()

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        path = self._paths.path_of(module, self._stack.callers)
        self._modules[path] = module  # a shared module has more names than `named_modules` gives
        self._stack.begin(module, path)
        names, rest, statements = self._signature_of(module)
        beyond = [f"{rest}.{index}" for index in range(len(args) - len(names))]
        for name, value in [*zip(names + beyond, args, strict=False), *kwargs.items()]:
            for leaf, tensor in walk_leaves(name, value):
                self._stack.bind(leaf, tensor, "input", statements.get(name, NO_STATEMENT))

    def _signature_of(self, module: nn.Module) -> tuple[list[str], str, dict[str, Statement]]:
        """The names of the forward's positional arguments, that of those beyond, and what its source says of each."""
        forward = getattr(module.forward, "__func__", module.forward)
        if forward not in self._signatures:
            names, rest = _positional_names(module.forward)
            self._signatures[forward] = (names, rest, self._argument_statements(forward))
        return self._signatures[forward]

    def _argument_statements(self, forward: Any) -> dict[str, Statement]:
        code = getattr(inspect.unwrap(forward), "__code__", None)
        if code is None or not self._is_watched(code.co_filename):
            return {}
        return read_source(code.co_filename).arguments_of(code)


def _positional_names(forward: Callable[..., Any]) -> tuple[list[str], str]:
    """`forward(self, x, mask=None, *rest)` -> ["x", "mask"], "rest"."""
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):  # written in C
        return [], "input"
    names = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    rest = [each.name for each in parameters if each.kind is each.VAR_POSITIONAL]
    return names, (rest or ["input"])[0]


def _user_code_of(model: nn.Module) -> Callable[[str], bool]:
    """Whether a file holds user code: it defines one of the model's modules, or belongs to no installed package."""
    torch_folder = os.path.dirname(torch.__file__)
    classes = {cls for module in model.modules() for cls in type(module).__mro__}
    forwards = [module.forward for module in model.modules()] + [vars(cls).get("forward") for cls in classes]
    codes = [getattr(inspect.unwrap(forward), "__code__", None) for forward in forwards if forward is not None]
    own = {code.co_filename for code in codes if code and not code.co_filename.startswith(torch_folder)}
    paths = sysconfig.get_paths()
    installed = (
        os.path.dirname(shapetrace.__file__) + os.sep,
        *{paths[key] + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib")},
        *(folder + os.sep for folder in (*site.getsitepackages(), site.getusersitepackages())),
    )

    def is_watched(filename: str) -> bool:
        return filename in own or not filename.startswith(("<", *installed))

    return is_watched
