"""An exception that a forward raised, described with the tensors it came from."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

from torch import Tensor, nn

from shapetrace.axes import Axes, fit_axes
from shapetrace.meta import without_compiler
from shapetrace.recorder.attributes import statement_of_attribute
from shapetrace.recorder.crash.expressions import Expressions
from shapetrace.recorder.crash.hints import find_hint
from shapetrace.recorder.crash.operation import Operation, Term, call_of_module, named_tensors, read_operation
from shapetrace.recorder.crash.patterns import letters_of
from shapetrace.recorder.crash.shadow import Outputs
from shapetrace.recorder.crash.site import Site, find_frame_of, find_raising_module, find_site
from shapetrace.recorder.tensors import device_of, dtype_of, shape_of_parameter
from shapetrace.trace import Failure, ModuleCall, Operand, TensorRecord, write_shape


def describe_failure(
    error: BaseException,
    is_watched: Callable[[str], bool],
    paths: Mapping[int, str],
    calls: Sequence[ModuleCall],
    outputs: Outputs,
) -> Failure:
    """What was raised, by which statement of which module, and from what.

    paths: by the id of each module that an exception has left, under which name it ran. calls: of the root, as far as
    they came. An exception that another was the cause of is described by that one, which knows more.
    """
    module = find_raising_module(error)
    if module is None or id(module) not in paths:
        return Failure(type(error).__name__, message_of(error))
    chain = _find_calls(calls, paths[id(module)])
    with without_compiler():  # what was computed on the way is computed again, as shapes
        found = _describe(error, is_watched, paths[id(module)], module, chain, outputs)
    cause = error.__cause__
    if cause is None or find_raising_module(cause) is None:
        return found
    inner = describe_failure(cause, is_watched, paths, calls, outputs)
    return replace(inner, kind=found.kind, message=f"{found.message}\n  from {inner}")


def summarise(failure: Failure) -> str:
    """One line for who sees the traceback only: where, from what, and why; "" for an error of no module's."""
    if not (failure.module or failure.source or failure.operands):
        return ""
    where = f"in {failure.module or 'the root'}" + (f" at {failure.source}" if failure.source else "")
    told = ", ".join(f"{each.text} {each.note or write_shape(each.shape)}" for each in failure.operands)
    return "; ".join(part for part in (f"shapetrace: {where}", told, failure.hint.partition("\n")[0]) if part)


def message_of(error: BaseException) -> str:
    """What the exception says of itself, where it does."""
    try:
        return str(error)
    except Exception as another:
        return f"(its text cannot be had: {type(another).__name__})"


def _describe(
    error: BaseException,
    is_watched: Callable[[str], bool],
    path: str,
    module: nn.Module,
    calls: Sequence[ModuleCall],
    outputs: Outputs,
) -> Failure:
    kind, message = type(error).__name__, message_of(error)
    site = find_site(error, is_watched)
    frame = find_frame_of(error, module, below=site.frame if site else None)
    if site is None:
        if frame is None:
            return Failure(kind, message, path, operands=(*_inputs_of(calls[-1:]), *_parameters_of(module)))
        site = Site(frame, "", "", None)
    expressions = Expressions(site.frame, outputs)
    operation = read_operation(site, expressions)
    if operation.callee is not module and frame is not None and not isinstance(site.node, ast.Raise):
        operation = _read_library_call(frame, path, module)
    operands = tuple(dict.fromkeys(_operands(operation, site, expressions, calls)))
    return Failure(
        kind,
        message,
        path,
        site.source,
        site.statement,
        operands,
        find_hint(error, message, operation, site, expressions),
    )


def _find_calls(calls: Sequence[ModuleCall], path: str) -> list[ModuleCall]:
    """The calls under way when it was raised, from the last one of the root to the one of that path."""
    chain = list(calls[-1:])
    while chain and chain[-1].module != path and chain[-1].steps and isinstance(chain[-1].steps[-1], ModuleCall):
        chain.append(chain[-1].steps[-1])
    return chain


def _read_library_call(frame: FrameType, path: str, module: nn.Module) -> Operation:
    """The call of a module whose own code is a library's, such as a Linear in a Sequential, from its frame."""
    code = frame.f_code
    arguments = [(name, frame.f_locals.get(name)) for name in code.co_varnames[1 : code.co_argcount]]
    terms = tuple(Term(name, value) for name, value in arguments if isinstance(value, Tensor | tuple))
    return call_of_module(module, path, terms, {})


def _operands(operation: Operation, site: Site, expressions: Expressions, calls: Sequence[ModuleCall]) -> list[Operand]:
    found = []
    known = any(each.value is not None and not isinstance(each.value, str) for each in operation.terms)
    for term in operation.terms if known else named_tensors(site, expressions):
        value = term.value
        if isinstance(value, Tensor):
            shape = shape_of_parameter(value)
            axes = letters_of(operation, term) or _axes_of(term.text, shape, site, calls)
            found.append(Operand(term.text, shape, dtype_of(value), expressions.device_of(value), axes))
        elif isinstance(value, tuple | list) and any(isinstance(each, Tensor) for each in value):
            found.append(Operand(term.text, note=write_tuple(value)))
    return found


def write_tuple(value: Sequence[Any]) -> str:
    """`tuple of (1, 7, 64), (1, 4, 7, 7)`, also of tuples in it."""

    def write(item: Any) -> str:
        if isinstance(item, Tensor):
            return write_shape(shape_of_parameter(item))
        return f"({write_tuple(item)})" if isinstance(item, tuple | list) else type(item).__name__

    return f"{type(value).__name__} of {', '.join(map(write, value))}"


def _axes_of(text: str, shape: tuple[int, ...] | None, site: Site, calls: Sequence[ModuleCall]) -> Axes:
    """The names of the axes, as the source gave them where the tensor was bound."""
    for step in (step for call in reversed(calls) for step in reversed(call.steps)):
        if isinstance(step, TensorRecord) and step.name == text and step.shape == shape:
            return step.axes
    name = text.removeprefix("self.")
    owner = site.frame.f_locals.get("self")
    statement = statement_of_attribute(type(owner), name) if name != text else None
    return fit_axes(statement.readings, shape) if statement and shape is not None else ()


def _inputs_of(calls: Sequence[ModuleCall]) -> list[Operand]:
    steps = [step for call in calls for step in call.steps if isinstance(step, TensorRecord)]
    given = [step for step in steps if step.role == "input"]
    return [Operand(each.name, each.shape, each.dtype, each.device, each.axes) for each in given]


def _parameters_of(module: nn.Module) -> list[Operand]:
    own = [(name, each) for name, each in module.named_parameters(recurse=False) if not nn.parameter.is_lazy(each)]
    return [Operand(name, shape_of_parameter(each), dtype_of(each), device_of(each)) for name, each in own]
