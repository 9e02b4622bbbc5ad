"""Kernels: what is done to one local array, of either library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from shardwise.engine.arrays import (
    FLOAT32,
    FLOAT64,
    NUMPY,
    Array,
    cast,
    dtype_of,
    is_foreign,
    is_low,
    is_torch,
    room_for,
)
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


def transpose(array: Array, order: Sequence[int]) -> Array:
    """Return an array with its dims in another order."""
    return array.permute(order) if is_torch(array) else array.transpose(order)


def sum_over(array: Array, dims: int | tuple[int, ...]) -> Array:
    """Return the sum of an array over dims in its own dtype; floats of 16 bits or fewer are rounded once.

    >>> sum_over(np.ones(3000, "float16"), 0).item()
    3000.0
    """
    dtype = dtype_of(array)
    if is_low(dtype):
        return cast(wide_sum(array, dims), dtype)
    if is_torch(array):
        return array_namespace(array).sum(array, axis=dims, dtype=array.dtype)
    return np.add.reduce(array, axis=dims, dtype=dtype)


def wide_sum(array: Array, dims: int | tuple[int, ...]) -> Array:
    """Return the sum of an array of small floats, or of float32, over dims in float32.

    >>> wide_sum(np.full(70000, 1.0, "float16"), 0).item()
    70000.0
    """
    if is_torch(array):  # which adds up in a tree
        return array_namespace(array).sum(cast(array, FLOAT32), axis=dims)
    # NumPy adds rows one after the other, and converts as it goes, so that float64 costs nothing here.
    return np.add.reduce(array, axis=dims, dtype=FLOAT64).astype(FLOAT32)


MANY = 1 << 16  # products that libraries add up in float32, some at a time, without harm to 16 bits


def makes_products(arrays: Sequence[Array], count: int) -> bool:
    """Whether a library has sums of this many products of small floats that it rounds once: torch has, of 16 bits.

    >>> makes_products([np.ones(2, "float16")], 2)
    False
    """
    same = len({a.dtype for a in arrays}) == 1
    if not (same and all(is_torch(a) and a.element_size() == 2 for a in arrays)):
        return False
    return count <= MANY or arrays[0].is_cuda


def in_room(arrays: Sequence[Array], count: int) -> tuple[list[Array], np.dtype]:
    """Return arrays with small floats made wide enough to add up `count` of their products, and the dtype of the sums.

    >>> [a.dtype for a in in_room([np.ones(2, "float16"), np.ones(2, "float16")], 2)[0]]
    [dtype('float32'), dtype('float32')]
    """
    dtypes = [dtype_of(a) for a in arrays]
    result = np.result_type(*dtypes)
    room = room_for(result, count, MANY)
    return [cast(a, room) if is_low(dtype) else a for a, dtype in zip(arrays, dtypes, strict=True)], result


def alike(operands: list[Any], dtype: np.dtype) -> list[Any]:
    """Return the operands of an elementwise kernel in one library, torch if any is in it; numbers take the dtype.

    >>> alike([np.ones(1, "bfloat16"), 2.0], np.dtype("bfloat16"))
    [array([1], dtype=bfloat16), 2]
    """
    torches = [x for x in operands if is_torch(x)]
    if torches:
        return [_torch_of(x, torches[0]) if isinstance(x, NUMPY) else x for x in operands]
    if not is_foreign(dtype) or kind_of(dtype) != "f":  # a number beside int4 need not be one
        return operands
    # NumPy lets Python numbers take the dtype of an array, but not if that is bfloat16.
    return [dtype.type(x) if isinstance(x, int | float) else x for x in operands]


def of_one_library(kernel: Callable[..., Array], dtype: np.dtype) -> Callable[..., Array]:
    """Return a kernel of arrays of both libraries: it is given them in one, as `alike` brings them there.

    >>> of_one_library(max, np.dtype("bfloat16"))(1.0, 2.0)
    2
    """

    def run(*operands: Any) -> Array:
        return kernel(*alike(list(operands), dtype))

    return run


def _torch_of(array: np.ndarray, like: Array) -> Array:
    import torch

    if is_foreign(array.dtype):  # bfloat16, which torch does not take from NumPy
        return torch.tensor(array.astype("float32"), device=like.device).to(getattr(torch, str(array.dtype)))
    return torch.tensor(array, device=like.device)
