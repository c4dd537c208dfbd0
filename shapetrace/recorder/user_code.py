"""Which files hold user code: those that define a module of the model, and those of no installed package."""

from __future__ import annotations

import os
import site
import sysconfig
from collections.abc import Callable

import torch
from torch import nn

import shapetrace
from shapetrace.recorder.forwards import code_of


def user_code_of(model: nn.Module) -> Callable[[str], bool]:
    """Whether the frames of a file are to be watched when the model runs."""
    torch_folder = os.path.dirname(torch.__file__) + os.sep
    classes = {cls for module in model.modules() for cls in type(module).__mro__}
    forwards = [module.forward for module in model.modules()] + [vars(cls).get("forward") for cls in classes]
    codes = [code_of(forward) for forward in forwards if forward is not None]
    own = {code.co_filename for code in codes if code and not code.co_filename.startswith(torch_folder)}
    paths = sysconfig.get_paths()
    installed = (
        os.path.dirname(shapetrace.__file__) + os.sep,
        os.path.dirname(os.path.dirname(torch.__file__))
        + os.sep,  # wherever that is: what lies beside torch is installed
        *{paths[key] + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib")},
        *(folder + os.sep for folder in (*site.getsitepackages(), site.getusersitepackages())),
    )

    def is_watched(filename: str) -> bool:
        return filename in own or not filename.startswith(("<", *installed))

    return is_watched
