"""Operators of tensors: each is the function that Python knows by it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from shardwise.caches import cache
from shardwise.prim.fixed import Fixed


@cache(entries=256)
def function_named(name: str) -> Any:
    """Return the public function of this name."""
    # The functions are written in terms of tensors, so they are looked up when they are needed.
    return getattr(import_module("shardwise"), name)


@cache(entries=256)
def _indexed() -> Any:
    return import_module("shardwise.ops.indexing").indexed


def _bound(name: str, *operands: Any) -> Any:
    return function_named(name)(*operands)


class Operators:
    """What can be done to a tensor with operators.

    >>> from shardwise import asarray
    >>> (2 * asarray([1.0, 2.0]) @ asarray([3.0, 4.0])).item()
    22.0
    """

    __slots__ = ()

    # -- operators ---------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        return _bound("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return _bound("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return _bound("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _bound("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return _bound("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _bound("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _bound("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _bound("divide", other, self)

    def __neg__(self) -> Any:
        return _bound("negative", self)

    def __pos__(self) -> Any:
        return _bound("positive", self)

    def __abs__(self) -> Any:
        return _bound("abs", self)

    def __invert__(self) -> Any:
        return _bound("bitwise_invert", self)

    def __pow__(self, other: Any) -> Any:
        return _bound("pow", self, other)

    def __rpow__(self, other: Any) -> Any:
        return _bound("pow", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _bound("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _bound("floor_divide", other, self)

    def __mod__(self, other: Any) -> Any:
        return _bound("remainder", self, other)

    def __rmod__(self, other: Any) -> Any:
        return _bound("remainder", other, self)

    def __lt__(self, other: Any) -> Any:
        return _bound("less", self, other)

    def __le__(self, other: Any) -> Any:
        return _bound("less_equal", self, other)

    def __gt__(self, other: Any) -> Any:
        return _bound("greater", self, other)

    def __ge__(self, other: Any) -> Any:
        return _bound("greater_equal", self, other)

    def __and__(self, other: Any) -> Any:
        return _bound("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Any:
        return _bound("bitwise_and", other, self)

    def __or__(self, other: Any) -> Any:
        return _bound("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Any:
        return _bound("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Any:
        return _bound("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Any:
        return _bound("bitwise_xor", other, self)

    def __eq__(self, other: object) -> Any:
        return _bound("equal", self, other)

    def __ne__(self, other: object) -> Any:
        return _bound("not_equal", self, other)

    def __matmul__(self, other: Any) -> Any:
        return _bound("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _bound("matmul", other, self)

    def __lshift__(self, other: Any) -> Any:
        return _bound("bitwise_left_shift", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return _bound("bitwise_left_shift", other, self)

    def __rshift__(self, other: Any) -> Any:
        return _bound("bitwise_right_shift", self, other)

    def __rrshift__(self, other: Any) -> Any:
        return _bound("bitwise_right_shift", other, self)

    __hash__ = object.__hash__

    # -- elements ----------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        """Return the elements at an index: integers, slices, None, an ellipsis, arrays of integers."""
        return _indexed()(self, key)

    @Fixed
    def at(self) -> Any:
        """Updates that return a new tensor: `x.at[2:4].set(0.0)`, `x.at[indices].add(values)`."""
        return import_module("shardwise.ops.updates").Updates(self)
