"""An exception that a forward raised, described with the tensors it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from torch import Tensor, nn

from shapetrace.axes import Axes, fit_axes
from shapetrace.recorder.attributes import statement_of_attribute
from shapetrace.recorder.crash.expressions import Expressions
from shapetrace.recorder.crash.hints import find_hint
from shapetrace.recorder.crash.operation import Operation, Term, call_of_module, read_operation
from shapetrace.recorder.crash.patterns import letters_of
from shapetrace.recorder.crash.site import Site, find_frame_of, find_site
from shapetrace.recorder.tensors import device_of, dtype_of, shape_of
from shapetrace.trace import Failure, ModuleCall, Operand, TensorRecord, write_shape


def describe_failure(
    error: BaseException,
    is_watched: Callable[[str], bool],
    path: str = "",
    module: nn.Module | None = None,
    calls: Sequence[ModuleCall] = (),
    outputs: Mapping[int, Any] | None = None,
) -> Failure:
    """What was raised, by which statement and from what.

    path, module: of the innermost module that was running, None where none was. calls: those under way, the innermost
    last. outputs: the shadows of what modules returned last.
    """
    kind, message = type(error).__name__, str(error)
    if module is None:
        return Failure(kind, message)
    site = find_site(error, is_watched)
    frame = find_frame_of(error, module, below=site.frame if site else None)
    if site is None:
        if frame is None:
            return Failure(kind, message, path, operands=(*_inputs_of(calls[-1:]), *_parameters_of(module)))
        site = Site(frame, "", "", None)
    expressions = Expressions(site.frame, outputs or {})
    operation = read_operation(site, expressions)
    if operation.callee is not module and frame is not None:
        operation = _read_library_call(frame, path, module)
    found = {term.text: _operand(term, operation, site, expressions, calls) for term in operation.terms}
    operands = tuple(operand for operand in found.values() if operand is not None)
    hint = find_hint(error, operation, site, expressions, module)
    return Failure(kind, message, path, site.source, site.statement, operands, hint)


def summarise(failure: Failure) -> str:
    """One line for who sees the traceback only: where, from what, and why."""
    where = f"in {failure.module or 'the root'}" + (f" at {failure.source}" if failure.source else "")
    told = ", ".join(f"{each.text} {each.note or write_shape(each.shape)}" for each in failure.operands)
    return "; ".join(part for part in (f"shapetrace: {where}", told, failure.hint.partition("\n")[0]) if part)


def _read_library_call(frame: FrameType, path: str, module: nn.Module) -> Operation:
    """The call of a module whose own code is a library's, such as a Linear in a Sequential, from its frame."""
    code = frame.f_code
    arguments = [(name, frame.f_locals.get(name)) for name in code.co_varnames[1 : code.co_argcount]]
    terms = tuple(Term(name, value) for name, value in arguments if isinstance(value, Tensor))
    return call_of_module(module, path, terms, {})


def _operand(
    term: Term, operation: Operation, site: Site, expressions: Expressions, calls: Sequence[ModuleCall]
) -> Operand | None:
    value = term.value
    if isinstance(value, Tensor):
        shape = shape_of(value)
        device = expressions.device_of(value)
        axes = letters_of(operation, term) or _axes_of(term.text, shape, site, calls)
        return Operand(term.text, shape, dtype_of(value), device, axes)
    if isinstance(value, tuple | list) and any(isinstance(each, Tensor) for each in value):
        inner = ", ".join(write_shape(shape_of(each)) if isinstance(each, Tensor) else str(each) for each in value)
        return Operand(term.text, note=f"{type(value).__name__} of {inner}")
    return None


def _axes_of(text: str, shape: tuple[int, ...], site: Site, calls: Sequence[ModuleCall]) -> Axes:
    """The names of the axes, as the source gave them where the tensor was bound."""
    for step in (step for call in reversed(calls) for step in reversed(call.steps)):
        if isinstance(step, TensorRecord) and step.name == text and step.shape == shape:
            return step.axes
    owner = site.frame.f_locals.get("self")
    name = text.removeprefix("self.")
    statement = statement_of_attribute(type(owner), name) if name != text else None
    return fit_axes(statement.readings, shape) if statement else ()


def _inputs_of(calls: Sequence[ModuleCall]) -> list[Operand]:
    steps = [step for call in calls for step in call.steps if isinstance(step, TensorRecord)]
    return [
        Operand(each.name, each.shape, each.dtype, each.device, each.axes) for each in steps if each.role == "input"
    ]


def _parameters_of(module: nn.Module) -> list[Operand]:
    own = [(name, each) for name, each in module.named_parameters(recurse=False) if not nn.parameter.is_lazy(each)]
    return [Operand(name, shape_of(each), dtype_of(each), device_of(each)) for name, each in own]
