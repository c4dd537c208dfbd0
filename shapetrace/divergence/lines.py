"""At which statement of yours a tensor is to be looked at."""

from __future__ import annotations

from collections.abc import Mapping

from shapetrace.divergence.definitions import Definition
from shapetrace.divergence.observation import Observation, Observed

# A block is given its resid_pre; where a norm is a library's, what is inside of it has no statement of yours.
_MADE_OUTSIDE = ("resid_pre", "scale", "normalized", "out")

_STREAMS = ("hook_embed", "hook_pos_embed", "hook_resid_pre", "hook_resid_mid", "hook_resid_post")


def locate_use(
    run: Observation, seen: Observed, definition: Definition, scope: str, matches: Mapping[int, set[str]]
) -> Observed:
    """The tensor at the statement to look at: which makes it or, where it is right as another activation, uses it.

    matches: by the id of a value of yours, the activations that it matches.
    """
    right_as = matches.get(id(seen.value), set()) - {definition.name}
    if not right_as or (definition.tensor == "resid_post" and seen.record.role == "input"):
        return run.in_source(seen, scope)  # a block that was skipped is no mistake of what comes next
    if seen.record.role != "input":
        return seen if seen.record.source else seen.at_call()
    strays = definition.tensor == "resid_pre" and not any(name.endswith(_STREAMS) for name in right_as)
    # A term without the other one, or what belongs inside of a block: where the sum belongs, it got its name.
    if strays or right_as & {*definition.reads()}:
        caller = run.around(scope.rpartition(".")[0]) if definition.tensor in _MADE_OUTSIDE else scope
        bound = [each for each in run.tensors if each.value is seen.value and each.module == caller]
        named = [each for each in bound if each.record.role == "local"]
        if named:
            return named[-1]
    return seen.at_call()
