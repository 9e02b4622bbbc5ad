"""The local view: functions of what one device holds, in which collectives go by axis name.

Inside `shard_map` a value is a stack: one global tensor with a leading dim per mesh axis, sharded by it, so
that each device holds its own slice. Every local-view collective is a function of that global tensor, which
is how it is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from importlib import import_module
from math import prod
from typing import Any, NoReturn, cast

import numpy as np
import optree
from array_api_compat import array_namespace

from shardwise.engine.arrays import to_numpy
from shardwise.engine.log import called_functions
from shardwise.engine.storage import storage_of
from shardwise.errors import ArgumentError, BindingError, LayoutError, as_int, checked_function
from shardwise.layout.axis import Axis, check_disjoint
from shardwise.layout.context import current_mesh
from shardwise.layout.conversion import LayoutLike, as_layout
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import ReduceOp
from shardwise.prim.fixed import Fixed
from shardwise.prim.methods import Methods
from shardwise.prim.relayout import relayout
from shardwise.prim.row import Row
from shardwise.prim.shards import divide_by, local_map
from shardwise.prim.tensor import Tensor, from_shards, host_array, placed
from shardwise.prim.work import worked

Names = str | Sequence[str]


def each_name(names: Any) -> tuple[Any, ...]:
    """Return one mesh axis, by name or number, or several of them, as a tuple.

    >>> each_name("x"), each_name(["x", "y"]), each_name(np.int64(1))
    (('x',), ('x', 'y'), (1,))
    """
    if isinstance(names, str | Axis | bool) or as_int(names) is not None or not isinstance(names, Iterable):
        names = (names,)
    out = tuple(name if (number := as_int(name)) is None else number for name in names)
    for name in out:
        if isinstance(name, bool) or not isinstance(name, str | int | Axis):
            raise ArgumentError(f"a mesh axis is given by its name or number, got {name!r}.")
    return out


class LocalTensor(Methods):
    """What every device holds inside `shard_map`, seen as one array of the local shape.

    >>> from shardwise import DeviceMesh, P
    >>> def look(a):
    ...     print(a, a.shape, a.ndim, a.dtype)
    ...     return a
    >>> _ = shard_map(look, DeviceMesh((4,), ("x",)), P("x"), P("x"))(np.zeros((8, 3)))
    LocalTensor(float64[2, 3] on every device of x=4) (2, 3) 2 float64
    """

    __slots__ = ("_mesh", "_stack")
    __array_priority__ = 1001

    mesh: DeviceMesh = Fixed.slot("_mesh", "The mesh on every device of which it is.")
    stack: Tensor = Fixed.slot("_stack", "What all devices hold, with leading dims that are those of the mesh.")

    def __init__(self, stack: Tensor, mesh: DeviceMesh) -> None:
        """Wrap a stack whose leading dims are those of the mesh."""
        self._stack, self._mesh = stack, mesh

    @Fixed
    def shape(self) -> Shape:
        """The shape that each device holds."""
        return self.stack.shape[self.mesh.ndim :]

    @Fixed
    def ndim(self) -> int:
        """How many dims each device's array has."""
        return len(self.shape)

    @Fixed
    def dtype(self) -> np.dtype:
        """The dtype."""
        return self.stack.dtype

    def __repr__(self) -> str:
        return f"LocalTensor({self.dtype}{list(self.shape)} on every device of {self.mesh})"

    def __getitem__(self, key: Any) -> LocalTensor:
        """Return elements of each device's array: integers, slices, None and an ellipsis."""
        given = tuple(_plain(entry) for entry in (key if isinstance(key, tuple) else (key,)))
        if any(hasattr(entry, "__array__") or isinstance(entry, list | LocalTensor) for entry in given):
            raise ArgumentError("in the local view an index is made of integers, slices, None and ...")
        wanted = sum(entry is not None and entry is not Ellipsis for entry in given)
        if wanted > self.ndim:
            raise BindingError(f"an index with {wanted} entries does not fit a local array with {self.ndim} dims.")
        lead = (slice(None),) * self.mesh.ndim
        return LocalTensor(self.stack[(*lead, *given)], self.mesh)

    # -- as one Python value, which it is not: each device has its own ---------------------------------

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentError("len() of a local array without dims.")
        return self.shape[0]

    def __bool__(self) -> bool:
        raise self._differs("bool()", "if, while, and, or, not, in, min() and max()")

    def __int__(self) -> int:
        raise self._differs("int()")

    def __float__(self) -> float:
        raise self._differs("float()")

    def __complex__(self) -> complex:
        raise self._differs("complex()")

    def __index__(self) -> int:
        raise self._differs("an index")

    def __contains__(self, value: object) -> bool:
        raise self._differs("in")

    def __iter__(self) -> NoReturn:
        raise ArgumentError(
            f"{self!r} is not iterable: it is one value, which differs from device to device.\n"
            "  x[i] is a part of it on every device; use where(c, a, b) to choose element by element."
        )

    # -- what has no local form ------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        public = import_module("shardwise")
        names = [name for name in called_functions() if hasattr(public, name) or hasattr(public.random, name)]
        raise self._has_no_local_form(names[-1] if names else "a function of NumPy's")

    @Fixed
    def at(self) -> Any:
        """Refused: updates of some elements have no local form."""
        raise self._has_no_local_form("x.at[...]")

    def _has_no_local_form(self, function: str) -> ArgumentError:
        return ArgumentError(
            f"{function} has no local form yet, and inside shard_map it was given {self!r}.\n"
            "  call it on tensors, outside shard_map: before the values go in, or on what comes out."
        )

    def _differs(self, what: str, also: str = "") -> ArgumentError:
        asked = f"{what}, which {also} ask for too," if also else what
        return ArgumentError(
            f"{asked} needs one Python value, but inside shard_map the value differs from device to device: {self!r}.\n"
            "  use where(c, a, b) to choose element by element, on each device by its own value."
        )


def _plain(entry: Any) -> Any:
    # An integer of NumPy as Python's, so that it is not taken for an array.
    if isinstance(entry, LocalTensor):
        return entry
    number = as_int(entry)
    return entry if number is None else number


# -- in and out ------------------------------------------------------------------------------------------


def stack_layout(mesh: DeviceMesh, rank: int) -> Layout:
    """Return the layout of a stack: a dim per mesh axis, sharded by it, then the dims of the local array."""
    return Layout(mesh, [*mesh.axis_names, *[None] * rank])


def constant(data: Any, mesh: DeviceMesh) -> LocalTensor:
    """Return the same array on every device."""
    data = data if isinstance(data, Tensor) else host_array(data)
    layout = Layout.replicated(mesh, data.ndim)
    return stacked(relayout(data, layout=layout) if isinstance(data, Tensor) else placed(data, layout), mesh)


def stacked(x: Tensor, mesh: DeviceMesh) -> LocalTensor:
    """Return what the devices hold of a tensor as a local value."""
    shapes = set(x.storage.shapes)
    if len(shapes) > 1:
        raise BindingError(
            f"shard_map needs equal shards, but {x.type_text} on {mesh} has the local shapes {sorted(shapes)}.\n"
            "  pad the tensor so that the axes divide its dims, or gather it."
        )
    (shape,) = shapes
    return mapped_stack(
        x, mesh, shape, lambda a: reshaped_array(a, (*[1] * mesh.ndim, *shape)), lambda a: reshaped_array(a, shape)
    )


def mapped_stack(
    x: Tensor, mesh: DeviceMesh, shape: Shape, kernel: Any, transpose: Any, positional: bool = False
) -> LocalTensor:
    """Return the local value that a linear kernel makes of what each device holds."""
    kernels = {"kernel": kernel, "transpose": transpose, "positional": positional}
    layout, whole = stack_layout(mesh, len(shape)), (*mesh.mesh_shape, *shape)
    return LocalTensor(local_map(x, **kernels, layout=layout, shape=whole), mesh)


def reshaped(x: LocalTensor, shape: Shape) -> LocalTensor:
    """Return each device's array in another shape."""
    lead, old = (1,) * x.mesh.ndim, x.shape
    return mapped_stack(
        x.stack, x.mesh, shape, lambda a: reshaped_array(a, lead + shape), lambda a: reshaped_array(a, lead + old)
    )


def _unstacked(x: Tensor, *, layout: Layout, shape: Shape) -> Tensor:
    # Devices along axes that the layout does not name must agree; one of them is taken. Only those in this process
    # are compared: between processes that would take communication which no plan shows.
    rank = x.mesh.ndim
    old, storage = x.storage, storage_of(layout, shape)
    here = set(x.engine.addressable(x.mesh)) if x.engine.name != "abstract" else set()
    for held in storage.holders if len(here) > 1 else ():
        holders = [device for device in held if device in here]
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
    return worked(lambda place, a: reshaped_array(a, tuple(a.shape[rank:])), [x], layout, shape)


def _unstacked_vjp(ct: Tensor, out: Tensor, x: Tensor, *, layout: Layout, shape: Shape) -> tuple[Tensor, ...]:
    # Each of several equal copies takes its part of the cotangent.
    copies = prod(a.size for a in layout.replicated_axes)
    ct = relayout(ct, layout=layout.resolved())
    return (stacked(divide_by(ct, copies) if copies > 1 else ct, layout.mesh).stack,)


unstacked = Row("unstacked", _unstacked, _unstacked_vjp, linear=True)

_mesh: ContextVar[DeviceMesh | None] = ContextVar("shard_map_mesh", default=None)


def shard_map(
    fn: Callable[..., Any], mesh: DeviceMesh | None = None, in_specs: Any = None, out_specs: Any = None
) -> Callable[..., Any]:
    """Return the global function whose devices each run `fn` on what they hold.

    `in_specs` and `out_specs` give the layout of each argument and result; one for all is enough. Inside, the
    communication functions act on local values and take axis names. An axis that `out_specs` does not name
    must end with equal results along it.

    >>> from shardwise import DeviceMesh, P, all_reduce
    >>> mesh = DeviceMesh((4,), ("x",))
    >>> total = shard_map(lambda a: all_reduce(a * 2.0, reduce_axes="x"), mesh, P("x"), P())
    >>> total(np.arange(4.0))
    Tensor([12.], float64[1] on x=4)
    """
    mesh = current_mesh(mesh)
    checked_function(fn, "shard_map")

    def mapped(*args: Any) -> Any:
        leaves, tree = optree.tree_flatten(cast(Any, args))
        specs = _matched(in_specs, args, leaves, "in_specs")
        values = [stacked(_entered(leaf, spec, mesh), mesh) for leaf, spec in zip(leaves, specs, strict=True)]
        token = _mesh.set(mesh)
        try:
            out = fn(*optree.tree_unflatten(tree, values))
        finally:
            _mesh.reset(token)
        results, out_tree = optree.tree_flatten(out, is_leaf=lambda v: isinstance(v, LocalTensor))
        specs = _matched(out_specs, out, results, "out_specs")
        done = [_left(value, spec, mesh) for value, spec in zip(results, specs, strict=True)]
        return optree.tree_unflatten(out_tree, done)

    return mapped


def _matched(specs: Any, tree: Any, leaves: list[Any], name: str) -> list[Any]:
    if isinstance(specs, list | tuple) and not _is_spec(specs):
        found = optree.tree_leaves(cast(Any, specs), is_leaf=_is_spec, none_is_leaf=True)
        if len(found) == len(leaves):
            return found
        raise ArgumentError(f"shard_map: {name} has {len(found)} specs for {len(leaves)} tensors.")
    return [specs] * len(leaves)


def _is_spec(value: Any) -> bool:
    from shardwise.layout.placement import Placement
    from shardwise.layout.spec import DimSpec

    if hasattr(value, "to_layout"):
        return True
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(v, Placement | DimSpec) for v in value)


def _entered(leaf: Any, spec: LayoutLike, mesh: DeviceMesh) -> Tensor:
    rank = leaf.ndim if hasattr(leaf, "ndim") else np.ndim(leaf)
    layout = as_layout(spec, rank, mesh)
    if layout.partial:
        raise LayoutError(f"shard_map: in_specs may not be partial, got {layout}; resolve the value first.")
    if layout.has_halo:
        raise LayoutError(f"shard_map: in_specs may not have a halo, got {layout}; call halo_exchange inside instead.")
    return relayout(leaf, layout=layout) if isinstance(leaf, Tensor) else placed(leaf, layout)


def _left(value: Any, spec: LayoutLike, mesh: DeviceMesh) -> Tensor:
    value = value if isinstance(value, LocalTensor) else constant(value, mesh)
    layout = as_layout(spec, value.ndim, mesh)
    if layout.has_halo or not all(cut.is_plain for cut in layout.dims):
        raise LayoutError(f"shard_map: out_specs are plain axis names per dim, got {layout}.")
    if layout.reduce_op not in (None, ReduceOp.SUM):
        raise LayoutError(f"shard_map: out_specs may leave a sum pending, got {layout}; all_reduce inside instead.")
    shape = tuple(size * layout.parts(k) for k, size in enumerate(value.shape))
    return unstacked(value.stack, layout=layout, shape=shape)


def axis_index(axis: Names) -> LocalTensor:
    """Return, inside `shard_map`, each device's position along a mesh axis, or along several as one, major to minor.

    >>> from shardwise import DeviceMesh, P
    >>> mesh = DeviceMesh((3,), ("x",))
    >>> shard_map(lambda a: a + axis_index("x"), mesh, P("x"), P("x"))(np.zeros(3))
    Tensor([0., 1., 2.], float64[3@x] on x=3)
    """
    mesh = _mesh.get()
    if mesh is None:
        raise LayoutError("axis_index is each device's position, so it has a meaning only inside shard_map.")
    found = [mesh.axis(name, "axis_index") for name in each_name(axis)]
    check_disjoint(found, "the axes of axis_index")
    shards = [np.full((1,) * mesh.ndim, position_along(mesh, found, d)) for d in range(mesh.num_devices)]
    return LocalTensor(from_shards(shards, mesh, stack_layout(mesh, 0), mesh.mesh_shape), mesh)


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


def reshaped_array(a: Any, shape: Shape) -> Any:
    """Return a local array in another shape."""
    return array_namespace(a).reshape(a, shape)


def permuted_array(a: Any, order: Sequence[int]) -> Any:
    """Return a local array with its dims in another order."""
    return array_namespace(a).permute_dims(a, tuple(order))
