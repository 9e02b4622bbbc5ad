"""Arithmetic in the local view: the functions of tensors, on what each device holds.

A local value is a stack with a leading dim per mesh axis. A function of it is the same function of the stack: the
leading dims go along, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

from shardwise.errors import as_int
from shardwise.ops.local_view import LocalTensor, constant, reshaped

Function = TypeVar("Function", bound=Callable[..., Any])


def also_local(way: Callable[..., Any]) -> Callable[[Function], Function]:
    """Let a function of tensors take local values too: `way(function, *args, **kwargs)` then calls it on stacks.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, shard_map, softmax
    >>> half = shard_map(lambda x: softmax(x), DeviceMesh((2,), ("x",)), P("x"), P("x"))
    >>> half(np.zeros(4)).numpy()
    array([0.5, 0.5, 0.5, 0.5])
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def either(*args: Any, **kwargs: Any) -> Any:
            for x in args:
                if type(x) is LocalTensor:
                    return way(function, *args, **kwargs)
            return function(*args, **kwargs)

        return cast(Function, either)

    return decorate


def local_values(*values: Any) -> list[LocalTensor]:
    """Return operands as local values; arrays are the same on every device."""
    mesh = next(v.mesh for v in values if isinstance(v, LocalTensor))
    return [v if isinstance(v, LocalTensor) else constant(v, mesh) for v in values]


def each_element(function: Callable[..., Any], *operands: Any, **how: Any) -> LocalTensor:
    """Call an elementwise function on stacks of one rank; the local arrays broadcast."""
    found = [x for x in operands if not isinstance(x, int | float | complex)]
    ready = iter(aligned(local_values(*found)))
    mesh = next(x.mesh for x in operands if isinstance(x, LocalTensor))
    values = [x if isinstance(x, int | float | complex) else next(ready) for x in operands]
    return LocalTensor(function(*values, **how), mesh)


def aligned(values: Sequence[LocalTensor], rank: int = 0) -> list[Any]:
    """Return stacks whose local arrays have one rank, with dims of size one in front."""
    rank = max(rank, *(x.ndim for x in values))
    return [x.stack if x.ndim == rank else reshaped(x, (1,) * (rank - x.ndim) + x.shape).stack for x in values]


def along_dims(function: Callable[..., Any], x: LocalTensor, **how: Any) -> LocalTensor:
    """Call a function along dims of the local array; by default, as the function has it, along one or all."""
    axis = how.pop("axis", signature(function).parameters["axis"].default)
    dims = tuple(range(-x.ndim, 0)) if axis is None else from_the_end(x, axis, function.__name__)
    return LocalTensor(function(x.stack, axis=dims, **how), x.mesh)


def from_the_end(x: LocalTensor, axis: Any, function: str) -> Any:
    """Return dims of the local array counted from the end, where those of the stack are the same."""
    from shardwise.ops.reductions import dims_of

    number = as_int(axis)
    dims = tuple(k - x.ndim for k in dims_of(cast(Any, x), axis if number is None else number, function))
    return dims if number is None else dims[0]
