"""Byte buffers: memory that is sent and received as bytes, seen as arrays of either library."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch

from shardwise.engine.arrays import Array, is_torch, torch_dtype, torch_view
from shardwise.engine.pool import Pool
from shardwise.layout.layout import Shape

if TYPE_CHECKING:
    from torch import Tensor as Bytes  # one-dimensional, of uint8

BYTE = np.dtype(np.uint8)


class ByteBuffer:
    """Bytes that hold elements of one dtype, on the host (from a pool) or on an accelerator.

    >>> buffer = ByteBuffer(8, np.dtype("int16"), Pool())
    >>> buffer.view(0, (2, 2), np.zeros(0))[...] = [[1, 2], [3, 4]]
    >>> buffer.bytes.tolist(), buffer.part(2, 2).view(0, (2,), np.zeros(0))
    ([1, 0, 2, 0, 3, 0, 4, 0], array([3, 4], dtype=int16))
    """

    __slots__ = ("_host", "bytes", "dtype")

    def __init__(
        self, size: int, dtype: np.dtype, pool: Pool | None = None, device: torch.device | None = None
    ) -> None:
        """Take `size` bytes."""
        self.dtype, self._host = dtype, None
        if device is not None:
            self.bytes: Bytes = torch.empty(size, dtype=torch.uint8, device=device)
            return
        self._host = (pool or Pool()).empty((size,), BYTE)
        self.bytes = torch_view(self._host)

    def part(self, first: int, count: int) -> ByteBuffer:
        """Return the part that begins with element `first` and has `count` of them."""
        out, size = object.__new__(ByteBuffer), self.dtype.itemsize
        where = slice(first * size, (first + count) * size)
        out.dtype, out.bytes = self.dtype, self.bytes[where]
        out._host = None if self._host is None else self._host[where]
        return out

    def view(self, first: int, shape: Shape, like: Array) -> Array:
        """Return the elements from `first` on as an array of this shape, of the library of `like`."""
        size = self.dtype.itemsize
        stop = first + prod(shape)
        if is_torch(like):
            return self.bytes[first * size : stop * size].view(torch_dtype(self.dtype)).view(shape)
        assert self._host is not None, "NumPy arrays are on the host"
        return self._host[first * size : stop * size].view(self.dtype).reshape(shape)


def bytes_of(array: Array) -> Bytes | None:
    """Return an array as its bytes, in place, or None where they do not lie side by side or may not be written to.

    >>> bytes_of(np.array([[1, 2]], "int16")).tolist(), bytes_of(np.zeros((2, 2))[:, :1])
    ([1, 0, 2, 0], None)
    """
    if is_torch(array):
        return array.detach().reshape(-1).view(torch.uint8) if array.is_contiguous() else None
    if not array.flags.c_contiguous or not array.flags.writeable:
        return None
    return torch_view(array.reshape(-1).view(BYTE))
