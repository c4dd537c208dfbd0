"""The layouts in which GPT-2's weights are kept, recognised by names and shapes, and converted to one another."""

from shapetrace.weights.layouts.conversion import convert, from_transformer_lens, to_transformer_lens
from shapetrace.weights.layouts.layout import Layout, Slot, find_layout
from shapetrace.weights.layouts.mapped import layout_from_map, read_map

__all__ = [
    "Layout",
    "Slot",
    "convert",
    "find_layout",
    "from_transformer_lens",
    "layout_from_map",
    "read_map",
    "to_transformer_lens",
]
