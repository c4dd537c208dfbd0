"""Whether what one rank has traced is what another one has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from shapetrace.report import Report
from shapetrace.trace import ModuleCall, ParameterRecord, TensorRecord, Trace, write_shape


def lines_of(trace: Trace) -> list[str]:
    """What the ranks of one model have in common, a line for each module call, parameter, buffer and tensor, in order.

    Local shapes are each rank's own, and so are values and devices.
    """
    lines = [line for call in (*trace.calls, *trace.uncalled) for line in _lines_of_call(call)]
    return lines + ([f"it raised {trace.error}"] if trace.error else [])


def lines_of_report(report: Report) -> list[str]:
    """What the ranks that compare one model have in common: which modules match, and what is wrong first, and why."""
    first = report.first_divergence
    told = [] if first is None else [f"first wrong: {first.row.yours or first.row.reference}, {first.cause.kind}"]
    logits = report.logits
    ends = [] if logits is None else [f"logits: {'match' if logits.ok else 'differ'}"]
    modules = [
        f"{each.module}, {each.mode}: {'matches' if each.difference.ok else 'differs'}" for each in report.modules
    ]
    return told + ends + modules


def find_disagreement(first: Sequence[str], other: Sequence[str]) -> tuple[str, str] | None:
    """The first lines of two ranks that are not the same, "" where one has no more; None where all are."""
    pairs = zip_longest(first, other, fillvalue="")
    return next(((one, two) for one, two in pairs if one != two), None)


def _lines_of_call(call: ModuleCall) -> Iterator[str]:
    yield f"a call of {call.module or 'the model'}, {call.class_name}"
    owned: tuple[TensorRecord | ParameterRecord, ...] = (*call.parameters, *call.buffers)
    for each in owned:
        yield _line(call.module, each)
    for step in call.steps:
        if isinstance(step, ModuleCall):
            yield from _lines_of_call(step)
        else:
            yield _line(call.module, step)


def _line(module: str, record: TensorRecord | ParameterRecord) -> str:
    """`blocks.0.attn.q, local (1, 7, 12, 64) float32 Shard(2)`."""
    name = f"{module}.{record.name}" if module else record.name
    role = record.role if isinstance(record, TensorRecord) else "parameter"
    special = (record.kind, "in place" * record.in_place) if isinstance(record, TensorRecord) else ()
    facts = (role, write_shape(record.shape), record.dtype, ", ".join(record.placements), *special)
    return f"{name}, {' '.join(filter(None, facts))}"
