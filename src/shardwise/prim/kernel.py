"""Kernels: what is done to one local array, of either library."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.engine.arrays import Array, is_torch
from shardwise.layout.layout import Shape
from shardwise.layout.placement import kind_of


def zeros(like: Array, shape: Shape) -> Array:
    """Return an array of zeros of the library, dtype and memory of another.

    >>> zeros(np.ones(2, "int8"), (1, 2))
    array([[0, 0]], dtype=int8)
    """
    return like.new_zeros(tuple(shape)) if is_torch(like) else np.zeros(shape, like.dtype)


def full(like: Array, shape: Shape, value: Any) -> Array:
    """Return an array of one value of the library, dtype and memory of another."""
    return like.new_full(tuple(shape), value) if is_torch(like) else np.full(shape, value, like.dtype)


def alike(operands: list[Any], dtype: np.dtype) -> list[Any]:
    """Return the operands of an elementwise kernel in one library, torch if any is in it; numbers take the dtype.

    >>> alike([np.ones(1, "bfloat16"), 2.0], np.dtype("bfloat16"))
    [array([1], dtype=bfloat16), 2]
    """
    torches = [x for x in operands if is_torch(x)]
    if torches:
        return [_torch_of(x, torches[0]) if isinstance(x, np.ndarray) else x for x in operands]
    if dtype.kind != "V" or kind_of(dtype) != "f":  # a number beside int4 need not be one
        return operands
    # NumPy lets Python numbers take the dtype of an array, but not if that is bfloat16.
    return [dtype.type(x) if isinstance(x, int | float) else x for x in operands]


def _torch_of(array: np.ndarray, like: Array) -> Array:
    import torch

    if array.dtype.kind == "V":  # bfloat16, which torch does not take from NumPy
        return torch.tensor(array.astype("float32"), device=like.device).to(getattr(torch, str(array.dtype)))
    return torch.tensor(array, device=like.device)
