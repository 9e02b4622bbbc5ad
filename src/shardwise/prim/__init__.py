"""Primitives: the tensor, the table of what can be done with it, and how that is differentiated."""
