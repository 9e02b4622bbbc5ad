"""Derivatives: functions to their tangents and cotangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, TypeVarTuple, cast

import optree

from shardwise.engine.arrays import dtype_of, is_torch, torch_of
from shardwise.engine.local_shards import sample
from shardwise.errors import ArgumentError, DerivativeError, as_int, as_tuple, check_function, check_ints
from shardwise.layout.placement import ReduceOp, reductions_of
from shardwise.prim.arithmetic.elementwise import add
from shardwise.prim.bind import Node, Traced, new_level, pull_back
from shardwise.prim.face import public
from shardwise.prim.movement.parts import zeros_like
from shardwise.prim.relayout import relayout
from shardwise.prim.tensor import Tensor, asarray, constant, host_array, lowest, place_data
from shardwise.transform.calls import map_tensors, replace_at

Result = TypeVar("Result")
Tree = TypeVar("Tree")
Primals = TypeVarTuple("Primals")


@public()
def vjp(fn: Callable[[*Primals], Result], *primals: Any) -> tuple[Result, Callable[[Any], tuple[*Primals]]]:
    """Return `fn(*primals)` and the function from cotangents of the result to cotangents of the arguments.

    Each comes in the layout of its argument. The result is as `fn` leaves it: a sum may be pending.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, all_reduce, shard
    >>> x = shard(np.array([1.0, 2.0]), DeviceMesh((2,), ("x",)), P("x"))
    >>> y, back = vjp(all_reduce, x)
    >>> back(asarray([1.0]))[0]
    Tensor([1., 1.], float64[2@x] on x=2)
    """
    check_function(fn, "vjp")
    return differentiate(fn, primals, once=False)


def differentiate(
    fn: Callable[..., Any], primals: tuple[Any, ...], once: bool
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """Return what `vjp` does; if the way back is gone `once`, what was kept for it is given up on the way."""
    leaves, tree = optree.tree_flatten(cast(Any, primals))
    values = [_argument(leaf) for leaf in leaves]
    with new_level() as level:
        starts = [Node() for _ in values]
        traced = [Traced(level, v, node=n) for v, n in zip(values, starts, strict=True)]
        out = cast(Any, fn)(*optree.tree_unflatten(tree, traced))
    ends, out_tree = optree.tree_flatten(out)
    plain = [end.value if isinstance(end, Traced) and end.level == level else end for end in ends]

    def back(cotangents: Any) -> Any:
        known = [
            (end.node, _like(cotangent, end.value))
            for end, cotangent in zip(ends, _match(cotangents, out_tree), strict=True)
            if isinstance(end, Traced) and end.level == level and end.node is not None
        ]
        totals = pull_back(known, starts, add, once)
        return cast(Any, optree.tree_unflatten(tree, [_as_value(t, v) for t, v in zip(totals, values, strict=True)]))

    return cast(Any, optree.tree_unflatten(out_tree, plain)), back


@public()
def jvp(fn: Callable[..., Result], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Result, Result]:
    """Return `fn(*primals)` and its derivative in the direction of the tangents.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P, all_reduce, shard
    >>> x = shard(np.array([1.0, 2.0]), DeviceMesh((2,), ("x",)), P("x"))
    >>> jvp(all_reduce, (x,), (x,))[1].numpy()
    array([3.])
    """
    check_function(fn, "jvp")
    leaves, tree = optree.tree_flatten(cast(Any, as_tuple(primals, "jvp: primals are a tuple of arguments")))
    directions = _match(as_tuple(tangents, "jvp: tangents are a tuple, one for each argument"), tree)
    values = [_argument(leaf) for leaf in leaves]
    with new_level() as level:
        traced = [Traced(level, v, tangent=_like(t, v)) for v, t in zip(values, directions, strict=True)]
        out = cast(Any, fn)(*optree.tree_unflatten(tree, traced))
    ends, out_tree = optree.tree_flatten(out)
    watched = [isinstance(end, Traced) and end.level == level for end in ends]
    plain = [end.value if w else asarray(end) for end, w in zip(ends, watched, strict=True)]
    moved = [_as_value(end.tangent if w else None, value) for end, value, w in zip(ends, plain, watched, strict=True)]
    return cast(Any, (optree.tree_unflatten(out_tree, plain), optree.tree_unflatten(out_tree, moved)))


@public()
def stop_gradient(x: Tree) -> Tree:
    """Return the same values as constants to every derivative.

    >>> x = asarray([3.0])
    >>> vjp(lambda x: x * stop_gradient(x), x)[1](asarray([1.0]))[0].item()
    3.0
    """
    return map_tensors(constant, x)


def _argument(leaf: Any) -> Tensor:
    value = asarray(leaf)
    if ReduceOp.AVG not in reductions_of(value.dtype):  # numbers that have averages have derivatives
        raise DerivativeError(
            f"derivatives are with respect to floats or complex numbers, got an argument of {value.dtype}.\n"
            "  let the function take it from its surroundings, or convert it."
        )
    return value


def _match(derivatives: Any, tree: optree.PyTreeSpec) -> list[Any]:
    # One tangent or cotangent per tensor; nested numbers in the place of one are its values.
    try:
        return tree.flatten_up_to(derivatives)
    except (TypeError, ValueError):
        raise DerivativeError(
            f"derivatives are given one for each of {tree.num_leaves} tensors, in the structure {tree}, got "
            f"{optree.tree_structure(derivatives)}."
        ) from None


def _like(data: Any, value: Tensor) -> Tensor:
    # A tangent or cotangent given by the user, checked against the value it belongs to.
    array = data if isinstance(data, Tensor) else host_array(data)
    shape, dtype = tuple(array.shape), array.dtype if isinstance(array, Tensor) else dtype_of(array)
    if shape != value.shape:
        raise DerivativeError(f"a value of shape {value.shape} has derivatives of that shape, got {shape}.")
    if not isinstance(array, Tensor) and (dtype.kind != "c" or value.dtype.kind == "c"):
        array, dtype = host_array(data, value.dtype), value.dtype
    if dtype != value.dtype:
        raise DerivativeError(f"a value of dtype {value.dtype} has derivatives of that dtype, got {dtype}.")
    layout = value.layout.resolved()
    if isinstance(array, Tensor):
        return relayout(array, layout=layout)
    if not value.engine.has_values:
        return zeros_like(value, value.shape, layout)
    if is_torch(sample(lowest(value).arrays)) and not is_torch(array):  # what it meets is in that library
        array = torch_of(array)
    return place_data(array, layout)


def _as_value(derivative: Tensor | None, value: Tensor) -> Tensor:
    layout = value.layout.resolved()
    return zeros_like(value, value.shape, layout) if derivative is None else relayout(derivative, layout=layout)


# -- by some of the arguments ----------------------------------------------------------------------------


def check_argnums(argnums: int | Sequence[int]) -> tuple[int, ...]:
    """Return which arguments derivatives are by, as a tuple."""
    return check_ints(argnums, "argnums is an int or a tuple of ints")


def fix_others(
    fn: Callable[..., Any], args: tuple[Any, ...], argnums: tuple[int, ...]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function of some of its arguments alone, and those."""
    for k in argnums:
        if not -len(args) <= k < len(args):
            raise ArgumentError(f"argnums={k} names an argument that {len(args)} arguments do not have.")
    places = [k % len(args) for k in argnums]
    return lambda *some: fn(*replace_at(places, args, some)), tuple([args[k] for k in places])


def unpack(derivatives: Any, argnums: int | Sequence[int]) -> Any:
    """Return derivatives by several arguments as they are, and of a tuple by one that one."""
    return derivatives if as_int(argnums) is None else derivatives[0]
