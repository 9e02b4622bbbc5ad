"""Tracing: Python functions written against tensors, made into modules."""
