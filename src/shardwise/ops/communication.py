"""Communication functions: tensors move between layouts and devices.

Each is defined in the local view, on what the devices hold, and returns a tensor with the stated layout.
Where `x` or `sharded_tensor` is a tree of tensors (lists, tuples, dicts), every leaf is treated alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import wraps
from inspect import signature
from math import prod
from typing import Any, NamedTuple

import numpy as np
import optree

from shardwise.caches import cache
from shardwise.errors import ArgumentError, LayoutError, as_int, check_flag, did_you_mean, is_list
from shardwise.layout.axis import Axis, common, has_crossing, is_disjoint, without
from shardwise.layout.context import current_mesh
from shardwise.layout.conversion import LayoutLike, as_layout
from shardwise.layout.cut import Cut
from shardwise.layout.device import CPU, Accelerator, Device, default_device
from shardwise.layout.layout import Layout
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import Edge, ReduceOp
from shardwise.layout.spec import P, ShardingSpec, reductions
from shardwise.ops import local_collectives
from shardwise.ops.local_view import as_local, each_name, is_inside, named_axes
from shardwise.ops.permutation import sources_of
from shardwise.prim.face import public
from shardwise.prim.movement.exchanges import check_slices, exchange_blocks, swap_slices
from shardwise.prim.movement.shards import fold, permute_shards, reduce_copies
from shardwise.prim.relayout import cut_as, cut_dim, relayout, resolve
from shardwise.prim.tensor import Tensor, asarray, host_array, move_to, place_data

AxisNames = str | Sequence[str] | None


def _tree(function: Callable[..., Any]) -> Callable[..., Any]:
    """Apply a function of one tensor to every leaf of a tree, and check the keywords it is given."""
    parameters = signature(function).parameters
    names = list(parameters)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and args and type(args[0]) is Tensor:  # as most calls are
            return function(*args)
        if unknown := [name for name in kwargs if name not in names]:
            raise ArgumentError(
                f"{function.__name__}() does not understand the keyword {unknown[0]!r}.\n"
                f"  keywords: {', '.join(names[1:]) or 'none'}{did_you_mean(unknown[0], names[1:])}"
            )
        if not args and names[0] in kwargs:
            args = (kwargs.pop(names[0]),)
        if not args:
            return function(**kwargs)  # which says what is missing
        x, args = args[0], args[1:]
        if isinstance(x, Tensor) or hasattr(x, "__array__") or _is_data(x):
            return function(x, *args, **kwargs)
        leaves, tree = optree.tree_flatten(x)
        if optree.treespec_is_leaf(tree):
            return function(x, *args, **kwargs)
        return optree.tree_unflatten(tree, [function(leaf, *args, **kwargs) for leaf in leaves])

    return call


def _is_data(x: Any) -> bool:
    # Numbers, and nested lists of them, are one array rather than a tree of scalars.
    if is_list(x):
        return all(map(_is_data, x))
    return isinstance(x, int | float | complex | np.generic)


def _tensor(x: Any, function: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise ArgumentError(f"{function} needs a Tensor, got {type(x).__name__}; make one with shard(x, mesh, P(...)).")
    return x


def _check_outside(x: Any, function: str) -> None:
    if isinstance(x, Tensor) and x.is_local:
        raise ArgumentError(
            f"{function} has no local form: it says where a tensor lies, and inside shard_map it was given {x!r}.\n"
            "  call it on tensors, outside shard_map; all_gather, all_slice and all_to_all change what devices hold."
        )


def _dim(x: Tensor, axis: int, function: str, name: str = "axis") -> int:
    dim = as_int(axis)
    if dim is None:
        raise ArgumentError(f"{function}: {name} is a tensor dim as an int, got {axis!r}.")
    if not -x.ndim <= dim < x.ndim:
        raise LayoutError(f"{function}: {name}={dim} is out of range for a tensor with {x.ndim} dims.")
    return dim % x.ndim


# -- any layout to any other ---------------------------------------------------------------------------


@public()
@_tree
def shard(
    x: Any,
    mesh: DeviceMesh | None,
    dim_specs: LayoutLike,
    replicated_axes: Iterable[str] | None = None,
    *,
    partial_axes: Any = None,
) -> Tensor:
    """Spread a tensor, or anything array-like, over a mesh as the specs say.

    `dim_specs` is a list of DimSpecs, `P(...)`, placements, a mapping or a Layout. A tensor that is laid out
    already, on this mesh or another, is resharded with the fewest bytes. The keyword `partial_axes` names
    axes along which the result is to be a pending sum (or maps them to another reduction).

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P
    >>> mesh = DeviceMesh((2, 2), ("dp", "tp"))
    >>> x = shard(np.arange(6.0).reshape(2, 3), mesh, P("dp", "tp"))
    >>> [x.local(device).tolist() for device in range(4)]
    [[[0.0, 1.0]], [[2.0]], [[3.0, 4.0]], [[5.0]]]
    """
    _check_outside(x, "shard")
    plain = replicated_axes is None and partial_axes is None and isinstance(x, Tensor)
    if plain and type(dim_specs) is Layout and dim_specs.mesh is mesh and dim_specs.rank == x.ndim:
        return relayout(x, layout=dim_specs) if x.level else move_to(x, dim_specs)  # as in programs that reshard often
    x = x if hasattr(x, "ndim") else host_array(x)
    layout = as_layout(dim_specs, x.ndim, mesh)
    if mesh is not None and layout.mesh is not current_mesh(mesh):
        raise LayoutError(f"the specs belong to the mesh ({layout.mesh}), but mesh is ({mesh}).")
    if partial_axes is not None:
        already = {str(a): layout.reduce_op or "sum" for a in layout.partial}
        layout = Layout(layout.mesh, layout.dims, already | reductions(partial_axes))
    if replicated_axes is not None:
        names = ShardingSpec(layout.mesh, (), replicated_axes).replicated_axes
        replicated = [layout.mesh.axis(name, "replicated_axes") for name in sorted(names)]
        if used := [a for a in replicated if not is_disjoint([a], (*layout.sharded_axes, *layout.partial))]:
            raise LayoutError(f"axis {str(used[0])!r} is in replicated_axes, but {layout} uses it.")
    return relayout(x, layout=layout) if isinstance(x, Tensor) else place_data(x, layout)


@public()
def reshard(*args: Any, **kwargs: Any) -> Any:
    """Deprecated: use `shard`, which takes tensors of any layout.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P
    >>> mesh = DeviceMesh((2,), ("x",))
    >>> with warnings.catch_warnings(action="ignore"):
    ...     reshard(shard(np.zeros(4), mesh, P("x")), mesh, P()).type_text
    'float64[4]'
    """
    warnings.warn(
        "reshard is deprecated; use shard, which takes tensors of any layout.", DeprecationWarning, stacklevel=2
    )
    return shard(*args, **kwargs)


@public()
@_tree
def all_gather(sharded_tensor: Any, axis: int | None = None, *, physical_axis: AxisNames = None) -> Tensor:
    """Make dim `axis` whole on every device; without it, every sharded dim.

    The keyword `physical_axis` names the mesh axes to gather over, if not all that split the dim.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P
    >>> x = shard(np.arange(4.0), DeviceMesh((2,), ("x",)), P("x"))
    >>> all_gather(x, 0).local(1)
    array([0., 1., 2., 3.])
    """
    physical = physical_axis
    if is_inside(sharded_tensor):
        return local_collectives.all_gather(sharded_tensor, physical, 0 if axis is None else axis)
    x = _tensor(sharded_tensor, "all_gather")
    over = named_axes(x.mesh, physical, "all_gather") if physical is not None else x.layout.sharded_axes
    dims = range(x.ndim) if axis is None else [_dim(x, axis, "all_gather")]
    if physical is not None and not common(over, [a for k in dims for a in x.layout.dims[k].axes]):
        where = "any dim" if axis is None else f"dim {axis}"
        raise LayoutError(f"all_gather: physical_axis={physical!r} does not split {where} of {x.layout}.")
    _check_nested(over, [a for k in dims for a in x.layout.dims[k].axes], x.layout, "all_gather")
    cuts = [_less(cut, over) if k in dims else cut for k, cut in enumerate(x.layout.dims)]
    return relayout(x, layout=cut_as(x.layout, tuple(cuts)))


def _check_nested(axes: Sequence[Axis], used: Sequence[Axis], layout: Layout, function: str) -> None:
    if has_crossing(used, axes):
        raise LayoutError(f"{function}: the axes {list(axes)} cut across the sub-axes that {layout} uses.")


def _less(cut: Cut, axes: Sequence[Axis]) -> Cut | tuple[Axis, ...]:
    left = without(cut.axes, axes)
    return cut if left == cut.axes else left


@public()
@_tree
def all_slice(sharded_tensor: Any, axis: int, mesh_axes: AxisNames = None) -> Tensor:
    """Split dim `axis` over mesh axes on which the tensor is replicated (all of them by default).

    Nothing is sent, unless the dim is split already and its new pieces, which are balanced over all of it, cross
    the borders of the old.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P
    >>> x = shard(np.arange(4.0), DeviceMesh((2,), ("x",)), P(None))
    >>> all_slice(x, 0).local(1)
    array([2., 3.])
    """
    if is_inside(sharded_tensor):
        return local_collectives.all_slice(sharded_tensor, mesh_axes, axis)
    x = _tensor(sharded_tensor, "all_slice")
    dim = _dim(x, axis, "all_slice")
    over = named_axes(x.mesh, mesh_axes, "all_slice") if mesh_axes is not None else x.layout.replicated_axes
    if used := [a for a in over if without([a], x.layout.replicated_axes)]:
        raise LayoutError(
            f"all_slice needs axes on which the tensor is replicated, but {x.layout} uses {str(used[0])!r}."
        )
    return relayout(x, layout=cut_dim(x.layout, dim, (*x.layout.dims[dim].axes, *over)))


@public()
@_tree
def all_to_all(
    sharded_tensor: Any, split_axis: int, concat_axis: int, tiled: bool = True, *, mesh_axes: AxisNames = None
) -> Tensor:
    """Move the sharding of dim `concat_axis`, or `mesh_axes` of it, to dim `split_axis`: a distributed transpose.

    If the two are one dim, each device cuts its part of it into a piece for each device of its group, and joins
    what comes: the devices exchange blocks. A dim that is not sharded stays as it is.

    Not `tiled`, dim `split_axis` has one slice for each device of a group: it disappears, and a new dim with what
    came from each device appears at `concat_axis`.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P
    >>> mesh = DeviceMesh((2,), ("x",))
    >>> x = shard(np.arange(4.0).reshape(2, 2), mesh, P("x", None))
    >>> all_to_all(x, split_axis=1, concat_axis=0).local(0).tolist()
    [[0.0], [2.0]]
    >>> all_to_all(shard(np.arange(4.0), mesh, P("x")), 0, 0)
    Tensor([0., 2., 1., 3.], float64[4@x] on x=2)
    """
    tiled = check_flag(tiled, "all_to_all: tiled is True or False")
    if is_inside(sharded_tensor):
        return local_collectives.all_to_all(sharded_tensor, mesh_axes, split_axis, concat_axis, tiled)
    x = _tensor(sharded_tensor, "all_to_all")
    split, concat = _dim(x, split_axis, "all_to_all", "split_axis"), _dim(x, concat_axis, "all_to_all", "concat_axis")
    cuts = list(x.layout.dims)
    moving = cuts[concat].axes if mesh_axes is None else _moving(x, mesh_axes, concat)
    if not tiled:
        return _swap_blocks(x, split, concat, moving)
    if not moving:
        return x
    if split == concat:
        return exchange_blocks(_without_halo(x), dim=split, axes=moving)
    new: list[Cut | tuple[Axis, ...]] = [*cuts]
    new[concat], new[split] = without(cuts[concat].axes, moving), (*cuts[split].axes, *moving)
    return relayout(x, layout=cut_as(x.layout, tuple(new)))


def _moving(x: Tensor, names: AxisNames, dim: int) -> tuple[Axis, ...]:
    # The named axes that split a dim; one of a single device splits nothing and need not.
    axes = tuple(a for a in named_axes(x.mesh, names, "all_to_all") if a.size > 1)
    _check_nested(axes, x.layout.dims[dim].axes, x.layout, "all_to_all")
    moving = common(axes, x.layout.dims[dim].axes)
    if prod(a.size for a in moving) != prod(a.size for a in axes):
        raise LayoutError(
            f"all_to_all: dim {dim} is not sharded by {names!r} in {x.layout}, so there is nothing to move from it."
        )
    return moving


def _without_halo(x: Tensor) -> Tensor:
    plain = x.layout.without_halo()
    return x if x.layout is plain else relayout(x, layout=plain)


def _swap_blocks(x: Tensor, split: int, concat: int, moving: tuple[Axis, ...]) -> Tensor:
    # The devices that differ in `moving` swap slices of dim `split`, which has as many as there are devices.
    x = _without_halo(x)
    if split != concat:
        return swap_slices(x, split=split, concat=concat, axes=moving, home=concat)
    check_slices(x.layout, x.shape, split, prod(a.size for a in moving))
    return exchange_blocks(x, dim=split, axes=moving) if moving else x


# -- reductions ----------------------------------------------------------------------------------------


@public()
@_tree
def all_reduce(
    sharded_tensor: Any, *, reduce_op: str | ReduceOp | None = None, reduce_axes: AxisNames = None
) -> Tensor:
    """Reduce what the devices hold over the groups that differ in `reduce_axes`, for all of them.

    On partial values this resolves them. Otherwise shards along an axis that splits a dim are added up: the
    result has the shape of one shard. `reduce_axes` are by default the partial axes or, if there are none,
    all axes; `reduce_op` is sum unless named: sum, avg, max, min, prod, band, bor, bxor.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P
    >>> x = shard(np.arange(4.0), DeviceMesh((2,), ("x",)), P("x"))
    >>> all_reduce(x)
    Tensor([2., 4.], float64[2] on x=2)
    """
    if is_inside(sharded_tensor):
        return local_collectives.all_reduce(sharded_tensor, reduce_axes, "sum" if reduce_op is None else reduce_op)
    return _finish(_pend(_tensor(sharded_tensor, "all_reduce"), reduce_op, reduce_axes, "all_reduce"), reduce_axes)


def _finish(x: Tensor, names: AxisNames) -> Tensor:
    layout = _without_pending(x.layout, _key(names))
    return relayout(x, layout=layout) if x.level else move_to(x, layout)


@cache()
def _without_pending(layout: Layout, names: Hashable) -> Layout:
    left = () if names is None else without(layout.partial, named_axes(layout.mesh, names, "all_reduce"))
    return Layout(layout.mesh, layout.dims, left, layout.reduce_op or "sum")


def _key(names: AxisNames) -> Hashable:
    return names if names is None or isinstance(names, str) else each_name(names)


def _reduce_axes(layout: Layout, names: object, function: str) -> tuple[Axis, ...]:
    if names is not None:
        return named_axes(layout.mesh, names, function)
    return layout.partial or tuple(map(layout.mesh.axis, layout.mesh.axis_names))


class _Reduction(NamedTuple):
    """How the shards of a layout are reduced over some axes."""

    op: ReduceOp
    resolve: bool  # another reduction is pending
    split: tuple[Axis, ...]  # axes along which shards are terms
    copies: int  # equal values, along axes on which it is replicated
    without_halo: Layout


@cache()
def _reduction(layout: Layout, op: ReduceOp | None, names: Hashable, function: str) -> _Reduction:
    pending = layout.partial
    axes = _reduce_axes(layout, names, function)
    how = op or layout.reduce_op or ReduceOp.SUM
    if not is_disjoint(axes, pending) and how is not layout.reduce_op:
        raise LayoutError(
            f"{function}: {layout} has a pending {layout.reduce_op}, which cannot be resolved as {how}.\n"
            f"  leave reduce_op out, or resolve it first: all_reduce(x)."
        )
    resolve = bool(pending) and how is not layout.reduce_op
    layout = layout.resolved() if resolve else layout
    split, equal = common(axes, layout.sharded_axes), common(axes, layout.replicated_axes)
    if prod(a.size for a in (*split, *equal, *common(axes, layout.partial))) != prod(a.size for a in axes):
        raise LayoutError(f"{function}: the axes {list(axes)} cut across the sub-axes that {layout} uses.")
    return _Reduction(how, resolve, split, prod(a.size for a in equal), layout.without_halo())


def _pend(x: Tensor, op: str | ReduceOp | None, names: AxisNames, function: str) -> Tensor:
    # The reduction as a pending one: partial axes as they are, shards along other axes seen as terms.
    reduction = _reduction(x.layout, None if op is None else ReduceOp.of(op), _key(names), function)
    reduction.op.check_dtype(x.dtype)
    x = resolve(x) if reduction.resolve else x
    if reduction.copies > 1:
        x = reduce_copies(x, reduction.op, reduction.copies)  # equal copies need no communication
    if not reduction.split:
        return x
    x = relayout(x, layout=reduction.without_halo) if x.layout is not reduction.without_halo else x
    return fold(x, axes=reduction.split, op=reduction.op)


@public()
@_tree
def reduce_scatter(
    sharded_tensor: Any,
    axis: int,
    *,
    reduce_op: str | ReduceOp | None = None,
    reduce_axes: AxisNames = None,
) -> Tensor:
    """Reduce as `all_reduce` does, and leave each device of a group its piece of dim `axis`.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P
    >>> x = shard(np.arange(4.0), DeviceMesh((2,), ("x",)), P("x"))
    >>> reduce_scatter(x, 0)
    Tensor([2., 4.], float64[2@x] on x=2)
    """
    if is_inside(sharded_tensor):
        how = "sum" if reduce_op is None else reduce_op
        return local_collectives.reduce_scatter(sharded_tensor, reduce_axes, axis, how)
    x = _tensor(sharded_tensor, "reduce_scatter")
    dim = _dim(x, axis, "reduce_scatter")
    y = _pend(x, reduce_op, reduce_axes, "reduce_scatter")
    return relayout(y, layout=_scatter(x.layout, y.layout, _key(reduce_axes), dim))


@cache()
def _scatter(layout: Layout, pending: Layout, names: Hashable, dim: int) -> Layout:
    over = _reduce_axes(layout, names, "reduce_scatter")
    cuts = [(*cut.axes, *over) if k == dim else cut for k, cut in enumerate(pending.dims)]
    return Layout(pending.mesh, cuts, without(pending.partial, over), pending.reduce_op or "sum")


@public()
@_tree
def pmean(sharded_tensor: Any, reduce_axes: AxisNames = None) -> Tensor:
    """Average what the devices hold over the groups that differ in `reduce_axes`, as `all_reduce` sums it.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P
    >>> pmean(shard(np.arange(4.0), DeviceMesh((2,), ("x",)), P("x")))
    Tensor([1., 2.], float64[2] on x=2)
    """
    return all_reduce(sharded_tensor, reduce_op="avg", reduce_axes=reduce_axes)


# -- point to point ------------------------------------------------------------------------------------


@public()
@_tree
def ppermute(
    sharded_tensor: Any, permutation: Sequence[tuple[int, int]], *, axis: str | Sequence[str] | None = None
) -> Tensor:
    """Send shards from device to device; devices that receive nothing get zeros.

    `permutation` lists (source, target) pairs of device indices or, with `axis`, of positions along that
    mesh axis, or along several as one, major to minor.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P
    >>> x = shard(np.arange(4.0), DeviceMesh((2,), ("x",)), P("x"))
    >>> ppermute(x, [(0, 1)])
    Tensor([0., 0., 0., 1.], float64[4@x] on x=2)
    """
    if is_inside(sharded_tensor):
        if axis is None:
            raise ArgumentError(
                "inside shard_map, ppermute goes along a mesh axis; name it: ppermute(x, pairs, axis='x')."
            )
        return local_collectives.ppermute(sharded_tensor, axis, permutation)
    x = _without_halo(_tensor(sharded_tensor, "ppermute"))
    return permute_shards(x, sources=sources_of(x.mesh, permutation, axis))


@public()
@_tree
def shift(sharded_tensor: Any, axis: str | Sequence[str], offset: int = 1, *, rotate: bool = True) -> Tensor:
    """Shift shards along a mesh axis: what position i held goes to position i + offset.

    Several axes are taken as one, major to minor. With `rotate` the last go to the first; without, those that
    receive nothing get zeros.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P
    >>> shift(shard(np.arange(4.0), DeviceMesh((4,), ("x",)), P("x")), "x", 1)
    Tensor([3., 0., 1., 2.], float64[4@x] on x=4)
    """
    mesh = (as_local(sharded_tensor, "shift") if is_inside(sharded_tensor) else _tensor(sharded_tensor, "shift")).mesh
    places = as_int(offset)
    if places is None:
        raise ArgumentError(f"shift: offset is how many positions as an int, got {offset!r}.")
    rotate = check_flag(rotate, "shift: rotate is True or False")
    size = prod(a.size for a in named_axes(mesh, axis, "shift"))
    return ppermute(sharded_tensor, _ring_pairs(size, places, rotate), axis=axis)


@cache()
def _ring_pairs(size: int, offset: int, rotate: bool) -> tuple[tuple[int, int], ...]:
    return tuple((i, (i + offset) % size) for i in range(size) if rotate or 0 <= i + offset < size)


@public()
@_tree
def halo_exchange(
    sharded_tensor: Any,
    axis: int,
    halo: tuple[int, int] | int,
    *,
    edge: Edge | None = None,
    mesh_axis: str | None = None,
) -> Tensor:
    """Let each shard of dim `axis` also hold `halo` = (low, high) elements of its neighbours.

    At the border a shard holds less (`edge="clip"`, the default) or is filled with zeros ("pad"). Inside
    `shard_map` the neighbours are those along `mesh_axis`, and the border is filled.

    >>> import numpy as np
    >>> from shardwise import DeviceMesh, P
    >>> halo_exchange(shard(np.arange(4.0), DeviceMesh((2,), ("x",)), P("x")), 0, 1).local(0)
    array([0., 1., 2.])
    """
    if edge is not None and not isinstance(edge, str):
        raise ArgumentError(f"halo_exchange: edge is 'clip' or 'pad', got {edge!r}.")
    width = as_int(halo)
    halo = halo if width is None else width
    if is_inside(sharded_tensor):
        if mesh_axis is None:
            raise ArgumentError("inside shard_map, halo_exchange goes along a mesh axis: mesh_axis='x'.")
        if edge == "clip":
            raise ArgumentError("inside shard_map all shards are equal, so halo_exchange has edge='pad' only.")
        around = Cut((), halo=halo, edge="pad" if edge is None else edge).halo
        return local_collectives.halo_exchange(sharded_tensor, mesh_axis, axis, around)
    x = _tensor(sharded_tensor, "halo_exchange")
    if mesh_axis is not None:
        raise ArgumentError("halo_exchange: mesh_axis is for use inside shard_map; here the dim's own axes count.")
    dim = _dim(x, axis, "halo_exchange")
    old = x.layout.dims[dim]
    cut = Cut(old.axes, split=old.split, offsets=old.offsets, halo=halo, edge="clip" if edge is None else edge)
    return relayout(x, layout=cut_dim(x.layout, dim, cut))


# -- devices -------------------------------------------------------------------------------------------


@public()
@_tree
def distributed_broadcast(x: Any, mesh: DeviceMesh | None = None) -> Tensor:
    """Put the whole value on every device of a mesh.

    >>> from shardwise import DeviceMesh
    >>> distributed_broadcast([1.0, 2.0], DeviceMesh((2,), ("x",))).local(1)
    array([1., 2.])
    """
    _check_outside(x, "distributed_broadcast")
    own = x.mesh if isinstance(x, Tensor) and not x.mesh.is_single else None
    return shard(x, current_mesh(own if mesh is None else mesh), P())


@public()
@_tree
def to_device(x: Any, device: Device | None = None, *, sharding: Any = None) -> Tensor:
    """Move a tensor to one device, or to a sharding.

    With neither, a tensor stays where it is, and anything else goes to the default device.

    >>> to_device([1.0], CPU(1)).device
    CPU(1)
    """
    _check_outside(x, "to_device")
    if device is not None and sharding is not None:
        raise ArgumentError("to_device takes a device or a sharding, not both.")
    if sharding is not None:
        x = x if hasattr(x, "ndim") else host_array(x)
        layout = as_layout(sharding, x.ndim, x.mesh if isinstance(x, Tensor) and not x.mesh.is_single else None)
        return shard(x, layout.mesh, layout)
    if device is None:
        return x if isinstance(x, Tensor) else asarray(x)
    if not isinstance(device, Device):
        raise ArgumentError(f"to_device needs a Device such as CPU(0), got {device!r}.")
    with default_device(device):
        x = asarray(x)
    return relayout(x, layout=Layout.replicated(DeviceMesh.single(device), x.ndim))


@public()
@_tree
def transfer_to(x: Any, device: Device | None = None, *, sharding: Any = None) -> Tensor:
    """Move a tensor to one device, or to a sharding; the same as `to_device`.

    >>> transfer_to([1.0, 2.0], CPU(1)).device
    CPU(1)
    """
    _check_outside(x, "transfer_to")
    return to_device(x, device, sharding=sharding)


@public()
@_tree
def cpu(x: Any) -> Tensor:
    """Move a tensor to the CPU.

    >>> cpu([1.0]).device
    CPU(0)
    """
    _check_outside(x, "cpu")
    return to_device(x, CPU())


@public()
@_tree
def gpu(x: Any) -> Tensor:
    """Move a tensor to the first accelerator.

    >>> from shardwise import accelerator_count
    >>> accelerator_count() == 0 or gpu([1.0]).device == Accelerator(0)
    True
    """
    _check_outside(x, "gpu")
    return to_device(x, Accelerator())


@public()
@_tree
def accelerator(x: Any, device_id: int = 0) -> Tensor:
    """Move a tensor to the accelerator with this number.

    >>> from shardwise import accelerator_count
    >>> accelerator_count() < 2 or accelerator([1.0], 1).device == Accelerator(1)
    True
    """
    _check_outside(x, "accelerator")
    return to_device(x, Accelerator(device_id))
