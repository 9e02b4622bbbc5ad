"""Gradients: of functions whose result is one number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from shardwise.autodiff.transforms import vjp
from shardwise.errors import ArgumentError, DerivativeError, as_int, checked_function, checked_ints
from shardwise.prim.tensor import Tensor


def grad(fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return the function that gives the gradient of `fn`, whose result is one number.

    `argnums` says by which arguments (trees of tensors are fine); each gradient comes in the layout of its
    argument. With `has_aux`, `fn` returns a pair and the second is handed on.

    >>> from shardwise import DeviceMesh, P, shard, sum
    >>> x = shard(np.array([1.0, 2.0]), DeviceMesh((2,), ("x",)), P("x"))
    >>> grad(lambda x: sum(x * x))(x)
    Tensor([2., 4.], float64[2@x] on x=2)
    """
    both = value_and_grad(checked_function(fn, "grad"), argnums, has_aux)

    @wraps(fn)
    def gradient(*args: Any) -> Any:
        value, found = both(*args)
        return (found, value[1]) if has_aux else found

    return gradient


def value_and_grad(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """Return the function that gives both the result of `fn`, which is one number, and its gradient.

    >>> from shardwise import sum
    >>> value, gradient = value_and_grad(lambda x: sum(x * x))(np.array([1.0, 2.0]))
    >>> value.item(), gradient.numpy()
    (5.0, array([2., 4.]))
    """
    checked_function(fn, "value_and_grad")
    chosen = checked_ints(argnums, "argnums is an int or a tuple of ints")

    @wraps(fn)
    def both(*args: Any) -> tuple[Any, Any]:
        for k in chosen:
            if not -len(args) <= k < len(args):
                raise ArgumentError(f"argnums={argnums!r} names an argument that {len(args)} arguments do not have.")
        spots, aux = [k % len(args) for k in chosen], []

        def partly(*some: Any) -> Any:
            full = list(args)
            for k, value in zip(spots, some, strict=True):
                full[k] = value
            out = fn(*full)
            if has_aux:
                out, extra = out
                aux.append(extra)
            return out

        value, back = vjp(partly, *(args[k] for k in spots))
        if not isinstance(value, Tensor) or value.shape != ():
            shape = value.shape if isinstance(value, Tensor) else type(value).__name__
            raise DerivativeError(f"a gradient is that of one number, a 0-d tensor; the function returned {shape}.")
        found = back(np.ones((), value.dtype))
        gradients = found if as_int(argnums) is None else found[0]
        return ((value, aux[0]) if has_aux else value), gradients

    return both
