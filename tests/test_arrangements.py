"""One tensor's axes in the order of another's, and what a number is called."""

import math

import pytest
import torch

from shapetrace.divergence.arrangements import arrangements, at_last_position
from shapetrace.divergence.edits.numbers import name_of, recognise
from shapetrace.gpt2 import Config

Q = torch.arange(2 * 7 * 5 * 3).reshape(2, 7, 5, 3)  # batch, position, head, d_head


@pytest.mark.parametrize(
    "yours",
    [
        Q,
        Q.transpose(1, 2),
        Q.flatten(2),
        Q.transpose(1, 2).flatten(0, 1),
        Q.permute(3, 2, 1, 0),
        Q.flatten(),
        Q[..., None],
    ],
)
def test_the_same_numbers_are_found_however_the_axes_lie(yours):
    assert any(torch.equal(each, Q) for each in arrangements(yours, Q.shape))


@pytest.mark.parametrize(
    "yours", [Q.reshape(2, 5, 7, 3), Q.reshape(2, 7, 3, 5).permute(0, 3, 1, 2), Q.reshape(2, 7, 3, 5), Q.flip(2)]
)
def test_numbers_that_were_regrouped_are_not_the_same(yours):
    assert not any(torch.equal(each, Q) for each in arrangements(yours, Q.shape))


def test_what_is_alike_for_each_sequence_is_repeated():
    positions = torch.arange(14).reshape(7, 2)
    (found,) = arrangements(positions, (3, 7, 2))
    assert torch.equal(found, positions.expand(3, 7, 2))
    assert list(arrangements(torch.ones(7, 1), (3, 7, 2))) == []
    assert list(arrangements(torch.ones(2), (3, 7, 2))) == []


def test_the_last_position():
    assert torch.equal(at_last_position(Q, "b p n h"), Q[:, -1:])


CONFIG = Config(d_model=40, n_heads=5, d_head=8, n_layers=3, d_mlp=96)


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (math.sqrt(8), "sqrt(d_head)"),
        (1 / 40, "1 / d_model"),
        (math.sqrt(40 / 39), "sqrt(d_model / (d_model - 1))"),
        (math.sqrt(96), "sqrt(d_mlp)"),
        (5.0, "n_heads"),
        (0.5, ""),
        (7.77, ""),
        (0.0, ""),
    ],
)
def test_what_a_number_is_called(number, name):
    assert name_of(number, CONFIG) == name


def test_a_number_with_two_names():
    even = Config(d_model=64, n_heads=4, d_head=16, n_layers=2, d_mlp=256)
    assert name_of(4.0, even) == "sqrt(d_head) and n_heads"
    assert name_of(2.0, even, also_simple=True) == "sqrt(n_heads) and d_head**0.25"
    assert recognise(0.25, even) == "0.25 (that is 1 / sqrt(d_head) and 1 / n_heads)"


def test_a_number_with_its_name():
    assert recognise(math.sqrt(8), CONFIG) == "2.828 (that is sqrt(d_head))"
    assert recognise(3.0, CONFIG) == "3"
