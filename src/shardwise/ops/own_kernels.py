"""Kernels of one's own: functions of plain arrays, called on what devices hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
import optree

from shardwise.engine.abstract import AbstractArray
from shardwise.engine.arrays import dtype_of, is_torch, readonly
from shardwise.engine.current import current_engine
from shardwise.engine.local_shards import sample
from shardwise.errors import ArgumentError, BindingError, DerivativeError, EngineError, ProgramError, check_function
from shardwise.layout.layout import Shape, check_shape
from shardwise.layout.placement import check_dtype
from shardwise.ops.local_view import as_local, inside
from shardwise.prim.dispatch.per_device import Place, make_arrays
from shardwise.prim.face import public
from shardwise.prim.interpreters.local import LocalTensor, reshape_array, stack_layout
from shardwise.prim.tensor import Tensor, host_array

Type = tuple[Shape, np.dtype]


@overload
def local_call(fn: Callable[..., np.ndarray[Any, Any]], *values: Any, out: Any = None) -> LocalTensor: ...
@overload
def local_call(fn: Callable[..., tuple[Any, ...]], *values: Any, out: Any = None) -> tuple[LocalTensor, ...]: ...
@overload
def local_call(fn: Callable[..., Any], *values: Any, out: Any = None) -> Any: ...
@public()
def local_call(fn: Callable[..., Any], *values: Any, out: Any = None) -> Any:
    """Run, inside `shard_map`, a function of plain arrays on what each device holds, and return what it makes.

    `fn` is given one NumPy array or torch tensor for each of the values, which it must not write to, and returns an
    array or a tree of them, of the same shapes and dtypes on every device. It is run once for each device of this
    process. `out` gives the types of its results, as anything with a `shape` and a `dtype`, or a tree of such: needed
    where there are no values to run it on, and checked elsewhere. It has no derivative; `custom_vjp` gives it one.

    >>> from shardwise import DeviceMesh, P, shard_map
    >>> sort = shard_map(lambda x: local_call(np.sort, x), DeviceMesh((2,), ("x",)), P("x"), P("x"))
    >>> sort(np.array([3.0, 1.0, 2.0, 0.0])).numpy()
    array([1., 3., 0., 2.])
    """
    check_function(fn, "local_call")
    mesh, level = inside("local_call")
    operands = [_plain(as_local(value, "local_call"), level) for value in values]
    engine = operands[0].engine if operands else current_engine()
    stacks = [x.stack for x in operands]
    name = getattr(fn, "__name__", "the function")
    results: dict[int, list[Any]] = {}
    trees: list[Any] = []

    def call(device: int, arrays: Sequence[Any]) -> list[Any]:
        if device not in results:
            local = [readonly(reshape_array(a, x.shape)) for a, x in zip(arrays, operands, strict=True)]
            leaves, tree = optree.tree_flatten(fn(*local))
            trees.append(tree)
            results[device] = [leaf if is_torch(leaf) else host_array(leaf) for leaf in leaves]
        return results[device]

    if out is not None:
        leaves, tree = optree.tree_flatten(out, is_leaf=lambda v: hasattr(v, "shape") and hasattr(v, "dtype"))
        types = [_type(leaf) for leaf in leaves]
    else:
        here = list(engine.addressable(mesh))
        if not here or any(isinstance(sample(stack.arrays), AbstractArray) for stack in stacks):
            raise EngineError(
                f"local_call runs {name} on values, and there are none here.\n"
                "  give the types of what it makes: local_call(fn, x, out=like), with anything of that shape and dtype."
            )
        first = call(here[0], [stack.arrays[stack.storage.index(here[0])] for stack in stacks])
        types, tree = [(tuple(array.shape), dtype_of(array)) for array in first], trees[0]

    def take(k: int, shape: Shape, dtype: np.dtype) -> Tensor:
        def kernel(place: Place, *arrays: Any) -> Any:
            ours = call(place.device, arrays)
            own = (tuple(ours[k].shape), dtype_of(ours[k])) if k < len(ours) else None
            if len(ours) != len(types) or own != (shape, dtype):
                what = f"{own[1]}{list(own[0])}" if own else f"{len(ours)} arrays"
                raise BindingError(
                    f"local_call: {name} made {what} on device {place.device}, and {dtype}{list(shape)} was expected: "
                    "inside shard_map every device has the same shapes.\n  pad what it makes to one size."
                )
            return reshape_array(ours[k], place.shape)

        rank = len(shape)
        return make_arrays(kernel, stacks, stack_layout(mesh, rank), (*mesh.mesh_shape, *shape), dtype, engine)

    ends = [LocalTensor(take(k, *kind), mesh, level) for k, kind in enumerate(types)]
    return optree.tree_unflatten(tree, ends)


def _plain(x: Tensor, level: int) -> LocalTensor:
    # A local value that nothing watches: a function of arrays cannot be looked into.
    if x.is_recorded or (isinstance(x, LocalTensor) and x.stack.is_recorded):
        raise ProgramError("local_call runs a function of plain arrays, which cannot be traced into a program.")
    if not isinstance(x, LocalTensor) or x.level != level or x.stack.level:
        raise DerivativeError(
            f"local_call has no derivative, and was given {x!r}, which is being differentiated or mapped over.\n"
            "  give it one with custom_vjp, or pass stop_gradient(x)."
        )
    return x


def _type(leaf: Any) -> Type:
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        raise ArgumentError(f"local_call: out is made of things with a shape and a dtype, got {leaf!r}.")
    dtype = dtype_of(leaf) if is_torch(leaf) else check_dtype(leaf.dtype)
    return check_shape(tuple(leaf.shape)), dtype
