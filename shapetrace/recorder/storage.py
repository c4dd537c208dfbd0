"""What an object stores, read without running a line of its class."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import MemberDescriptorType, SimpleNamespace
from typing import Any

# Classes that only say what others are, so that a class of the user's may inherit from them.
_ABSTRACT = ("abc", "typing", "typing_extensions", "collections.abc")
_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy"}


def holds_attributes(cls: type) -> bool:
    """Whether an object of the class is a holder of attributes, such as a user's own cache, and no library built-in."""
    if cls is SimpleNamespace:
        return True
    return all(map(_is_no_built_in, cls.__mro__)) and bool(cls.__dictoffset__ or _slots_of(cls))


def _is_no_built_in(cls: type) -> bool:
    module = str(cls.__module__)
    if cls is object or module in _ABSTRACT or module.startswith("torch.distributions"):
        return True
    return module.partition(".")[0] not in _LIBRARIES


def stored_attributes(value: Any) -> dict[str, Any]:
    """By name, what the object has in its slots and its `__dict__`; never what a property would make."""
    found = {}
    for name, slot in _slots_of(type(value)).items():
        try:
            found[name] = slot.__get__(value)
        except AttributeError:  # never set
            continue
    with suppress(AttributeError):  # an object of slots alone
        found.update(object.__getattribute__(value, "__dict__"))
    return found


def _slots_of(cls: type) -> dict[str, MemberDescriptorType]:
    return {
        name: each
        for base in reversed(cls.__mro__)
        for name, each in vars(base).items()
        if isinstance(each, MemberDescriptorType) and name != "__dict__"
    }
