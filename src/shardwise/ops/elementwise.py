"""Elementwise functions with parameters, with the names and meaning of the Python array API standard."""

from __future__ import annotations

from typing import Any

from shardwise.layout.placement import check_dtype
from shardwise.ops.placement_args import number_dtype
from shardwise.prim.arithmetic import elementwise as rows
from shardwise.prim.arithmetic.by_element import numbers_or_tensors
from shardwise.prim.face import public
from shardwise.prim.tensor import Tensor, asarray


@public()
def where(condition: Any, x1: Any, x2: Any, /) -> Tensor:
    """Return elements of `x1` where the condition holds, and of `x2` elsewhere.

    >>> where([True, False], 1.0, [5.0, 6.0]).numpy()
    array([1., 6.])
    """
    return rows.where(*numbers_or_tensors(asarray(condition) if isinstance(condition, bool) else condition, x1, x2))


@public(method=True)
def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    """Return `x` limited to [min, max].

    >>> clip([1.0, 5.0, 9.0], 2, 6).numpy()
    array([2., 5., 6.])
    """
    out = asarray(x)
    if min is not None:
        out = rows.maximum(*numbers_or_tensors(out, min))
    return out if max is None else rows.minimum(*numbers_or_tensors(out, max))


@public(method=True)
def astype(x: Any, dtype: Any, /) -> Tensor:
    """Return `x` converted to another dtype.

    >>> astype([1.7, -1.7], "int32").numpy()
    array([ 1, -1], dtype=int32)
    """
    return rows.astype(asarray(x), dtype=number_dtype(check_dtype(dtype), None, "astype"))
