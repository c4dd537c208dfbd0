"""Run a transformer, write down every named tensor, find the first that is wrong, and say why.

>>> import shapetrace, torch
>>> trace = shapetrace.record(torch.nn.Linear(3, 2), torch.ones(5, 3))
>>> shapetrace.save(trace, "linear.yaml")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shapetrace.divergence import diff as diff
    from shapetrace.recorder import record as record
    from shapetrace.recorder import recording as recording
    from shapetrace.report import Report as Report
    from shapetrace.shape_comments import check as check

from shapetrace.errors import ShapetraceError
from shapetrace.store import load, save
from shapetrace.trace import ModuleCall, ParameterRecord, Shown, TensorRecord, Trace

__all__ = [
    "ModuleCall",
    "ParameterRecord",
    "Report",
    "ShapetraceError",
    "TensorRecord",
    "Trace",
    "check",
    "diff",
    "load",
    "record",
    "recording",
    "save",
]

# What needs torch, or is of a diff, is imported when it is first used: a trace is read and shown without it.
_LAZY = {
    "Report": "shapetrace.report",
    "check": "shapetrace.shape_comments",
    "diff": "shapetrace.divergence",
    "record": "shapetrace.recorder",
    "recording": "shapetrace.recorder",
}


def _as_rich(shown: Any) -> Any:
    from shapetrace.render.display import as_rich

    return as_rich(shown)


def _as_html(shown: Any) -> str:
    from shapetrace.render.display import as_html

    return as_html(shown)


# The data itself knows of no screen; here, where both halves meet, rich and notebooks are told how to show it.
for _name, _method in (("__rich__", _as_rich), ("_repr_html_", _as_html)):
    setattr(Shown, _name, _method)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("shapetrace")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module `shapetrace` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted(__all__)
