"""What a diff found: frozen, plain data, as JSON tells it and as the screen shows it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from shapetrace.parameters import is_within

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


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """One module's output beside the reference's."""

    module: str
    mode: str
    difference: Difference


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
    """Why two tensors differ: one word for programs, one sentence for a person."""

    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first tensor that is wrong."""

    row: TensorRow
    cause: Cause


@dataclass(frozen=True, slots=True)
class Prediction:
    """The likeliest next token at one position, on both sides."""

    token: str
    yours: str
    reference: str


@dataclass(frozen=True, slots=True)
class Report:
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

    @property
    def ok(self) -> bool:
        """Whether every parameter was found and every value agrees, the logits' above all."""
        modules_ok = all(row.difference.ok for row in self.modules)
        tensors_ok = all(row.difference.ok for row in self.tensors if row.difference is not None)
        keys_ok = not (self.keys.missing or self.keys.mismatched or self.keys.different)
        return modules_ok and tensors_ok and keys_ok and self.logits is not None and self.logits.ok


def narrow(report: Report, path: str) -> Report:
    """The report's rows of one module and what is in it."""

    def inside(row: ModuleRow | TensorRow) -> bool:
        # What a module returns is a hook of its block: it is the tensor's own module that counts.
        own = isinstance(row, TensorRow) and is_within(row.yours.rpartition(".")[0] or row.module, path)
        return own or is_within(row.module, path)

    modules, tensors = tuple(filter(inside, report.modules)), tuple(filter(inside, report.tensors))
    return replace(report, modules=modules, tensors=tensors)


def to_plain(report: Report) -> dict[str, Any]:
    """The report as mappings, for JSON. A difference that is no finite number is null there."""
    return {
        "reference": report.reference,
        "weights": report.weights,
        "state_dict": {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(report.keys).items()
        },
        "modules": [{"module": row.module, "mode": row.mode, **_figures(row.difference)} for row in report.modules],
        "tensors": [_tensor(row) for row in report.tensors],
        "logits": {"max_abs_diff": _finite(report.logits.max_abs_diff), "same_argmax": report.same_argmax}
        if report.logits
        else None,
        "first_divergence": _divergence(report.first_divergence) if report.first_divergence else None,
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
    row = divergence.row
    return {
        "reference": row.reference,
        "module": row.module,
        "tensor": row.tensor,
        "yours": row.yours or None,
        "line": row.line or None,
        "max_abs_diff": _finite(row.difference.max_abs_diff) if row.difference else None,
        "cause": asdict(divergence.cause),
    }


def _figures(difference: Difference) -> dict[str, Any]:
    return {
        "max_abs_diff": _finite(difference.max_abs_diff),
        "relative": _finite(difference.relative),
        "scale": _finite(difference.scale),
        "ok": difference.ok,
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
