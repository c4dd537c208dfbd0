"""Run a model once and compare every shape comment in its source with what the line bound."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from shapetrace.packages import package_of
from shapetrace.recorder import recording
from shapetrace.recorder.crash.shadow import Outputs
from shapetrace.recorder.forwards import code_of
from shapetrace.shape_comments.explaining import Probe
from shapetrace.shape_comments.findings import ShapeComments
from shapetrace.shape_comments.judging import judge
from shapetrace.shape_comments.watching import Watcher, see_attributes
from shapetrace.trace import Trace

_AS_GIVEN = Probe()


def check(model: nn.Module, /, *inputs: Any, **named_inputs: Any) -> ShapeComments:
    """Call the model once with these inputs and tell of each shape comment in the source that ran whether it is true.

    >>> check(model, torch.randint(100, (3, 11))).summary
    '31 shape comments: 31 true, 0 false, 0 not reached'

    Choose sizes that are all different, the batch and the sequence among them: comments that take one axis for another
    of the same size are not found, and `notes` tells which. Raises whatever the model raises.
    """
    return check_call(model, inputs, named_inputs)[1]


def check_call(
    model: nn.Module, inputs: tuple[Any, ...], named_inputs: dict[str, Any], stats: bool = False
) -> tuple[Trace, ShapeComments]:
    """The same, and the trace of the call."""
    trace, watcher = watch_call(model, inputs, named_inputs, stats)
    return trace, conclude_call(model, watcher)


def watch_call(
    model: nn.Module, inputs: tuple[Any, ...], named_inputs: dict[str, Any], stats: bool = False
) -> tuple[Trace, Watcher]:
    """Call the model once; the trace, and what its claims are about. Raises whatever the model raises."""
    watchers: list[Watcher] = []

    def watch(outputs: Outputs) -> Watcher:
        watchers.append(Watcher(outputs))
        return watchers[0]

    with torch.no_grad(), recording(model, stats=stats, watch=watch) as trace:
        model(*inputs, **named_inputs)
    return trace, watchers[0]


def conclude_call(
    model: nn.Module, watcher: Watcher, probe: Probe = _AS_GIVEN, built: Watcher | None = None
) -> ShapeComments:
    """What a call tells of each claim. probe: the sizes that were chosen for it. built: what was seen of the model's
    construction.
    """
    homes = _homes_of(model)
    seen = [*(built.scopes if built else ()), *watcher.scopes]
    every = {**watcher.files, **(built.files if built else {})}
    files = {path: file for path, file in every.items() if package_of(path) in homes}
    scopes = [each for each in seen if each.file.path in files] + list(see_attributes(model, files))
    findings, notes = judge(list(files.values()), scopes, probe)
    return ShapeComments(tuple(findings), tuple(notes))


def _homes_of(model: nn.Module) -> set[str]:
    """Where the model's own code is: of installed packages only the one that it is of."""
    code = code_of(model.forward)
    return {"", package_of(code.co_filename)} if code is not None else {""}
