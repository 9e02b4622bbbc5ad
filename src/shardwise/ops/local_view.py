"""The local view: functions of what one device holds, in which collectives go by axis name.

Inside `shard_map` a value is a stack: one global tensor with a leading dim per mesh axis, sharded by it, so
that each device holds its own slice. Every local-view collective is a function of that global tensor, which
is how it is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from math import prod
from typing import Any, cast

import numpy as np
import optree
from array_api_compat import array_namespace

from shardwise.engine.arrays import to_numpy
from shardwise.errors import ArgumentError, BindingError, LayoutError
from shardwise.layout.axis import Axis, check_disjoint
from shardwise.layout.conversion import LayoutLike, as_layout
from shardwise.layout.layout import Cut, Layout, Shape
from shardwise.layout.mesh import DeviceMesh, current_mesh
from shardwise.layout.placement import ReduceOp
from shardwise.ops.permutation import sources_of
from shardwise.prim import elementwise
from shardwise.prim.kernel import kept, zeros
from shardwise.prim.relayout import relayout, resolved
from shardwise.prim.row import Row
from shardwise.prim.shards import embed, fold, local_map, permute_shards, relabelled, restrict, unfold
from shardwise.prim.tensor import Tensor, from_shards, moved, placed

Names = str | Sequence[str]


class LocalTensor:
    """What every device holds inside `shard_map`, seen as one array of the local shape."""

    __slots__ = ("mesh", "stack")
    __array_priority__ = 1001

    def __init__(self, stack: Tensor, mesh: DeviceMesh) -> None:
        """Wrap a stack whose leading dims are those of the mesh."""
        self.stack, self.mesh = stack, mesh

    @property
    def shape(self) -> Shape:
        """The shape that each device holds."""
        return self.stack.shape[self.mesh.ndim :]

    @property
    def ndim(self) -> int:
        """How many dims each device's array has."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype:
        """The dtype."""
        return self.stack.dtype

    def __repr__(self) -> str:
        return f"LocalTensor({self.dtype}{list(self.shape)} on every device of {self.mesh})"

    def __add__(self, other: Any) -> LocalTensor:
        return binary(elementwise.add, self, other)

    __radd__ = __add__

    def __mul__(self, other: Any) -> LocalTensor:
        return binary(elementwise.multiply, self, other)

    __rmul__ = __mul__

    def __neg__(self) -> LocalTensor:
        return LocalTensor(elementwise.negative(self.stack), self.mesh)

    def __sub__(self, other: Any) -> LocalTensor:
        return binary(elementwise.subtract, self, other)

    def __rsub__(self, other: Any) -> LocalTensor:
        return binary(elementwise.subtract, other, self)

    def __truediv__(self, other: Any) -> LocalTensor:
        return binary(elementwise.divide, self, other)

    def __rtruediv__(self, other: Any) -> LocalTensor:
        return binary(elementwise.divide, other, self)

    def __pow__(self, exponent: int) -> LocalTensor:
        return LocalTensor(elementwise.pow(self.stack, exponent), self.mesh)


def binary(row: Row, x: Any, y: Any) -> LocalTensor:
    """Apply an elementwise primitive to local values, NumPy arrays and numbers."""
    mesh = x.mesh if isinstance(x, LocalTensor) else y.mesh
    values = [v if isinstance(v, LocalTensor | int | float | complex) else constant(v, mesh) for v in (x, y)]
    rank = max(v.ndim for v in values if isinstance(v, LocalTensor))
    return LocalTensor(row(*(_operand(v, rank) for v in values)), mesh)


def _operand(value: Any, rank: int) -> Any:
    if not isinstance(value, LocalTensor):
        return value
    missing = rank - value.ndim
    return value.stack if not missing else reshaped(value, (1,) * missing + value.shape).stack


# -- in and out ------------------------------------------------------------------------------------------


def stack_layout(mesh: DeviceMesh, rank: int) -> Layout:
    """Return the layout of a stack: a dim per mesh axis, sharded by it, then the dims of the local array."""
    return Layout(mesh, [*mesh.axis_names, *[None] * rank])


def constant(data: Any, mesh: DeviceMesh) -> LocalTensor:
    """Return the same array on every device."""
    layout = Layout.replicated(mesh, data.ndim if isinstance(data, Tensor) else np.ndim(data))
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
    return _mapped(x, mesh, shape, lambda a: _reshape(a, (*[1] * mesh.ndim, *shape)), lambda a: _reshape(a, shape))


def _mapped(
    x: Tensor, mesh: DeviceMesh, shape: Shape, kernel: Any, transpose: Any, positional: bool = False
) -> LocalTensor:
    kernels = {"kernel": kernel, "transpose": transpose, "positional": positional}
    layout, whole = stack_layout(mesh, len(shape)), (*mesh.mesh_shape, *shape)
    return LocalTensor(local_map(x, **kernels, layout=layout, shape=whole), mesh)


def reshaped(x: LocalTensor, shape: Shape) -> LocalTensor:
    """Return each device's array in another shape."""
    lead, old = (1,) * x.mesh.ndim, x.shape
    return _mapped(x.stack, x.mesh, shape, lambda a: _reshape(a, lead + shape), lambda a: _reshape(a, lead + old))


def _unstacked(x: Tensor, *, layout: Layout, shape: Shape) -> Tensor:
    # Devices along axes that the layout does not name must agree; one of them is taken.
    rank = x.mesh.ndim
    old, storage = x.storage, Tensor((), layout, shape, x.dtype, x.engine).storage
    arrays = []
    for holders in storage.holders:
        first = x.arrays[old.index(holders[0])]
        for device in holders[1:] if x.engine.name != "abstract" else ():
            other = x.arrays[old.index(device)]
            if other is not first and not np.array_equal(to_numpy(first), to_numpy(other), equal_nan=True):
                raise LayoutError(
                    f"out_specs {layout} says that devices {holders[0]} and {device} hold the same data, but their "
                    "results differ.\n  name the axis in out_specs, or reduce over it first."
                )
        arrays.append(kept(x, lambda a: _reshape(a, tuple(a.shape[rank:])), first, storage.shapes[len(arrays)]))
    return Tensor(arrays, layout, shape, x.dtype, x.engine)


def _unstacked_vjp(ct: Tensor, out: Tensor, x: Tensor, *, layout: Layout, shape: Shape) -> tuple[Tensor, ...]:
    # Each of several equal copies takes its part of the cotangent.
    copies = prod(a.size for a in layout.replicated_axes)
    ct = relayout(ct, layout=layout.resolved())
    return (stacked(elementwise.divide(ct, float(copies)) if copies > 1 else ct, layout.mesh).stack,)


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


# -- collectives by axis name ----------------------------------------------------------------------------


def named(x: LocalTensor, names: Names | None, function: str) -> tuple[Axis, ...]:
    """Return the mesh axes of these names; all of them, if none is named."""
    if not isinstance(x, LocalTensor):
        raise ArgumentError(
            f"{function} acts on what one device holds: call it inside shard_map, not on a {type(x).__name__}."
        )
    given = x.mesh.axis_names if names is None else (names,) if isinstance(names, str) else tuple(names)
    found = tuple(x.mesh.axis(name, function) for name in given)
    check_disjoint(found, f"the axes of {function}")
    return found


def whole_axes(x: LocalTensor, names: Names | None, function: str) -> tuple[Axis, ...]:
    """Return the mesh axes of these names, which may not be sub-axes: a stack has dims for whole axes only."""
    axes = named(x, names, function)
    if parts := [axis for axis in axes if not axis.is_whole]:
        raise LayoutError(f"{function} goes over whole mesh axes inside shard_map, got {parts[0]}.")
    return axes


def _dim_of(x: LocalTensor, dim: int, function: str) -> int:
    if isinstance(dim, bool) or not isinstance(dim, int) or not -x.ndim <= dim < x.ndim:
        raise LayoutError(f"{function}: dim {dim!r} is out of range for a local array with {x.ndim} dims.")
    return dim % x.ndim


def axis_index(axis: str) -> LocalTensor:
    """Return, inside `shard_map`, each device's position along a mesh axis.

    >>> from shardwise import DeviceMesh, P
    >>> mesh = DeviceMesh((3,), ("x",))
    >>> shard_map(lambda a: a + axis_index("x"), mesh, P("x"), P("x"))(np.zeros(3))
    Tensor([0., 1., 2.], float64[3@x] on x=3)
    """
    mesh = _mesh.get()
    if mesh is None:
        raise LayoutError("axis_index is each device's position, so it has a meaning only inside shard_map.")
    found = mesh.axis(axis, "axis_index")
    shards = [np.full((1,) * mesh.ndim, mesh.device_coord(d, found)) for d in range(mesh.num_devices)]
    return LocalTensor(from_shards(shards, mesh, stack_layout(mesh, 0), mesh.mesh_shape), mesh)


def _pending(x: LocalTensor, axes: tuple[Axis, ...], op: ReduceOp) -> Tensor:
    # The stack summed over its dims of these axes, still to be reduced.
    return fold(x.stack, axes=tuple(a for a in axes if a.size > 1), op=op)


def all_reduce(x: LocalTensor, names: Names | None, op: ReduceOp | str) -> LocalTensor:
    """Reduce over the devices that differ in the named axes."""
    axes = named(x, names, "all_reduce")
    if all(a.size == 1 for a in axes):
        return x
    total = resolved(_pending(x, axes, ReduceOp.of(op)))
    return LocalTensor(unfold(total, layout=x.stack.layout, shape=x.stack.shape), x.mesh)


def _without_lead(x: Tensor, mesh: DeviceMesh, axes: Sequence[Axis], dim: int | None) -> Tensor:
    # The stack with its dims of these axes whole, and dim `dim` of the local array split by them instead.
    names = {a.name for a in axes}
    lead = [None if n in names else n for n in mesh.axis_names]
    rest = [tuple(axes) if k == dim else None for k in range(x.ndim - mesh.ndim)]
    return relayout(x, layout=Layout(mesh, [*lead, *rest]))


def all_gather(x: LocalTensor, names: Names | None, dim: int, tiled: bool = True) -> LocalTensor:
    """Concatenate what the group holds along dim `dim`, or stack it there if not `tiled`."""
    axes = whole_axes(x, names, "all_gather")
    dim = _dim_of(x, dim, "all_gather") if tiled else dim % (x.ndim + 1)
    count, mesh = prod(a.size for a in axes), x.mesh
    whole = _without_lead(x.stack, mesh, axes, None)
    lead = tuple(a.size if a in axes else 1 for a in map(mesh.axis, mesh.axis_names))
    order = [mesh.axis_names.index(a.name) for a in axes]
    rest = [i for i in range(mesh.ndim) if i not in order]
    shape = x.shape
    middle = (*shape[:dim], count * shape[dim], *shape[dim + 1 :]) if tiled else (*shape[:dim], count, *shape[dim:])

    def kernel(a: Any) -> Any:
        # Bring the gathered dims together, in the order of the names, in front of `dim`.
        local = [mesh.ndim + k for k in range(len(shape))]
        moved = _permute(a, (*rest, *local[:dim], *order, *local[dim:]))
        return _reshape(moved, (*[1] * mesh.ndim, *middle))

    def transpose(a: Any) -> Any:
        split = _reshape(a, (*[1] * len(rest), *shape[:dim], *[lead[i] for i in order], *shape[dim:]))
        local = [mesh.ndim + k for k in range(len(shape))]
        forward = (*rest, *local[:dim], *order, *local[dim:])
        return _permute(split, tuple(int(i) for i in np.argsort(forward)))

    return _mapped(whole, mesh, middle, kernel, transpose)


def reduce_scatter(x: LocalTensor, names: Names | None, dim: int, op: ReduceOp | str) -> LocalTensor:
    """Reduce over the group, and leave each member its piece of dim `dim`."""
    axes = whole_axes(x, names, "reduce_scatter")
    dim, mesh = _dim_of(x, dim, "reduce_scatter"), x.mesh
    count = prod(a.size for a in axes)
    if x.shape[dim] % count:
        raise BindingError(
            f"reduce_scatter needs equal pieces: dim {dim} of size {x.shape[dim]} is not a multiple of {count}.\n"
            "  use all_reduce and keep what you need."
        )
    pending = _pending(x, axes, ReduceOp.of(op))
    piece = _without_lead(pending, mesh, axes, dim)
    shape = (*x.shape[:dim], x.shape[dim] // count, *x.shape[dim + 1 :])
    return _mapped(piece, mesh, shape, lambda a: a, lambda a: a)


def all_slice(x: LocalTensor, names: Names | None, dim: int) -> LocalTensor:
    """Keep of dim `dim` the piece that belongs to each device's position; nothing is sent."""
    axes, mesh = named(x, names, "all_slice"), x.mesh
    dim, count = _dim_of(x, dim, "all_slice"), prod(a.size for a in axes)
    if x.shape[dim] % count:
        raise BindingError(f"all_slice needs equal pieces: {x.shape[dim]} is not a multiple of {count}.")
    width = x.shape[dim] // count

    def where(device: int) -> tuple[Any, ...]:
        at = 0
        for axis in axes:
            at = at * axis.size + mesh.device_coord(device, axis)
        return (*[slice(None)] * (mesh.ndim + dim), slice(at * width, (at + 1) * width))

    def kernel(a: Any, device: int) -> Any:
        return a[where(device)]

    def transpose(a: Any, device: int) -> Any:
        out = zeros(a, (*[1] * mesh.ndim, *x.shape))
        out[where(device)] = a
        return out

    return _mapped(x.stack, mesh, (*x.shape[:dim], width, *x.shape[dim + 1 :]), kernel, transpose, positional=True)


def _exchanged(x: LocalTensor, axes: Sequence[Axis], dim: int) -> LocalTensor:
    count = prod(a.size for a in axes)
    return reshaped(x, (*x.shape[:dim], count, x.shape[dim] // count, *x.shape[dim + 1 :]))


def all_to_all(x: LocalTensor, names: Names | None, split: int, concat: int, tiled: bool = True) -> LocalTensor:
    """Send piece i of dim `split` to member i, and join what comes along dim `concat`.

    Not `tiled`, dim `split` has the size of the group and disappears, and a new dim appears at `concat`.
    """
    axes = whole_axes(x, names, "all_to_all")
    mesh, count = x.mesh, prod(a.size for a in axes)
    split = _dim_of(x, split, "all_to_all")
    if x.shape[split] % count if tiled else x.shape[split] != count:
        wanted = f"a multiple of {count}" if tiled else f"{count}, the size of the group"
        raise BindingError(f"all_to_all: dim {split} has size {x.shape[split]}, but must be {wanted}.")
    concat = _dim_of(x, concat, "all_to_all")
    cut = _exchanged(x, axes, split)  # (..., count, piece, ...)
    whole = _without_lead(cut.stack, mesh, axes, split)
    order = [mesh.axis_names.index(a.name) for a in axes]
    rest = [i for i in range(mesh.ndim) if i not in order]
    piece = cut.shape[:split] + cut.shape[split + 1 :]  # what one member sends to one other
    if not tiled:
        piece = piece[:split] + piece[split + 1 :]
    sizes = [a.size for a in axes]

    def kernel(a: Any) -> Any:
        local = _reshape(_permute(a, (*order, *rest, *range(mesh.ndim, a.ndim))), (*sizes, *piece))
        moved = _permute(
            local, (*_after(concat, len(sizes)), *range(len(sizes)), *_from(concat, len(sizes), len(piece)))
        )
        return _reshape(moved, (*[1] * mesh.ndim, *shape))

    def transpose(a: Any) -> Any:
        local = _reshape(a, (*piece[:concat], *sizes, *piece[concat:]))
        front = _permute(
            local, (*range(concat, concat + len(sizes)), *range(concat), *range(concat + len(sizes), local.ndim))
        )
        lead = _reshape(front, (*sizes, *[1] * len(rest), *cut.shape[:split], 1, *cut.shape[split + 1 :]))
        back = np.argsort([*order, *rest])
        return _permute(lead, (*[int(i) for i in back], *range(mesh.ndim, lead.ndim)))

    if tiled:
        shape = (*piece[:concat], count * piece[concat], *piece[concat + 1 :])
    else:
        shape = (*piece[:concat], count, *piece[concat:])
    return _mapped(whole, mesh, shape, kernel, transpose)


def _after(concat: int, lead: int) -> range:
    return range(lead, lead + concat)


def _from(concat: int, lead: int, rank: int) -> range:
    return range(lead + concat, lead + rank)


def ppermute(x: LocalTensor, name: str, pairs: Sequence[tuple[int, int]]) -> LocalTensor:
    """Send from position to position along one axis; those that receive nothing get zeros."""
    return LocalTensor(permute_shards(x.stack, sources=sources_of(x.mesh, pairs, name)), x.mesh)


# -- halos -----------------------------------------------------------------------------------------------


def _haloed(x: Tensor, *, axis: Axis, dim: int, halo: tuple[int, int]) -> Tensor:
    # The stack as one tensor whose dim is split by the axis; its halo exchange; and that as a stack again.
    mesh, at = x.mesh, x.mesh.ndim + dim
    lead = [None if n == axis.name else n for n in mesh.axis_names]
    sizes = tuple(1 if n == axis.name else s for n, s in zip(mesh.axis_names, mesh.mesh_shape, strict=True))
    local = x.shape[mesh.ndim :]
    cuts = [Cut(axis) if k == dim else Cut() for k in range(len(local))]
    whole = (*sizes, *local[:dim], local[dim] * axis.size, *local[dim + 1 :])
    flat = relabelled(x, Layout(mesh, [*lead, *cuts]), whole)
    cuts[dim] = Cut(axis, halo=halo, edge="pad")
    wide = moved(flat, Layout(mesh, [*lead, *cuts]))
    shape = (*x.shape[:at], x.shape[at] + sum(halo), *x.shape[at + 1 :])
    return relabelled(wide, stack_layout(mesh, len(local)), shape)


def _haloed_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: Axis, dim: int, halo: tuple[int, int]) -> Any:
    # What the neighbours hold of a shard goes back to it and is added up.
    mesh = x.mesh
    stack = LocalTensor(relayout(ct, layout=out.layout), mesh)
    (low, high), size = halo, x.shape[mesh.ndim + dim]
    total = _span(stack, dim, low, low + size, 0, size)
    if low:
        edge = _span(stack, dim, 0, low, size - low, size)
        total = total + ppermute(edge, axis.name, [(i + 1, i) for i in range(axis.size - 1)])
    if high:
        edge = _span(stack, dim, low + size, low + size + high, 0, size)
        total = total + ppermute(edge, axis.name, [(i, i + 1) for i in range(axis.size - 1)])
    return (total.stack,)


def _span(x: LocalTensor, dim: int, start: int, stop: int, at: int, size: int) -> LocalTensor:
    # Elements start to stop of a dim, put at position `at` of one of `size` elements that are zero elsewhere.
    lead = (slice(None),) * (x.mesh.ndim + dim)
    old, new = x.shape, (*x.shape[:dim], size, *x.shape[dim + 1 :])
    source, target = (*lead, slice(start, stop)), (*lead, slice(at, at + stop - start))

    def put(a: Any, shape: Shape, into: tuple[Any, ...], out_of: tuple[Any, ...]) -> Any:
        out = zeros(a, (*[1] * x.mesh.ndim, *shape))
        out[into] = a[out_of]
        return out

    return _mapped(x.stack, x.mesh, new, lambda a: put(a, new, target, source), lambda a: put(a, old, source, target))


haloed = Row("haloed", _haloed, _haloed_vjp, linear=True)


def halo_exchange(x: LocalTensor, name: str, dim: int, halo: tuple[int, int]) -> LocalTensor:
    """Put the neighbours' elements around dim `dim` of each device's array; outside, there are zeros."""
    (axis,) = whole_axes(x, name, "halo_exchange")
    dim = _dim_of(x, dim, "halo_exchange")
    if max(halo) > x.shape[dim]:
        raise BindingError(f"halo_exchange: a halo of {halo} is wider than the {x.shape[dim]} elements of a neighbour.")
    return LocalTensor(haloed(x.stack, axis=axis, dim=dim, halo=halo), x.mesh)


# -- with a root -----------------------------------------------------------------------------------------


def _root(x: LocalTensor, name: str, root: int, function: str) -> Axis:
    (axis,) = whole_axes(x, name, function)
    if isinstance(root, bool) or not isinstance(root, int) or not 0 <= root < axis.size:
        raise LayoutError(f"{function}: root {root!r} is no position along {name!r}, which has {axis.size}.")
    return axis


def broadcast(x: LocalTensor, axis: str, root: int = 0) -> LocalTensor:
    """Give every member of a group along `axis` what its member `root` holds."""
    found = _root(x, axis, root, "broadcast")
    if found.size == 1:
        return x
    one = restrict(x.stack, axis=found, at=root)
    lead = [None if n == axis else n for n in x.mesh.axis_names]
    everywhere = relayout(one, layout=Layout(x.mesh, [*lead, *[None] * x.ndim]))
    return LocalTensor(unfold(everywhere, layout=x.stack.layout, shape=x.stack.shape), x.mesh)


def reduce(x: LocalTensor, axis: str, root: int = 0, reduce_op: ReduceOp | str = "sum") -> LocalTensor:
    """Reduce over a group along `axis` onto its member `root`; the others get zeros."""
    found = _root(x, axis, root, "reduce")
    if found.size == 1:
        return x
    pending = _pending(x, (found,), ReduceOp.of(reduce_op))
    return _landed(pending, x.mesh, found, root, x.stack.shape)


def _landed(x: Tensor, mesh: DeviceMesh, axis: Axis, root: int, shape: Shape) -> LocalTensor:
    # Bring a stack without the dim of an axis to the devices at `root`, with zeros elsewhere.
    part = mesh.fix({axis.name: root})
    dims = [None if n == axis.name else n for n in mesh.axis_names]
    there = relayout(x, layout=Layout(part, [*dims, *[None] * (x.ndim - mesh.ndim)]))
    layout = stack_layout(mesh, len(shape) - mesh.ndim)
    return LocalTensor(embed(there, axis=axis, at=root, layout=layout, shape=shape), mesh)


def gather(x: LocalTensor, axis: str, root: int = 0, dim: int = 0) -> LocalTensor:
    """Concatenate what a group along `axis` holds along dim `dim`, on its member `root`; the others get zeros."""
    found = _root(x, axis, root, "gather")
    dim, mesh, shape = _dim_of(x, dim, "gather"), x.mesh, x.shape
    if found.size == 1:
        return x
    at = mesh.axis_names.index(axis)
    part = mesh.fix({axis: root})
    lead = [None if n == axis else n for n in mesh.axis_names]
    there = relayout(x.stack, layout=Layout(part, [*lead, *[None] * x.ndim]))
    wide = (*shape[:dim], found.size * shape[dim], *shape[dim + 1 :])
    sizes = tuple(1 if n == axis else s for n, s in zip(mesh.axis_names, mesh.mesh_shape, strict=True))
    order = (*[i for i in range(mesh.ndim) if i != at], *range(mesh.ndim, mesh.ndim + dim), at)
    order = (*order, *range(mesh.ndim + dim, mesh.ndim + len(shape)))

    def kernel(a: Any) -> Any:
        return _reshape(_permute(a, order), (*[1] * mesh.ndim, *wide))

    def transpose(a: Any) -> Any:
        split = _reshape(a, (*[1] * (mesh.ndim - 1), *shape[:dim], found.size, *shape[dim:]))
        return _permute(split, tuple(int(i) for i in np.argsort(order)))

    layout = Layout(part, [*lead, *[None] * x.ndim])
    joined = local_map(there, kernel=kernel, transpose=transpose, layout=layout, shape=(*sizes, *wide))
    whole = (*mesh.mesh_shape, *wide)
    return LocalTensor(embed(joined, axis=found, at=root, layout=stack_layout(mesh, len(wide)), shape=whole), mesh)


def scatter(x: LocalTensor, axis: str, root: int = 0, dim: int = 0) -> LocalTensor:
    """Give every member of a group along `axis` its piece of dim `dim` of what member `root` holds."""
    found = _root(x, axis, root, "scatter")
    dim, mesh = _dim_of(x, dim, "scatter"), x.mesh
    if x.shape[dim] % found.size:
        raise BindingError(f"scatter needs equal pieces: {x.shape[dim]} is not a multiple of {found.size}.")
    if found.size == 1:
        return x
    one = restrict(x.stack, axis=found, at=root)
    lead = [None if n == axis else n for n in mesh.axis_names]
    rest = [found if k == dim else None for k in range(x.ndim)]
    pieces = relayout(one, layout=Layout(mesh, [*lead, *rest]))
    shape = (*x.shape[:dim], x.shape[dim] // found.size, *x.shape[dim + 1 :])
    return _mapped(pieces, mesh, shape, lambda a: a, lambda a: a)


def send_recv(x: LocalTensor, axis: str, source: int, destination: int) -> LocalTensor:
    """Send what position `source` along `axis` holds to position `destination`; the others get zeros."""
    named(x, axis, "send_recv")
    return ppermute(x, axis, [(source, destination)])


def _reshape(a: Any, shape: Shape) -> Any:
    return array_namespace(a).reshape(a, shape)


def _permute(a: Any, order: Sequence[int]) -> Any:
    return array_namespace(a).permute_dims(a, tuple(order))
