"""Elementwise ops: what each of them makes of arrays or scalars, by the name of the op."""
