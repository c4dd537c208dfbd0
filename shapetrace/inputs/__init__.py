"""What a model is called with: a text, token ids, or tensors that are described on the command line."""

from shapetrace.inputs.inputs import Asked, Inputs, gather_inputs

__all__ = ["Asked", "Inputs", "gather_inputs"]
