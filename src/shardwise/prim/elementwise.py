"""Elementwise primitives: the local kernel on shards that are laid out alike."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.engine.arrays import dtype_of, is_torch
from shardwise.engine.storage import storage_of
from shardwise.layout.layout import Layout, Shape
from shardwise.prim.broadcast import broadcast, broadcast_shape, operand_layout, unbroadcast
from shardwise.prim.kernel import alike
from shardwise.prim.row import Row
from shardwise.prim.tensor import Tensor, moved


def elementwise(kernel: Callable[..., Any], *operands: Any) -> Tensor:
    """Return what a kernel makes of tensors and Python numbers, element by element.

    Operands are brought into one layout first, with nothing pending: that of the first operand that is split,
    preferably one of full shape.
    """
    tensors = [x for x in operands if isinstance(x, Tensor)]
    shape = broadcast_shape(*(x.shape for x in tensors))
    first = max(tensors, key=lambda x: (bool(x.layout.sharded_axes), not x.mesh.is_single, x.shape == shape))
    layout = _result_layout(first, shape)
    storage = storage_of(layout, shape)
    ready = [moved(x, operand_layout(layout, shape, x.shape)) if isinstance(x, Tensor) else x for x in operands]
    arrays = []
    for (device, *_), local in zip(storage.holders, storage.shapes, strict=True):
        given = [x.arrays[x.storage.index(device)] if isinstance(x, Tensor) else x for x in ready]
        made = first.engine.apply(kernel, alike(given, first.dtype), local)
        arrays.append(np.asarray(made) if isinstance(made, np.generic) else made)  # NumPy makes scalars of 0-d arrays
    return Tensor(arrays, layout, shape, dtype_of(arrays[0]), first.engine)


def _result_layout(first: Tensor, shape: Shape) -> Layout:
    base = first.layout.resolved().without_halo()
    if first.shape == shape:
        return base
    lead = len(shape) - first.ndim
    own = [c if n == full else None for c, n, full in zip(base.dims, first.shape, shape[lead:], strict=True)]
    return Layout(first.mesh, [*[None] * lead, *own])


def _add_vjp(ct: Tensor, out: Tensor, x: Any, y: Any) -> tuple[Tensor | None, ...]:
    return unbroadcast(ct, x), unbroadcast(ct, y)


def _add_jvp(tangents: Any, out: Tensor, x: Any, y: Any) -> Tensor | None:
    a, b = tangents
    return _as_out(b, out) if a is None else _as_out(a, out) if b is None else add(a, b)


def _as_out(tangent: Tensor, out: Tensor) -> Tensor:
    # The tangent of a term alone, broadcast as the term was.
    return tangent if tangent.shape == out.shape else broadcast(tangent, layout=out.layout, shape=out.shape)


def _subtract_vjp(ct: Tensor, out: Tensor, x: Any, y: Any) -> tuple[Tensor | None, ...]:
    return unbroadcast(ct, x), unbroadcast(negative(ct), y)


def _subtract_jvp(tangents: Any, out: Tensor, x: Any, y: Any) -> Tensor | None:
    a, b = tangents
    return _as_out(a, out) if b is None else _as_out(negative(b), out) if a is None else subtract(a, b)


def _multiply_vjp(ct: Tensor, out: Tensor, x: Any, y: Any) -> tuple[Tensor | None, ...]:
    return unbroadcast(multiply(ct, y), x), unbroadcast(multiply(ct, x), y)


def _multiply_jvp(tangents: Any, out: Tensor, x: Any, y: Any) -> Tensor | None:
    a, b = tangents
    left = None if a is None else multiply(a, y)
    right = None if b is None else multiply(x, b)
    return left if right is None else right if left is None else add(left, right)


def _divide_vjp(ct: Tensor, out: Tensor, x: Any, y: Any) -> tuple[Tensor | None, ...]:
    return unbroadcast(divide(ct, y), x), unbroadcast(negative(divide(multiply(ct, out), y)), y)


def _divide_jvp(tangents: Any, out: Tensor, x: Any, y: Any) -> Tensor | None:
    a, b = tangents
    left = None if a is None else divide(a, y)
    right = None if b is None else negative(divide(multiply(out, b), y))
    return left if right is None else right if left is None else add(left, right)


def _power_vjp(ct: Tensor, out: Tensor, x: Tensor, *, exponent: int) -> tuple[Tensor | None, ...]:
    slope = _slope(x, exponent)
    return (None if slope is None else multiply(ct, slope),)


def _power_jvp(tangents: Any, out: Tensor, x: Tensor, *, exponent: int) -> Tensor | None:
    slope = _slope(x, exponent)
    return None if slope is None else multiply(tangents[0], slope)


def _slope(x: Tensor, exponent: int) -> Tensor | None:
    # At exponent 0 the value is constant, also where x is 0.
    return None if exponent == 0 else multiply(exponent, power(x, exponent=exponent - 1))


def _as_float(array: Any, dtype: np.dtype) -> Any:
    return array.to(getattr(__import__("torch"), str(dtype))) if is_torch(array) else array.astype(dtype)


def _equal(x: Any, y: Any) -> Any:
    return _as_float(operator.eq(x, y), dtype_of(x))


def _none(ct: Tensor, out: Tensor, *operands: Any) -> tuple[None, ...]:
    return (None,) * len(operands)


add = Row("add", lambda x, y: elementwise(operator.add, x, y), _add_vjp, _add_jvp)
subtract = Row("subtract", lambda x, y: elementwise(operator.sub, x, y), _subtract_vjp, _subtract_jvp)
multiply = Row("multiply", lambda x, y: elementwise(operator.mul, x, y), _multiply_vjp, _multiply_jvp)
divide = Row("divide", lambda x, y: elementwise(operator.truediv, x, y), _divide_vjp, _divide_jvp)
negative = Row("negative", lambda x: elementwise(operator.neg, x), lambda ct, out, x: (negative(ct),), linear=True)
power = Row(
    "power",
    lambda x, *, exponent: elementwise(lambda a: a**exponent, x),
    _power_vjp,
    _power_jvp,
)
# 1 where two values are equal and 0 elsewhere, in their own dtype; a constant to every derivative.
equal_mask = Row("equal_mask", lambda x, y: elementwise(_equal, x, y), _none, lambda *_: None)
