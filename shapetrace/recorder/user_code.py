"""Which files hold user code: those that define a module of the model, and those of no installed package."""

from __future__ import annotations

import os
from collections.abc import Callable

import einops
import torch
from torch import nn

from shapetrace.packages import package_of
from shapetrace.recorder.forwards import code_of


def user_code_of(model: nn.Module) -> Callable[[str], bool]:
    """Whether the frames of a file are to be watched when the model runs."""
    # A layer of torch's or einops' is what it does, and not how it is written.
    libraries = tuple(os.path.dirname(str(each.__file__)) + os.sep for each in (torch, einops))
    modules = list(model.modules())
    classes = {base for cls in {type(module) for module in modules} for base in cls.__mro__}
    forwards = [vars(cls).get("forward") for cls in classes]
    forwards += [module.forward for module in modules if "forward" in vars(module)]  # one that replaces its class's
    codes = [code_of(forward) for forward in forwards if forward is not None]
    own = {code.co_filename for code in codes if code and not code.co_filename.startswith(libraries)}

    def is_watched(filename: str) -> bool:
        return filename in own or not (filename.startswith("<") or package_of(filename))

    return is_watched
