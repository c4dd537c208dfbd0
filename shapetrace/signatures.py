"""Signatures as messages write them."""

from __future__ import annotations

import inspect
import re

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))


def write_signature(signature: inspect.Signature) -> str:
    """`(config, depth: int = 2, act=...)`: as source would have it, without what it returns.

    A default that is no plain literal is `...`, and an annotation that has no source is left out: such objects write
    themselves with the address that they have in this run, or over many lines.
    """
    parameters = [
        each.replace(
            default=each.default if each.default is each.empty or _is_plain(each.default) else ...,
            annotation=each.empty if "<" in inspect.formatannotation(each.annotation) else each.annotation,
        )
        for each in signature.parameters.values()
    ]
    written = str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    return re.sub(r"shapetrace_user_\d+\.", "", written.replace("Ellipsis", "..."))  # a lone file's module


def _is_plain(value: object) -> bool:
    if type(value) in (tuple, list):
        return all(map(_is_plain, value))  # type: ignore[call-overload] # it is one of the two
    return type(value) in _PLAIN
