"""Activations: elementwise functions of several steps, each computed in one go and kept once for its derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import pi, sqrt
from typing import Any

import numpy as np

from shardwise.engine.arrays import FLOAT32, cast, dtype_of, is_low, is_torch
from shardwise.prim.arithmetic.by_element import describe
from shardwise.prim.arithmetic.elementwise import add, logaddexp, multiply, subtract, tanh
from shardwise.prim.arithmetic.steps import pull, row_of_steps
from shardwise.prim.bind import in_one_go
from shardwise.prim.dispatch.decision import row_of_work
from shardwise.prim.face import public, rename
from shardwise.prim.primitive import OUT, Cotangents
from shardwise.prim.relayout import resolve
from shardwise.prim.rule import elementwise_rule
from shardwise.prim.tensor import Tensor, asarray, settle
from shardwise.prim.work import Work

Kernel = Callable[..., Any]
EFFORT = 4  # operations for each element, give or take


def widen_kernel(kernel: Kernel) -> Kernel:
    """Return a kernel of arrays with dims that computes small floats in float32, and rounds once.

    >>> widen_kernel(lambda a: a * a / a)(np.array(300.0, "float16"))
    np.float16(300.0)
    """

    @wraps(kernel)
    def run(*arrays: Any) -> Any:
        dtype = dtype_of(arrays[0])
        if not arrays[0].ndim and not is_torch(arrays[0]):  # NumPy makes numbers of them, which have no memory
            return run(*[a[None] for a in arrays])[0]
        return cast(kernel(*[cast(a, FLOAT32) for a in arrays]), dtype) if is_low(dtype) else kernel(*arrays)

    return run


def _activation(
    name: str,
    what: str,
    example: str,
    steps: Callable[[Tensor], Tensor],
    kernel: Kernel,
    slope: Kernel,
    slope_steps: Callable[[Tensor, Tensor], Tensor] | None = None,
    *,
    by_out: bool = False,
) -> Callable[[Any], Tensor]:
    # Declares the function, as other elementwise ones are.
    # `slope(ct, x)` is a cotangent, or a tangent, times the slope at x or, `by_out`, where the value is x.
    forward, back = widen_kernel(kernel), widen_kernel(slope)

    def work(x: Tensor) -> Work:
        return Work(name, forward, elementwise_rule((x.shape,)), [x], takes_lead=True)

    def work_back(ct: Tensor, x: Tensor) -> Work:
        rule = elementwise_rule((ct.shape, x.shape), "first")
        return Work(name, back, rule, [ct, settle(x)], takes_lead=True)

    def pull_steps(ct: Tensor, x: Tensor) -> Any:
        return pull(steps, ct, (resolve(x),), {})[0]

    times_slope = row_of_steps(f"{name}_slope", work_back, slope_steps or pull_steps, effort=EFFORT)

    def vjp(ct: Tensor, out: Tensor, x: Tensor) -> Cotangents:
        return (times_slope(ct, out if by_out else x),)

    def jvp(tangents: Sequence[Tensor], out: Tensor, x: Tensor) -> Tensor:
        return times_slope(tangents[0], out if by_out else x)

    def needs(i: int, j: int, operands: Any, params: Any) -> bool:
        return (j == OUT) == by_out

    row = row_of_work(name, work, vjp, jvp, needs=needs, effort=EFFORT)

    def function(x: Any, /) -> Tensor:
        x = asarray(x)
        return row(x) if in_one_go(x) else steps(x)

    function = rename(function, name)
    function.__doc__ = describe(name, what, example)
    return public(method=True)(function)


# -- steps: what a tracer is shown, and what complex numbers and integers take ---------------------------


def _sigmoid_steps(x: Tensor) -> Tensor:
    return multiply(0.5, add(tanh(multiply(0.5, x)), 1.0))


def _gelu_steps(x: Tensor) -> Tensor:
    inner = multiply(ROOT, add(x, multiply(CUBIC, multiply(x, multiply(x, x)))))
    return multiply(multiply(0.5, x), add(tanh(inner), 1.0))


# -- kernels ---------------------------------------------------------------------------------------------

ROOT, CUBIC = sqrt(2 / pi), 0.044715
FLAT = 10.0  # from here on the slope of gelu is 0 or 1 in any precision; before, its value is 0
FAR = 1000.0  # from here on those of silu are


def _sigmoid(a: Any) -> Any:
    if is_torch(a):
        return a.sigmoid()
    out = np.negative(a)
    with np.errstate(over="ignore"):  # one over infinity is right
        np.exp(out, out=out)
    out += 1
    return np.reciprocal(out, out=out)


def _sigmoid_slope(ct: Any, out: Any) -> Any:
    if is_torch(out):
        return _aten().sigmoid_backward(ct, out)
    slope = 1 - out
    slope *= out
    return _times(slope, ct)


def _silu(a: Any) -> Any:
    return _aten().silu(a.clamp(min=-FAR)) if is_torch(a) else _times(_sigmoid(a), np.maximum(a, -FAR))


def _silu_slope(ct: Any, a: Any) -> Any:
    if is_torch(a):
        return _aten().silu_backward(ct, a.clamp(-FAR, FAR))
    share, slope = _sigmoid(a), np.clip(a, -FAR, FAR)
    slope *= 1 - share
    slope += 1
    slope *= share
    return _times(slope, ct)


def _softplus(a: Any) -> Any:
    if is_torch(a):
        return a.logaddexp(a.new_zeros(()))
    out = np.abs(a)
    np.negative(out, out=out)
    np.log1p(np.exp(out, out=out), out=out)
    out += np.maximum(a, 0)
    return out


def _softplus_slope(ct: Any, a: Any) -> Any:
    return _times(_sigmoid(a), ct)


def _gelu(a: Any) -> Any:
    if is_torch(a):
        return _aten().gelu(a.clamp(min=-FLAT), approximate="tanh")
    out = np.clip(a, -FLAT, FLAT)
    share = _share(out)
    return _times(share, np.maximum(a, -FLAT, out=out))


def _gelu_slope(ct: Any, a: Any) -> Any:
    if is_torch(a):
        return _aten().gelu_backward(ct, a.clamp(-FLAT, FLAT), approximate="tanh")
    a = np.clip(a, -FLAT, FLAT)
    share, slope = _share(a), a * a
    slope *= 3 * CUBIC * ROOT
    slope += ROOT
    slope *= a
    slope *= share
    slope *= 1 - share
    slope *= 2  # as 1 - tanh² is 4 share (1 - share), and half of it counts
    slope += share
    return _times(slope, ct)


def _share(a: Any) -> Any:
    # How much of a value gelu lets through: (1 + tanh(u)) / 2, which is sigmoid(2 u), where nothing cancels.
    out = a * a
    out *= 2 * CUBIC * ROOT
    out += 2 * ROOT
    out *= a
    return _sigmoid(out)


def _times(out: Any, factor: Any) -> Any:
    # In the memory of the first, unless the second is of another dtype.
    if is_torch(out) or out.dtype != factor.dtype:
        return out * factor
    return np.multiply(out, factor, out=out)


def _aten() -> Any:
    import torch

    return torch.ops.aten


sigmoid = _activation(
    "sigmoid",
    "1 / (1 + exp(-x)), without overflow",
    "[0.0, 1000.0] -> [0.5, 1.0]",
    _sigmoid_steps,
    _sigmoid,
    _sigmoid_slope,
    lambda ct, out: multiply(ct, multiply(out, subtract(1.0, out))),
    by_out=True,
)
silu = _activation(
    "silu",
    "x sigmoid(x)",
    "[0.0, 1.0] -> [0.0, 0.7311]",
    lambda x: multiply(x, _sigmoid_steps(x)),
    _silu,
    _silu_slope,
)
softplus = _activation(
    "softplus",
    "log(1 + exp(x)), without overflow",
    "[0.0, 1000.0] -> [0.6931, 1000.0]",
    lambda x: logaddexp(x, 0.0),
    _softplus,
    _softplus_slope,
)
gelu = _activation(
    "gelu",
    "the Gaussian error linear unit, in its tanh form",
    "[-1.0, 0.0, 1.0] -> [-0.1588, 0.0, 0.8412]",
    _gelu_steps,
    _gelu,
    _gelu_slope,
)
