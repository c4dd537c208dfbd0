"""Weights: read from a file, drawn from a seed, converted from one layout to another."""

from shapetrace.weights.layouts import convert
from shapetrace.weights.loading import read_weights

__all__ = ["convert", "read_weights"]
