"""How a text goes on, token by token: what the model computed, what it could have said, and what was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector in a few figures."""

    name: str  # `into lm_head`
    size: int
    norm: float
    first: tuple[float, ...]  # its first entries


@dataclass(frozen=True, slots=True)
class Logits:
    """A score for each token id, in a few figures; those that are -inf aside."""

    size: int
    least: float
    most: float
    mean: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that could have come next."""

    id: int
    word: str
    logit: float
    probability: float  # exp(logit / temperature) over the sum of all that are kept by top-k; greedy: at temperature 1


@dataclass(frozen=True, slots=True)
class Step:
    """One token more."""

    number: int  # from 1
    given: int  # how many tokens there were before it
    read: int  # how many of these, the last ones, the model was given: no more than its context
    hidden: Vector | None  # what the logits are computed from, at the last position; None where no module tells it
    logits: Logits
    candidates: tuple[Candidate, ...]  # the likeliest, first the most
    chosen: Candidate
    new_text: str  # what can be shown of it: a character only when it is whole
    text: str  # all so far
    ends: bool = False  # the token that ends a text


def to_plain(
    steps: Sequence[Step], model: str, weights: str, temperature: float, top_k: int | None, seed: int, inside: bool
) -> dict[str, Any]:
    """As JSON tells it; inside: what each step was made of too."""
    told = (
        {"steps": [asdict(each) for each in steps]} if inside else {"tokens": [asdict(each.chosen) for each in steps]}
    )
    return {
        **{"model": model, "weights": weights, "temperature": temperature, "top_k": top_k, "seed": seed},
        **{"text": steps[-1].text, "new_text": "".join(step.new_text for step in steps), **told},
    }
