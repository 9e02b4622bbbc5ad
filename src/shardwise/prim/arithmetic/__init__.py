"""Arithmetic: primitives that compute, one file per family."""
