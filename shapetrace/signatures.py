"""Signatures as messages write them."""

from __future__ import annotations

import inspect
import re

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))


def write_signature(signature: inspect.Signature) -> str:
    """`(config, depth=2, act=...)`: without what it returns, and with `...` for a default that is no plain literal.

    What else a default may be writes itself with the address that it has in this run, or over many lines.
    """
    parameters = [
        each if each.default is each.empty or _is_plain(each.default) else each.replace(default=...)
        for each in signature.parameters.values()
    ]
    written = str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    return re.sub(r"shapetrace_user_\d+\.", "", written.replace("Ellipsis", "..."))  # a lone file's module


def _is_plain(value: object) -> bool:
    if type(value) in (tuple, list):
        return all(map(_is_plain, value))  # type: ignore[call-overload] # it is one of the two
    return type(value) in _PLAIN
