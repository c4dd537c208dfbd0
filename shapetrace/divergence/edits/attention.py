"""The whole of attention, as where it is fused: other heads, another axis, q, k and v in other places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations

import torch
from torch import Tensor

from shapetrace.divergence.definitions import Change, Definition, average, merge_heads, score
from shapetrace.divergence.edits.edit import Edit, Site, fixed

_ACROSS = "attention runs across the batch: axes 0 and 1, batch and position, are swapped."


def edit_batch_axis(site: Site) -> Iterator[Edit]:
    """Attention along the batch, as where a library wants positions first."""
    definition = site.definition
    if definition.function is average and definition.operands["pattern"].name not in site.matched:
        yield _fused_across(site)
    if definition.function is not score:
        return
    batch = site.values(definition.operands["q"].name).shape[0]
    visible = torch.ones(batch, batch, dtype=torch.bool).tril()
    changed = definition.with_settings(visible=visible)
    for role in ("q", "k"):
        changed = changed.with_operand(role, change=lambda each: each.transpose(0, 1))
    yield fixed("permutation", changed, _ACROSS, 2)


def _fused_across(site: Site) -> Edit:
    definition = site.definition
    scores = site.values.definitions[definition.name.replace("hook_z", "hook_attn_scores")]
    batch = site.values.shape(definition.name)[0]
    attend = attending(lambda each: each, torch.ones(batch, batch, dtype=torch.bool).tril())

    def across(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(*(each.transpose(0, 1) for each in (q, k, v))).transpose(0, 1)

    operands = {**scores.operands, "v": definition.operands["v"]}
    return fixed("permutation", Definition(definition.name, definition.axes, across, operands), _ACROSS, 2)


def edit_heads(site: Site) -> Iterator[Edit]:
    """Attention with another number of heads, of another width: its scores, or where they are not seen, its result."""
    definition = site.definition
    if definition.function not in (score, average):
        return
    owner = definition.name.rpartition("hook_")[0]
    scores, result = (site.values.definitions[f"{owner}hook_{each}"] for each in ("attn_scores", "z"))
    operands = {**scores.operands, "v": result.operands["v"]}
    heads, width = site.config.n_heads, site.config.n_heads * site.config.d_head
    for other in (each for each in range(1, width + 1) if width % each == 0 and each != heads):
        size = f"{other} head{'s' if other > 1 else ''} of {width // other}"
        words = f"attention runs with {size} in place of {heads} of {width // heads}."
        attend = attending(_regrouped(other), scores.settings["visible"])
        whole = replace(result, function=attend, operands=operands)
        if definition is result:
            yield fixed("permutation", whole, words, 2)
        else:
            yield fixed("permutation", _scored(scores, other, width // other), words, 2, besides=(whole,))


def _scored(scores: Definition, heads: int, width: int) -> Definition:
    change = _regrouped(heads)
    return scores.with_operand("q", change=change).with_operand("k", change=change).with_settings(factor=width**-0.5)


def edit_roles(site: Site) -> Iterator[Edit]:
    """q, k and v given to attention in another order."""
    definition = site.definition
    if definition.function is not average:
        return
    scores = site.values.definitions[definition.name.replace("hook_z", "hook_attn_scores")]
    right = {**scores.operands, "v": definition.operands["v"]}
    attend = attending(lambda each: each, scores.settings["visible"])
    for order in permutations("qkv"):
        if order[2] == "v":  # the scores tell of those
            continue
        operands = {role: right[taken] for role, taken in zip("qkv", order, strict=True)}
        words = "attention is given `{}`, `{}` and `{}` for `q`, `k` and `v`.".format(*order)
        yield fixed("wrong-operand", Definition(definition.name, definition.axes, attend, operands), words, 2)


def edit_projection(site: Site) -> Iterator[Edit]:
    """The heads' results side by side, and nothing made of them."""
    definition = site.definition
    z, width = definition.operands.get("z"), site.config.n_heads * site.config.d_head
    if definition.function is not merge_heads or z is None or width != site.config.d_model:
        return
    merged = Definition(definition.name, definition.axes, lambda z: z.flatten(2), {"z": z})
    words = "`z` goes on as it is: the output projection, `W_O` and `b_O`, is missing."
    yield fixed("missing-term", merged, words, 2, definition.operands["weight"].name)


def attending(change: Change, visible: Tensor) -> Callable[..., Tensor]:
    """The whole of attention, from q, k and v that were changed alike."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q_, k_, v_ = change(q), change(k), change(v)
        pattern = score(q_, k_, factor=q_.shape[-1] ** -0.5, visible=visible).softmax(-1)
        return average(pattern, v_).reshape(v.shape)

    return attend


def _regrouped(heads: int) -> Change:
    return lambda each: each.reshape(*each.shape[:2], heads, -1)
