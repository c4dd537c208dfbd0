"""The axis language: shape comments, docstrings, einops patterns and jaxtyping strings to axis names."""

from shapetrace.axes.readings import (
    Axes,
    axes_in_annotation,
    axes_in_comment,
    axes_in_docstring,
    axes_in_pattern,
    fit_axes,
)

__all__ = ["Axes", "axes_in_annotation", "axes_in_comment", "axes_in_docstring", "axes_in_pattern", "fit_axes"]
