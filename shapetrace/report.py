"""What a diff found: frozen, plain data, as JSON tells it and as the screen shows it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from shapetrace.parameters import is_within
from shapetrace.trace import Shown

ISOLATED = "isolated"  # fed the reference's own input
END_TO_END = "end_to_end"  # from token ids only


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two tensors are apart: max|yours - reference|, that over max|reference|, and max|reference| itself.

    The first two are inf where one side has a nan or an infinity that the other has not, or where the shapes differ.
    """

    max_abs_diff: float
    relative: float
    scale: float
    ok: bool


@dataclass(frozen=True, slots=True)
class KeyReport:
    """How the reference's state_dict went into the model's."""

    loaded: int
    missing: tuple[str, ...] = ()  # parameters of yours that the reference has no tensor for
    unexpected: tuple[str, ...] = ()  # tensors of the reference that yours has no place for
    mismatched: tuple[
        str, ...
    ] = ()  # there on both sides, with different shapes, as `name: yours (2, 3), reference (3, 2)`
    buffers: tuple[str, ...] = ()  # constants of yours that the reference has none of: nothing is wrong with them
    different: tuple[str, ...] = ()  # parameters whose values are not the reference's
    tied: tuple[str, ...] = ()  # `lm_head.weight is tied to transformer.wte.weight`
    suggestions: tuple[str, ...] = ()  # for missing ones: `blocks.0.mlp.W_ln`: did you mean `W_in`?


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """One module's output beside the reference's."""

    module: str
    mode: str
    difference: Difference
    yours: str = ""  # what it is called in your model, where that is another name


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One activation of the reference and the tensor of yours beside it, from token ids only."""

    reference: str  # the hook's name: blocks.0.attn.hook_q
    yours: str  # blocks.0.attn.q; "" where no tensor of yours was found for it
    line: str  # attention.py:35
    difference: Difference | None  # None: nothing to compare with

    @property
    def module(self) -> str:
        return self.reference.rpartition(".")[0]

    @property
    def tensor(self) -> str:
        return self.reference.rpartition(".")[2].removeprefix("hook_")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why two tensors differ: one word for programs, one sentence for a person.

    kind: scale, missing-term, extra-term, permutation, shift, mask, nonlinearity, normalisation, axis, wrong-operand,
    random, precision, weights or unknown.
    """

    kind: str
    detail: str
    number: float | None = None  # the factor, the eps or whatever number explains it
    tensor: str | None = None  # the reference's tensor that is missing, too many or read instead
    at: str | None = None  # the activation that goes wrong, where yours shows only what is computed from it


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a tensor, on both sides."""

    index: tuple[int, ...]  # in the reference's axes
    yours: float
    reference: float


@dataclass(frozen=True, slots=True)
class Pair:
    """One tensor of yours beside the activation it stands for, where it stands for one."""

    row: TensorRow  # without a name of the reference's where yours stands for none of its activations
    source: str = ""  # the statement of yours that makes it
    shape: tuple[int, ...] = ()  # of yours
    reference_shape: tuple[int, ...] = ()
    axes: str = ""  # of the reference: b n q k
    first: tuple[Entry, ...] = ()
    worst: tuple[Entry, ...] = ()
    stage: str = ""  # the step towards the activation at which both sides are shown: before the mask
    factor: float | None = None  # yours is that many times the reference, and nothing else is different


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first tensor that is wrong."""

    row: TensorRow
    cause: Cause
    source: str = ""  # the statement of yours that makes it
    shape: tuple[int, ...] = ()  # of yours
    reference_shape: tuple[int, ...] = ()
    axes: str = ""  # of the reference: b n q k
    first: tuple[Entry, ...] = ()
    worst: tuple[Entry, ...] = ()
    stage: str = ""  # the step towards the activation at which both sides are shown: before the mask


@dataclass(frozen=True, slots=True)
class Prediction:
    """The likeliest next token at one position, on both sides."""

    token: str
    yours: str
    reference: str


@dataclass(frozen=True, slots=True)
class Report(Shown):
    """A model beside the reference."""

    reference: str  # transformer_lens 4.3.0
    weights: str
    keys: KeyReport
    modules: tuple[ModuleRow, ...] = ()
    tensors: tuple[TensorRow, ...] = ()
    logits: Difference | None = None
    same_argmax: bool = False
    first_divergence: Divergence | None = None
    remarks: tuple[str, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    layout: str = ""  # TransformerLens, Hugging Face, nanoGPT, ...
    asked: Pair | None = None  # a tensor that was asked for
    dtype: str = "float32"
    # Relative differences up to this are rounding: the strictest limit of any tensor, and the widest.
    tolerance: tuple[float, float] = (0.0, 0.0)

    @property
    def ok(self) -> bool:
        """Whether every parameter was found and the logits agree: what differs before them and heals is a remark."""
        keys_ok = not (self.keys.missing or self.keys.mismatched or self.keys.different)
        return self.first_divergence is None and keys_ok and self.logits is not None and self.logits.ok


def narrow(report: Report, path: str) -> Report:
    """The report's rows of one module and what is in it."""

    def inside(row: ModuleRow | TensorRow) -> bool:
        # What a module returns is a hook of its block: it is the tensor's own module that counts.
        own = row.yours.rpartition(".")[0] if isinstance(row, TensorRow) else row.yours
        return is_within(own or row.module, path) or is_within(row.module, path)

    modules, tensors = tuple(filter(inside, report.modules)), tuple(filter(inside, report.tensors))
    return replace(report, modules=modules, tensors=tensors)


def to_plain(report: Report) -> dict[str, Any]:
    """The report as mappings, for JSON. A difference that is no finite number is null there."""
    return {
        "reference": report.reference,
        "weights": report.weights,
        "layout": report.layout or None,
        "dtype": report.dtype,
        "tolerance": list(report.tolerance),
        "state_dict": {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(report.keys).items()
        },
        "modules": [{"module": row.module, "mode": row.mode, **_figures(row.difference)} for row in report.modules],
        "tensors": [_tensor(row) for row in report.tensors],
        "logits": {"max_abs_diff": _finite(report.logits.max_abs_diff), "same_argmax": report.same_argmax}
        if report.logits
        else None,
        "first_divergence": _divergence(report.first_divergence) if report.first_divergence else None,
        **({"asked": _pair(report.asked) | {"factor": report.asked.factor}} if report.asked else {}),
        "remarks": list(report.remarks),
        "predictions": [asdict(each) for each in report.predictions],
        "ok": report.ok,
    }


def _tensor(row: TensorRow) -> dict[str, Any]:
    names = {"reference": row.reference, "module": row.module, "tensor": row.tensor, "yours": row.yours or None}
    figures = _figures(row.difference) if row.difference else {"max_abs_diff": None, "relative": None, "ok": None}
    figures.pop("scale", None)
    return names | figures


def _divergence(divergence: Divergence) -> dict[str, Any]:
    cause = {key: value for key, value in asdict(divergence.cause).items() if value is not None}
    return {**_pair(divergence), "cause": cause}


def _pair(pair: Pair | Divergence) -> dict[str, Any]:
    row, difference = pair.row, pair.row.difference
    module, _, tensor = row.yours.rpartition(".")
    file, _, line = row.line.rpartition(":")
    return {
        "reference": row.reference,
        "module": row.module,
        "tensor": row.tensor,
        "yours": {
            "module": module,
            "tensor": tensor,
            "file": file or None,
            "line": int(line) if line.isdigit() else None,
            "source": pair.source or None,
            "shape": list(pair.shape),
        }
        if row.yours
        else None,
        "stage": pair.stage or None,
        "axes": pair.axes,
        "shape": list(pair.reference_shape),
        "max_abs_diff": _finite(difference.max_abs_diff) if difference else None,
        "relative": _finite(difference.relative) if difference else None,
        "scale": difference.scale if difference else None,
        "first": [_entry(each) for each in pair.first],
        "worst": [_entry(each) for each in pair.worst],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {"index": list(entry.index), "yours": _finite(entry.yours), "reference": _finite(entry.reference)}


def _figures(difference: Difference) -> dict[str, Any]:
    return {
        "max_abs_diff": _finite(difference.max_abs_diff),
        "relative": _finite(difference.relative),
        "scale": _finite(difference.scale),
        "ok": difference.ok,
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
