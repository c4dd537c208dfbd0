"""Traces as plain mappings and lists, and back with every field checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from shapetrace.errors import TraceFileError, suggest
from shapetrace.trace import ModuleCall, TensorRecord, Trace, tensors_of, walk_modules

FORMAT = "shapetrace/1"
_KEYS = {"class_name": "class", "kind": "type"}  # fields whose keys would be awkward words in a file
_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}

Row = Callable[[dict[str, Any]], dict[str, Any]]


def to_plain(trace: Trace, row: Row = dict) -> dict[str, Any]:
    """The trace as mappings; `row` wraps each record that belongs on one line of a file.

    Fields at their default are left out. A single call stands under `call`, several under `calls`.
    """
    plain = {"format": FORMAT, **_mapping(trace, row), "tensors": count_tensors(trace)}
    if len(trace.calls) == 1:
        plain["call"] = plain.pop("calls")[0]
    order = ("format", "model", "input", "predictions", "error", "tensors", "call", "calls", "uncalled")
    return {key: plain[key] for key in order if key in plain}


def count_tensors(trace: Trace) -> int:
    """The named tensors, parameters and buffers: a file tells their number, so that one that was cut off is noticed."""
    return sum(len(each.parameters) + len(each.buffers) + len(tensors_of(each)) for each in walk_modules(trace))


def from_plain(plain: Any) -> Trace:
    """The trace that `to_plain` made these mappings of; raises TraceFileError where a field is wrong."""
    if not isinstance(plain, dict) or "format" not in plain:
        raise TraceFileError("not a trace: it has no `format` line", "a trace is a YAML file that `--save` wrote")
    if plain["format"] != FORMAT:
        raise TraceFileError(
            f"its format is {plain['format']!r}; this version reads {FORMAT!r}",
            "record it again, or use the version of shapetrace that wrote it",
        )
    content = {key: value for key, value in plain.items() if key not in ("format", "tensors")}
    single = "call" in content and "calls" not in content
    if single:
        content["calls"] = [content.pop("call")]
    try:
        trace: Trace = _record(Trace, content, "")
    except TraceFileError as error:
        message = error.message.replace("calls[0]", "call", 1) if single else error.message
        raise TraceFileError(message, error.hint or "record it again with `--save`") from None
    _check(trace, plain)
    return trace


def _check(trace: Trace, plain: dict[str, Any]) -> None:
    """What no field tells by itself."""
    found = count_tensors(trace)
    if plain.get("tensors", found) != found:
        raise TraceFileError(
            f"it says that it has {plain['tensors']} tensors, and has {found}",
            "it was cut off or edited: record it again",
        )
    given = trace.input
    lengths = {len(given.ids), len(given.tokens), len(trace.predictions) or len(given.ids)} if given else {0}
    if len(lengths) > 1:
        raise TraceFileError("its ids, tokens and predictions are not equally many", "record it again with `--save`")


def _mapping(record: Any, row: Row) -> dict[str, Any]:
    found = {}
    for each in fields(record):
        value = getattr(record, each.name)
        if each.compare and value != each.default:
            found[_KEYS.get(each.name, each.name)] = _plain(value, row)
    return found


def _plain(value: Any, row: Row) -> Any:
    if isinstance(value, tuple):
        return [_plain(item, row) for item in value]
    if not is_dataclass(value):
        return value
    mapping = _mapping(value, row)
    return mapping if isinstance(value, ModuleCall) else row(mapping)


def _record(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise TraceFileError(f"{where or 'the file'} is {value!r}, not a mapping of fields")
    known = _fields(kind)
    prefix = f"{where}." if where else ""
    for key in value:
        if key not in known:
            raise TraceFileError(f"{prefix}{key} is no field of a trace", suggest(str(key), known))
    for key, field in known.items():
        if field.is_needed and key not in value:
            raise TraceFileError(f"{where or 'the file'} has no `{key}`")
    return kind(**{known[key].name: _read(known[key].kind, each, prefix + key) for key, each in value.items()})


def _read(kind: Any, value: Any, where: str) -> Any:
    if kind in _NAMES:
        return _read_scalar(kind, value, where)
    if get_origin(kind) is UnionType:
        if value is None and NoneType in get_args(kind):
            return None
        options = [each for each in get_args(kind) if each is not NoneType]
        is_call = isinstance(value, dict) and "module" in value
        return _read(options[0] if len(options) == 1 else ModuleCall if is_call else TensorRecord, value, where)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise TraceFileError(f"{where} is {value!r}, not a list")
        inner = get_args(kind)[0]
        return tuple(_read(inner, item, f"{where}[{index}]") for index, item in enumerate(value))
    return _record(kind, value, where)


def _read_scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise TraceFileError(f"{where} is {value!r}, not {_NAMES[kind]}")
    if kind is int and not -1 <= value < 2**63:
        raise TraceFileError(
            f"{where} is out of range", "a size or count is 0 or more, and -1 stands for a ragged axis"
        )
    return value


class _Field(NamedTuple):
    """What a key of a mapping stands for."""

    name: str
    kind: Any  # the type that its value has
    is_needed: bool


@cache
def _fields(kind: type) -> dict[str, _Field]:
    hints = get_type_hints(kind)
    return {
        _KEYS.get(each.name, each.name): _Field(each.name, hints[each.name], each.default is MISSING)
        for each in fields(kind)
        if each.compare
    }
