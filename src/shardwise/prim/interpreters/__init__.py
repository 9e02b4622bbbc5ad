"""Interpreters: what a primitive does to values that are watched, batched or local."""
