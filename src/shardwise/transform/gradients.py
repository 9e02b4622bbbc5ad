"""Gradients: of functions whose result is one number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

import numpy as np
import optree

from shardwise.errors import DerivativeError, check_function
from shardwise.layout.layout import Layout
from shardwise.prim.bind import below
from shardwise.prim.face import public
from shardwise.prim.relayout import relayout
from shardwise.prim.tensor import Tensor, settle
from shardwise.transform.derivatives import check_argnums, differentiate, fix_others, unpack

Rest = ParamSpec("Rest")
First = TypeVar("First", bound=Any)
Second = TypeVar("Second", bound=Any)
Result = TypeVar("Result")
Aux = TypeVar("Aux")


@overload
def grad(
    fn: Callable[Concatenate[First, Rest], Any], argnums: Literal[0] = 0, has_aux: Literal[False] = False
) -> Callable[..., First]: ...
@overload
def grad(
    fn: Callable[Concatenate[First, Second, Rest], Any], argnums: Literal[1], has_aux: Literal[False] = False
) -> Callable[..., Second]: ...
@overload
def grad(
    fn: Callable[Concatenate[First, Rest], tuple[Any, Aux]], argnums: Literal[0] = 0, *, has_aux: Literal[True]
) -> Callable[..., tuple[First, Aux]]: ...
@overload
def grad(
    fn: Callable[Rest, Any], argnums: Sequence[int], has_aux: Literal[False] = False
) -> Callable[..., tuple[Any, ...]]: ...
@overload
def grad(fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]: ...
@public()
def grad(fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return the function that gives the gradient of `fn`, whose result is one number.

    `argnums` says by which arguments (trees of tensors are fine); each gradient comes in the layout of its
    argument. With `has_aux`, `fn` returns a pair and the second is handed on, its numbers resolved.

    >>> from shardwise import DeviceMesh, P, shard, sum
    >>> x = shard(np.array([1.0, 2.0]), DeviceMesh((2,), ("x",)), P("x"))
    >>> grad(lambda x: sum(x * x))(x)
    Tensor([2., 4.], float64[2@x] on x=2)
    """
    check_function(fn, "grad")
    chosen = check_argnums(argnums)

    @wraps(fn)
    def gradient(*args: Any) -> Any:
        _, aux, gradients = _differentiate(fn, args, chosen, has_aux)
        gradients = unpack(gradients, argnums)
        return (gradients, aux) if has_aux else gradients

    return gradient


@overload
def value_and_grad(
    fn: Callable[Concatenate[First, Rest], Result], argnums: Literal[0] = 0, has_aux: Literal[False] = False
) -> Callable[..., tuple[Result, First]]: ...
@overload
def value_and_grad(
    fn: Callable[Concatenate[First, Second, Rest], Result], argnums: Literal[1], has_aux: Literal[False] = False
) -> Callable[..., tuple[Result, Second]]: ...
@overload
def value_and_grad(
    fn: Callable[Concatenate[First, Rest], Result], argnums: Literal[0] = 0, *, has_aux: Literal[True]
) -> Callable[..., tuple[Result, First]]: ...
@overload
def value_and_grad(
    fn: Callable[Rest, Result], argnums: Sequence[int], has_aux: bool = False
) -> Callable[..., tuple[Result, tuple[Any, ...]]]: ...
@overload
def value_and_grad(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]: ...
@public()
def value_and_grad(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """Return the function that gives both the result of `fn`, which is one number, and its gradient.

    A result that is a pending sum is resolved, and so are numbers (0-d tensors) of what `has_aux` hands on: every
    device has their value, so that each process can read and print it. That sends one number per reduction.

    >>> from shardwise import DeviceMesh, P, shard, sum
    >>> x = shard(np.array([1.0, 2.0]), DeviceMesh((2,), ("x",)), P("x"))
    >>> value, gradient = value_and_grad(lambda x: sum(x * x))(x)
    >>> value, float(value), f"{value:.2f}"
    (Tensor(5., float64[] on x=2), 5.0, '5.00')
    >>> gradient
    Tensor([2., 4.], float64[2@x] on x=2)
    """
    check_function(fn, "value_and_grad")
    chosen = check_argnums(argnums)

    @wraps(fn)
    def both(*args: Any) -> tuple[Any, Any]:
        value, aux, gradients = _differentiate(fn, args, chosen, has_aux)
        value = _resolve(value)
        return (value, aux) if has_aux else value, unpack(gradients, argnums)

    return both


def _differentiate(
    fn: Callable[..., Any], args: tuple[Any, ...], argnums: tuple[int, ...], has_aux: bool
) -> tuple[Tensor, Any, tuple[Any, ...]]:
    # What a function returns, as it is left; what it hands on beside that; and the gradient by each of `argnums`.
    partly, primals = fix_others(fn, args, argnums)
    aux: list[Any] = []

    def run(*some: Any) -> Any:
        out = partly(*some)
        if has_aux:
            out, extra = out
            aux.append(optree.tree_map(below, extra))
        return out

    value, back = differentiate(run, primals, once=True)
    if not isinstance(value, Tensor) or value.shape != ():
        shape = value.shape if isinstance(value, Tensor) else type(value).__name__
        raise DerivativeError(f"a gradient is that of one number, a 0-d tensor; the function returned {shape}.")
    gradients = back(np.ones((), value.dtype))
    return value, optree.tree_map(_resolve, aux[0]) if has_aux else None, gradients


def _resolve(leaf: Any) -> Any:
    # A number with nothing pending: on every device, so in every process that has one.
    if not isinstance(leaf, Tensor) or leaf.shape != () or not leaf.layout.partial:
        return leaf
    leaf = settle(leaf)
    return relayout(leaf, layout=Layout.replicated(leaf.mesh, 0))
