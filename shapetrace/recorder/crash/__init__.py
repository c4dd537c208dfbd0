"""A forward that raised: which statement, from which tensors, and why."""
