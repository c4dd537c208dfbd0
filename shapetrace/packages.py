"""Which files belong to an installed package, and to which."""

from __future__ import annotations

import os
import re
import site
import sysconfig
from functools import cache, lru_cache
from importlib.util import find_spec

_OWN = os.path.dirname(__file__)
_INSTALLED = re.compile(r".*?[\\/](?:site|dist)-packages[\\/]")


@lru_cache(maxsize=4096)
def package_of(path: str) -> str:
    """The folder, or the file, of the installed package that the path is in; "" for code of the user's own.

    `/usr/lib/python3/dist-packages/transformers/activations.py` -> `/usr/lib/python3/dist-packages/transformers`.
    Shapetrace itself counts as installed, wherever it is.
    """
    if path.startswith(_OWN + os.sep):
        return _OWN
    found = _INSTALLED.match(path)
    around = found[0] if found else next((each for each in _folders() if path.startswith(each)), "")
    return around and around + re.split(r"[\\/]", path[len(around) :], maxsplit=1)[0]


@cache
def _folders() -> tuple[str, ...]:
    """Where packages are installed, and the standard library; the innermost folder first."""
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    torch = find_spec("torch")
    if torch is not None and torch.origin:
        folders.add(os.path.dirname(os.path.dirname(torch.origin)))  # what lies beside torch is installed
    return tuple(sorted((each + os.sep for each in folders), key=len, reverse=True))
