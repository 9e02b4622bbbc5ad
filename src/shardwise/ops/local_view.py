"""The local view: functions of what one device holds, in which collectives go by axis name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, TypeVar, cast, overload

import numpy as np
import optree

from shardwise.engine.arrays import to_numpy
from shardwise.engine.storage import storage_of
from shardwise.errors import ArgumentError, BindingError, LayoutError, as_int, check_function, check_int, is_list
from shardwise.layout.axis import Axis, check_disjoint
from shardwise.layout.context import current_mesh
from shardwise.layout.conversion import LayoutLike, as_layout
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import Placement, ReduceOp
from shardwise.layout.spec import DimSpec
from shardwise.prim.dispatch.per_device import in_shape, map_shards
from shardwise.prim.face import public
from shardwise.prim.interpreters.local import (
    LocalTensor,
    constant_stack,
    current_inside,
    inside_of,
    stack_layout,
    stack_shards,
)
from shardwise.prim.movement.shards import divide_by
from shardwise.prim.primitive import Primitive
from shardwise.prim.relayout import relayout
from shardwise.prim.tensor import Tensor, from_shards, place_data

Names = str | Sequence[str]


def each_name(names: object) -> tuple[str | int | Axis, ...]:
    """Return one mesh axis, by name or number, or several of them, as a tuple.

    >>> each_name("x"), each_name(["x", "y"]), each_name(np.int64(1))
    (('x',), ('x', 'y'), (1,))
    """
    if isinstance(names, str | Axis | bool) or as_int(names) is not None or not isinstance(names, Iterable):
        names = (names,)
    wanted = "a mesh axis is given by its name or number"
    return tuple(
        [name if isinstance(name, str | Axis) else check_int(name, wanted) for name in cast(Iterable[object], names)]
    )


def named_axes(mesh: DeviceMesh, names: object, function: str) -> tuple[Axis, ...]:
    """Return the mesh axes of these names, which may not overlap; none for None."""
    axes = tuple([mesh.axis(name, function) for name in (() if names is None else each_name(names))])
    check_disjoint(axes, f"the axes of {function}")
    return axes


# -- in and out ------------------------------------------------------------------------------------------


def _stack(x: Tensor, mesh: DeviceMesh) -> Tensor:
    # What the devices hold of a tensor as a stack.
    shapes = set(x.storage.shapes)
    if len(shapes) > 1:
        raise BindingError(
            f"shard_map needs equal shards, but {x.type_text} on {mesh} has the local shapes {sorted(shapes)}.\n"
            "  pad the tensor so that the axes divide its dims, or gather it."
        )
    (shape,) = shapes
    return stack_shards(x, mesh, shape)


def _unstack(x: Tensor, *, layout: Layout, shape: Shape) -> Tensor:
    # Devices along axes that the layout does not name must agree; one of them is taken. Only those in this process
    # are compared: between processes that would take communication which no plan shows.
    old, storage = x.storage, storage_of(layout, shape)
    here: set[int] = set(x.engine.addressable(x.mesh)) if x.engine.has_values else set()
    for devices in storage.holders if len(here) > 1 else ():
        holders = [device for device in devices if device in here]
        if len(holders) < 2:
            continue
        first = x.arrays[old.index(holders[0])]
        for device in holders[1:]:
            other = x.arrays[old.index(device)]
            if other is not first and not np.array_equal(to_numpy(first), to_numpy(other), equal_nan=True):
                raise LayoutError(
                    f"out_specs {layout} says that devices {holders[0]} and {device} hold the same data, but their "
                    "results differ.\n  name the axis in out_specs, or reduce over it first."
                )

    return map_shards(in_shape, [x], layout, shape)


def _unstack_vjp(ct: Tensor, out: Tensor, x: Tensor, *, layout: Layout, shape: Shape) -> tuple[Tensor, ...]:
    # Each of several equal copies takes its part of the cotangent.
    copies = prod(a.size for a in layout.replicated_axes)
    ct = relayout(ct, layout=layout.resolved())
    return (_stack(divide_by(ct, copies) if copies > 1 else ct, layout.mesh),)


def _batch_unstack(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    # Dims that are mapped over are the first of what each device holds.
    x = lead.behind(lead.unsplit(operands[0]), operands[0].mesh.ndim)
    return unstack(x, **lead.whole().shift(params))


# A stack as the tensor of which every device holds its slice, in this layout.
unstack = Primitive("unstack", _unstack, _unstack_vjp, linear=True, batch=_batch_unstack)


Result = TypeVar("Result")


@overload
def shard_map(
    fn: Callable[..., Tensor | np.ndarray[Any, Any]],
    mesh: DeviceMesh | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
) -> Callable[..., Tensor]: ...
@overload
def shard_map(
    fn: Callable[..., Result], mesh: DeviceMesh | None = None, in_specs: Any = None, out_specs: Any = None
) -> Callable[..., Result]: ...
@public()
def shard_map(
    fn: Callable[..., Any], mesh: DeviceMesh | None = None, in_specs: Any = None, out_specs: Any = None
) -> Callable[..., Any]:
    """Return the global function whose devices each run `fn` on what they hold.

    `in_specs` and `out_specs` give the layout of each argument and result; one for all is enough. Inside, values are
    local: every function works on what one device holds, and so do derivatives; communication functions take axis
    names. An axis that `out_specs` does not name must end with equal results along it.

    >>> from shardwise import DeviceMesh, P, all_reduce
    >>> mesh = DeviceMesh((4,), ("x",))
    >>> total = shard_map(lambda a: all_reduce(a * 2.0, reduce_axes="x"), mesh, P("x"), P())
    >>> total(np.arange(4.0))
    Tensor([12.], float64[1] on x=4)
    """
    mesh = current_mesh(mesh)
    check_function(fn, "shard_map")

    def call(*args: Any) -> Any:
        leaves, tree = optree.tree_flatten(cast(Any, args))
        specs = _match(in_specs, leaves, "in_specs")
        stacks = [_stack(_enter(leaf, spec, mesh), mesh) for leaf, spec in zip(leaves, specs, strict=True)]
        with inside_of(mesh) as level:
            values = [LocalTensor(stack, mesh, level) for stack in stacks]
            out = fn(*optree.tree_unflatten(tree, values))
            results, out_tree = optree.tree_flatten(out)
            specs = _match(out_specs, results, "out_specs")
            done = [_leave(value, spec, mesh, level) for value, spec in zip(results, specs, strict=True)]
        return optree.tree_unflatten(out_tree, done)

    return call


def _match(specs: Any, leaves: list[Any], name: str) -> list[Any]:
    if not is_list(specs) or _is_spec(specs):
        return [specs] * len(leaves)
    each = optree.tree_leaves(cast(Any, specs), is_leaf=_is_spec, none_is_leaf=True)
    if len(each) != len(leaves):
        raise ArgumentError(f"shard_map: {name} has {len(each)} specs for {len(leaves)} tensors.")
    return each


def _is_spec(value: Any) -> bool:
    if hasattr(value, "to_layout"):
        return True
    return is_list(value) and bool(value) and all(isinstance(v, Placement | DimSpec) for v in value)


def _enter(leaf: Any, spec: LayoutLike, mesh: DeviceMesh) -> Tensor:
    if isinstance(leaf, Tensor) and leaf.is_local:
        raise ArgumentError(
            f"shard_map inside shard_map was given {leaf!r}, of which every device has its own.\n"
            "  call the inner function itself: it is inside of the outer one's devices already."
        )
    rank = leaf.ndim if hasattr(leaf, "ndim") else np.ndim(leaf)
    layout = as_layout(spec, rank, mesh)
    if layout.partial:
        raise LayoutError(f"shard_map: in_specs may not be partial, got {layout}; resolve the value first.")
    if layout.has_halo:
        raise LayoutError(f"shard_map: in_specs may not have a halo, got {layout}; call halo_exchange inside instead.")
    return relayout(leaf, layout=layout) if isinstance(leaf, Tensor) else place_data(leaf, layout)


def _leave(value: Any, spec: LayoutLike, mesh: DeviceMesh, level: int) -> Tensor:
    is_own = isinstance(value, LocalTensor) and value.level == level
    stack = value.stack if is_own else constant_stack(value, mesh)
    local = stack.shape[mesh.ndim :]
    layout = as_layout(spec, len(local), mesh)
    if layout.has_halo or not all(cut.is_plain for cut in layout.dims):
        raise LayoutError(f"shard_map: out_specs are plain axis names per dim, got {layout}.")
    if layout.reduce_op not in (None, ReduceOp.SUM):
        raise LayoutError(f"shard_map: out_specs may leave a sum pending, got {layout}; all_reduce inside instead.")
    shape = tuple(size * layout.parts(k) for k, size in enumerate(local))
    return unstack(stack, layout=layout, shape=shape)


def is_inside(x: Any) -> bool:
    """Whether a collective acts on what devices hold: of a local value, or of anything inside `shard_map`."""
    return (isinstance(x, Tensor) and x.is_local) or current_inside() is not None


def inside(function: str, of: str = "") -> tuple[DeviceMesh, int]:
    """Return the mesh and the level of the `shard_map` that is running, or raise an error."""
    current = current_inside()
    if current is None:
        raise ArgumentError(f"{function} acts on what one device holds: call it inside shard_map{of}.")
    return current


def as_local(x: Any, function: str) -> Tensor:
    """Return an operand of a collective as a local value; what comes from outside is the same on every device."""
    if isinstance(x, Tensor) and x.is_local:
        return x
    mesh, level = inside(function, f", not on a {type(x).__name__}")
    return LocalTensor(constant_stack(x, mesh), mesh, level)


# -- positions -------------------------------------------------------------------------------------------


@public()
def axis_index(axis: Names) -> LocalTensor:
    """Return, inside `shard_map`, each device's position along a mesh axis, or along several as one, major to minor.

    >>> from shardwise import DeviceMesh, P
    >>> mesh = DeviceMesh((3,), ("x",))
    >>> shard_map(lambda a: a + axis_index("x"), mesh, P("x"), P("x"))(np.zeros(3))
    Tensor([0., 1., 2.], float64[3@x] on x=3)
    """
    current = current_inside()
    if current is None:
        raise LayoutError("axis_index is each device's position, so it has a meaning only inside shard_map.")
    mesh, level = current
    axes = named_axes(mesh, each_name(axis), "axis_index")
    shards = [np.full((1,) * mesh.ndim, position_along(mesh, axes, d)) for d in range(mesh.num_devices)]
    return LocalTensor(from_shards(shards, mesh, stack_layout(mesh, 0), mesh.mesh_shape), mesh, level)


def position_along(mesh: DeviceMesh, axes: Sequence[Axis], device: int) -> int:
    """Return the position of a device along several axes taken as one, major to minor.

    >>> mesh = DeviceMesh((2, 3), ("x", "y"))
    >>> position_along(mesh, [mesh.axis("y"), mesh.axis("x")], 4)
    3
    """
    at = 0
    for axis in axes:
        at = at * axis.size + mesh.device_coord(device, axis)
    return at
