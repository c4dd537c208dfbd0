"""The layouts in which GPT-2's weights are kept, recognised by names and shapes, and converted to TransformerLens'."""

from shapetrace.weights.layouts.hugging_face import from_hugging_face, is_hugging_face, to_hugging_face
from shapetrace.weights.layouts.layout import Layout, Slot, find_layout
from shapetrace.weights.layouts.mapped import layout_from_map, read_map

__all__ = [
    "Layout",
    "Slot",
    "find_layout",
    "from_hugging_face",
    "is_hugging_face",
    "layout_from_map",
    "read_map",
    "to_hugging_face",
]
