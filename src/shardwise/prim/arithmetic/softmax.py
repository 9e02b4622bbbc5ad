"""Softmax and its logarithm along dims that every device has whole, in one go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.caches import cache
from shardwise.engine.arrays import FLOAT32, FLOAT64, cast, dtype_of, finfo, is_low, is_torch
from shardwise.prim.arithmetic.elementwise import exp, multiply, narrow, subtract, widen
from shardwise.prim.arithmetic.logsumexp import sum_over
from shardwise.prim.arithmetic.steps import Steps, row_of_steps
from shardwise.prim.dispatch.decision import row_of_work
from shardwise.prim.primitive import Cotangents, Primitive, needs_out
from shardwise.prim.rule import Rule
from shardwise.prim.tensor import Tensor
from shardwise.prim.views.shapes import expand
from shardwise.prim.work import Work

Dims = tuple[int, ...]
Kernel = Callable[..., Any]
EFFORT = 5  # operations for each element


@cache()
def softmax_rule(rank: int, dims: Dims, count: int = 1) -> Rule:
    """Return the rule of a function along dims, which must be whole; one of two operands is linear in the first.

    >>> sorted(softmax_rule(2, (1,)).whole)
    ['d1']
    """
    names = tuple(f"d{k}" for k in range(rank))
    linear = None if count == 1 else "first"
    return Rule((names,) * count, names, whole=frozenset(names[k] for k in dims), linear=linear)


def is_whole(x: Tensor, dims: Dims) -> bool:
    """Whether every device has all of these dims.

    >>> from shardwise import DeviceMesh, P, shard
    >>> x = shard(np.ones((4, 4)), DeviceMesh((2,), ("x",)), P("x"))
    >>> is_whole(x, (0,)), is_whole(x, (1,))
    (False, True)
    """
    return not any(x.layout.dims[k].axes for k in dims)


# -- kernels: `room` is the dtype in which NumPy adds up what was small floats -----------------------------


@cache(entries=256)
def _finite(dtype: np.dtype) -> tuple[Any, Any]:
    # A row without a finite maximum is moved by a finite number too, so that no difference of infinities arises.
    limits = finfo(dtype)
    return dtype.type(limits.min), np.array(limits.max, dtype)


def _shift(array: Any, dims: Dims) -> Any:
    least, most = _finite(array.dtype)
    top = np.maximum.reduce(array, axis=dims, keepdims=True, initial=least)
    return array - np.minimum(top, most, out=top)


def _softmax(array: Any, dims: Dims, room: np.dtype | None = None) -> Any:
    if is_torch(array):
        return array.softmax(*dims)
    out = _shift(array, dims)
    np.exp(out, out=out)
    out /= np.add.reduce(out, axis=dims, keepdims=True, dtype=room)
    return out


def _softmax_back(ct: Any, out: Any, dims: Dims, room: np.dtype | None = None) -> Any:
    # The matrix of derivatives is diag(y) - y y^T: symmetric, so tangents and cotangents go the same way.
    back = ct * out
    if is_torch(back):
        return out * (ct - back.sum(dims, keepdim=True))
    total = np.add.reduce(back, axis=dims, keepdims=True, dtype=room)
    np.subtract(ct, total, out=back, casting="same_kind")
    back *= out
    return back


def _log_softmax(array: Any, dims: Dims, room: np.dtype | None = None) -> Any:
    if is_torch(array):
        return array.log_softmax(*dims) if len(dims) == 1 else array - array.logsumexp(dims, keepdim=True)
    out = _shift(array, dims)
    out -= np.log(np.add.reduce(np.exp(out), axis=dims, keepdims=True, dtype=room))
    return out


def _log_softmax_back(ct: Any, out: Any, dims: Dims, room: np.dtype | None = None) -> Any:
    if is_torch(out):
        return ct - out.exp() * ct.sum(dims, keepdim=True)
    back = np.exp(out)
    back *= np.add.reduce(ct, axis=dims, keepdims=True, dtype=room)
    return np.subtract(ct, back, out=back) if back.dtype == ct.dtype else ct - back


@cache(entries=256)
def _along(kernel: Kernel, dims: Dims) -> Kernel:
    def run(*arrays: Any) -> Any:
        dtype = dtype_of(arrays[0])
        if 0 in arrays[0].shape:
            return arrays[0]
        if not is_low(dtype):
            return kernel(*arrays, dims)
        return cast(kernel(*[cast(a, FLOAT32) for a in arrays], dims, FLOAT64), dtype)

    return run


# -- rows ------------------------------------------------------------------------------------------------


def _back(name: str, kernel: Kernel, steps: Steps) -> Primitive:
    # The cotangent, given that of the result and the result: in one go, unless the former is in pieces along the dims.
    def work(ct: Tensor, out: Tensor, *, dims: Dims) -> Work | Tensor:
        if not is_whole(ct, dims):
            return steps(ct, out, dims=dims)
        return Work(name, _along(kernel, dims), softmax_rule(out.ndim, dims, 2), [ct, out])

    return row_of_steps(f"{name}_back", work, steps, effort=EFFORT)


def _softmax_steps(ct: Tensor, out: Tensor, *, dims: Dims) -> Tensor:
    wide, shares = widen(ct), widen(out)
    total = expand(sum_over(multiply(wide, shares), dims, out.dtype), at=dims)
    return narrow(multiply(shares, subtract(wide, total)), out.dtype)


def _log_softmax_steps(ct: Tensor, out: Tensor, *, dims: Dims) -> Tensor:
    wide = widen(ct)
    total = expand(sum_over(wide, dims, out.dtype), at=dims)
    return narrow(subtract(wide, multiply(exp(widen(out)), total)), out.dtype)


def _log_softmax_jvp(tangents: Any, out: Tensor, x: Tensor, *, dims: Dims) -> Tensor:
    wide = widen(tangents[0])
    total = expand(sum_over(multiply(wide, exp(widen(out))), dims, out.dtype), at=dims)
    return narrow(subtract(wide, total), out.dtype)


def _row(name: str, kernel: Kernel, back: Primitive, jvp: Kernel | None = None) -> Primitive:
    def work(x: Tensor, *, dims: Dims) -> Work:
        return Work(name, _along(kernel, dims), softmax_rule(x.ndim, dims), [x])

    def vjp(ct: Tensor, out: Tensor, x: Tensor, *, dims: Dims) -> Cotangents:
        return (back(ct, out, dims=dims),)

    def push(tangents: Sequence[Tensor], out: Tensor, x: Tensor, *, dims: Dims) -> Tensor:
        return back(tangents[0], out, dims=dims)

    return row_of_work(name, work, vjp, jvp or push, needs=needs_out, effort=EFFORT)


softmax_back = _back("softmax", _softmax_back, _softmax_steps)
log_softmax_back = _back("log_softmax", _log_softmax_back, _log_softmax_steps)
softmax = _row("softmax", _softmax, softmax_back)
log_softmax = _row("log_softmax", _log_softmax, log_softmax_back, _log_softmax_jvp)
