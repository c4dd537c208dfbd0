"""Which tensors a value holds, and by which paths."""

import collections
from abc import ABC
from collections import deque, namedtuple
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from shapetrace.recorder.leaves import walk_leaves

ONES = torch.ones(2, 3)
Pair = namedtuple("Pair", "first second")
Held = TypeVar("Held")


class Slotted:
    __slots__ = ("k", "never_set")

    def __init__(self, k):
        self.k = k


class General(ABC, Generic[Held]):
    def __init__(self, held):
        self.held = held


class Endless:
    def __init__(self, x):
        self.x = x
        self.me = self


class Listed(list):
    def __iter__(self):
        raise RuntimeError("an iterator was asked for")


@dataclass
class Record:
    k: Tensor
    rest: list = field(default_factory=list)

    @property
    def computed(self):
        raise RuntimeError("a property was run")


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        (Slotted(ONES), ["v.k"]),
        (General([ONES, {"a": ONES}]), ["v.held.0", "v.held.1.a"]),
        (Endless(ONES), ["v.x"]),
        (Listed([ONES]), ["v.0"]),
        (Record(ONES, [ONES]), ["v.k", "v.rest.0"]),
        (collections.UserDict(a=ONES), ["v.a"]),
        (collections.OrderedDict(a=(ONES, [ONES])), ["v.a.0", "v.a.1.0"]),
        (torch.optim.SGD([ONES.clone().requires_grad_()]), []),
        (nn.Linear(1, 1), []),
        (iter([ONES]), []),
        (map(abs, [ONES]), []),
        (Endless, []),
        (torch.Size([1]), []),
        (np.ones(3), []),
        (ValueError(ONES), []),
    ],
)
def test_what_values_hold_tensors(value, paths):
    assert [path for path, _ in walk_leaves("v", value)] == paths


def leaf():
    return st.builds(lambda: torch.ones(1))


nested_values = st.recursive(
    st.one_of(leaf(), st.none(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=4).map(deque),
        st.dictionaries(st.one_of(st.integers(0, 3), st.sampled_from(["0", "1", "a.b", "a", "b"])), inner, max_size=4),
        st.builds(Pair, inner, inner),
        st.builds(Record, leaf(), st.lists(inner, max_size=3)),
        st.builds(General, inner),
    ),
    max_leaves=30,
)


def tensors_in(value, depth):
    """What is to be found, told in another way: all tensors at most so many containers deep, in order."""
    if isinstance(value, Tensor):
        return [value]
    if depth == 0:
        return []
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list | tuple | deque):
        inner = value
    else:
        inner = vars(value).values() if isinstance(value, Record | General) else ()
    return [each for item in inner for each in tensors_in(item, depth - 1)]


@given(nested_values)
def test_each_tensor_once_in_order_by_a_path_of_its_own(value):
    found = list(walk_leaves("v", value))
    assert [id(tensor) for _, tensor in found] == [id(tensor) for tensor in tensors_in(value, depth=4)]
    assert len({path for path, _ in found}) == len(found)


@given(st.lists(st.integers(0, 300), max_size=4))
def test_no_more_is_looked_at_than_the_budget_allows(lengths):
    value = [[torch.ones(1) for _ in range(length)] for length in lengths]
    every = [tensor for part in value for tensor in part]
    found = [tensor for _, tensor in walk_leaves("v", value)]
    assert len(found) <= 256
    assert [id(each) for each in found] == [id(each) for each in every[: len(found)]]
    assert len(found) == len(every) or len(found) >= 256 - len(lengths)
