"""Hypotheses: each family of edits in a file of its own."""

from __future__ import annotations

from collections.abc import Iterator

from shapetrace.divergence.edits.attention import edit_batch_axis, edit_heads, edit_projection, edit_roles
from shapetrace.divergence.edits.blocks import edit_layer, edit_run_order, edit_sub_layers
from shapetrace.divergence.edits.edit import Edit, Site
from shapetrace.divergence.edits.functions import edit_extra_function, edit_function_of_term
from shapetrace.divergence.edits.gains import edit_gain
from shapetrace.divergence.edits.gelu import edit_function, edit_some_function
from shapetrace.divergence.edits.masks import edit_divisor, edit_mask
from shapetrace.divergence.edits.norms import edit_extra_norm, edit_norm, edit_whole
from shapetrace.divergence.edits.operands import (
    edit_equal,
    edit_operands,
    edit_own_parameters,
    edit_own_tensors,
    edit_pairs,
    edit_split_order,
)
from shapetrace.divergence.edits.order import edit_order, edit_order_of_heads, edit_order_of_operands
from shapetrace.divergence.edits.precision import edit_precision
from shapetrace.divergence.edits.rotary import edit_rotary
from shapetrace.divergence.edits.slices import edit_fused_order, edit_slices
from shapetrace.divergence.edits.softmax import edit_late_mask, edit_softmax
from shapetrace.divergence.edits.tables import edit_rows
from shapetrace.divergence.edits.terms import edit_extra_terms, edit_factor, edit_terms

__all__ = ["Edit", "Site", "edits_at"]

_FAMILIES = (
    edit_mask,
    edit_rows,
    edit_function,
    edit_norm,
    edit_gain,
    edit_softmax,
    edit_late_mask,
    edit_divisor,
    edit_batch_axis,
    edit_heads,
    edit_roles,
    edit_projection,
    edit_run_order,
    edit_sub_layers,
    edit_terms,
    edit_operands,
    edit_pairs,
    edit_split_order,
    edit_own_parameters,
    edit_own_tensors,
    edit_layer,
    edit_whole,
    edit_order_of_operands,
    edit_order_of_heads,
    edit_equal,
    edit_factor,
    edit_extra_terms,
    edit_order,
    edit_slices,
    edit_fused_order,
    edit_rotary,
    edit_extra_norm,
    edit_extra_function,
    edit_function_of_term,
    edit_some_function,
    edit_precision,
)


def edits_at(site: Site) -> Iterator[Edit]:
    """Every edit of the site's definition."""
    for family in _FAMILIES:
        yield from family(site)
