"""Derivatives of functions of tensors."""
