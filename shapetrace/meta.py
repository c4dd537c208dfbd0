"""The meta device, where a tensor is its shape only, without the second that torch's compiler takes to load."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType

import torch

from shapetrace.initialising import WithoutInitialising

_MARK = "__dynamo_disable"


@contextmanager
def on_meta() -> Iterator[None]:
    """While the block runs, tensors are made on the meta device; `torch.nn.init` has nothing to fill there."""
    with without_compiler(), WithoutInitialising(only_on_meta=True), torch.device("meta"):
        yield


@contextmanager
def without_compiler() -> Iterator[None]:
    """While the block runs, what is computed on the meta device does not load torch's compiler, which takes 75 MB too.

    torch marks many of the functions that tell the shape of a result as not to be compiled. The first call of such a
    function loads the compiler to have it look away, and keeps what that returns in an attribute of the function; here
    that is the function itself. Afterwards it is gone again, for who compiles later. A torch that marks its functions
    in another way loads the compiler.
    """
    marked = [] if "torch._dynamo" in sys.modules else [each for each in _not_to_compile() if _MARK not in vars(each)]
    for function in marked:
        setattr(function, _MARK, function)
    try:
        yield
    finally:
        for function in marked:
            vars(function).pop(_MARK, None)


def _not_to_compile() -> list[FunctionType]:
    """The functions that torch has wrapped to mark them, which all share one code object."""
    mark = getattr(torch._compile, "_disable_dynamo", None)
    if mark is None:
        return []
    code = mark(lambda: None).__code__
    wrappers = [each for each in gc.get_referrers(code) if isinstance(each, FunctionType)]
    inside = [dict(zip(code.co_freevars, each.__closure__ or (), strict=False)) for each in wrappers]
    wrapped = [each["fn"].cell_contents for each in inside if "fn" in each]
    return [each for each in wrapped if isinstance(each, FunctionType)]
