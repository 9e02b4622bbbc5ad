"""Outlines: what is left of values that a derivative does not need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.caches import cache
from shardwise.engine.arrays import NUMPY, Array, is_torch
from shardwise.engine.local_shards import sample
from shardwise.prim.fixed import Fixed
from shardwise.prim.tensor import Tensor, lowest


class Unreadable(Tensor):
    """A tensor without arrays of its own: to read them is an error, which `_real` raises."""

    __slots__ = ()

    @Fixed
    def arrays(self) -> Sequence[Any]:
        """Never there."""
        return self._real()

    @Fixed
    def kept(self) -> Sequence[Any]:
        """Never there either."""
        return self._real()


class Outline(Unreadable):
    """The shape, dtype and layout of a value, and an empty array of its library, without the value.

    >>> from shardwise import asarray
    >>> x = Outline(asarray([1.0, 2.0]))
    >>> x, x.shape, x.blank.shape
    (Outline(float64[2]), (2,), (0,))
    """

    __slots__ = ("blank",)

    def __init__(self, x: Tensor) -> None:
        """Take what is to be known of a value."""
        self._shape, self._dtype, self._layout, self._engine = x.shape, x.dtype, x.layout, x.engine
        self._arrays, self._settled, self.blank = (), None, blank_of(x)

    def _real(self) -> Sequence[Any]:
        raise AssertionError(f"the derivative of a primitive reads {self!r}, which it says that it does not need.")

    def __repr__(self) -> str:
        return f"Outline({self.type_text})"


def blank_of(x: Tensor) -> Array:
    """Return an array of the library, dtype and device of a value, without its memory.

    >>> from shardwise import asarray
    >>> blank_of(asarray([1.0, 2.0]))
    array([], dtype=float64)
    """
    if isinstance(x, Outline):
        return x.blank
    array = sample(lowest(x).arrays)
    if is_torch(array):
        return array.new_empty(0)
    return _blank(array.dtype) if isinstance(array, NUMPY) else array


@cache(entries=256)
def _blank(dtype: np.dtype) -> Array:
    return np.empty(0, dtype)
