"""Rows of communication in the global view: values stay, or shards are reduced and sent, device by device."""

from math import prod
from typing import Any

import numpy as np

from shardwise import Layout, ReduceOp, Tensor
from shardwise.layout.axis import Axis
from shardwise.layout.placement import reductions_of
from tests.every.calls import Call, Setting
from tests.every.comparison import Rule
from tests.every.shards import axes_of, fold_shards, permute
from tests.every.table import row
from tests.every.values import EVERY, MOVABLE, Shape
from tests.layout.oracle import digit, lengths


def _same(x: np.ndarray) -> np.ndarray:
    return x


def _moved(setting: Setting, shape: Shape, **how: Any) -> str:
    return setting.operand(shape, setting.dtype(MOVABLE), **how)


def _layout(setting: Setting, name: str = "a") -> Layout:
    layout = setting.operands[name].layout
    assert layout is not None
    return layout


# -- layouts and devices ---------------------------------------------------------------------------------------


@row("shard", "reshard")
def shard(setting: Setting, name: str) -> Call:
    """Any layout to any other, on this mesh or another."""
    shape, dtype = setting.shape(), setting.dtype(MOVABLE)
    a = setting.beside(shape, dtype) if setting.draws.rarely(4) else setting.operand(shape, dtype)
    mesh = setting.other_mesh("there")
    op = setting.draws.choice([None, *(op for op in ReduceOp if op in reductions_of(dtype))])
    layout = setting.layout(shape, mesh, op)
    code = f"sw.{name}({a}, {setting.mesh_name(mesh)}, {setting.name(layout)})"
    averages = op is ReduceOp.AVG  # which are rounded, and the sum of equal copies leaves the range that they are in
    scale = _same if averages else None
    return setting.call(
        code, _same, rule=Rule(exact=not averages), scale=scale, verify=lambda x: _is_laid_out(x, layout)
    )


def _is_laid_out(x: Tensor, layout: Layout) -> str | None:
    return None if x.layout is layout else f"{x.layout} on {x.mesh!r} instead of {layout} on {layout.mesh!r}"


@row("distributed_broadcast", "to_device", "transfer_to", "cpu", "Tensor.gather")
def place(setting: Setting, name: str) -> Call:
    """The whole value on every device, or on one."""
    shape = setting.shape()
    a = _moved(setting, shape)
    if name == "Tensor.gather":
        return setting.call(
            f"{a}.gather()", _same, verify=lambda x: _is_laid_out(x, Layout.replicated(setting.mesh, x.ndim))
        )
    if name == "distributed_broadcast":
        mesh = setting.other_mesh("there")
        code = f"sw.distributed_broadcast({a}, {setting.mesh_name(mesh)})"
        return setting.call(code, _same, verify=lambda x: _is_laid_out(x, Layout.replicated(mesh, x.ndim)))
    if name == "cpu":
        return setting.call(f"sw.cpu({a})", _same)
    if setting.draws.below(2):
        layout = setting.layout(shape, setting.other_mesh("there"))
        code = f"sw.{name}({a}, sharding={setting.name(layout)})"
        return setting.call(code, _same, verify=lambda x: _is_laid_out(x, layout))
    device = setting.draws.choice(list(setting.mesh.devices))
    code = f"sw.{name}({a}, {device!r})"
    return setting.call(code, _same, verify=lambda x: None if x.device == device else f"{x.device} instead of {device}")


@row("all_gather")
def all_gather(setting: Setting, name: str) -> Call:
    """One dim or all, over all of its axes or one of them."""
    shape = setting.shape()
    a = _moved(setting, shape)
    axis = setting.dim(len(shape)) if shape and setting.draws.below(2) else None
    cuts = _layout(setting).dims
    axes = [x for k, cut in enumerate(cuts) for x in cut.axes if axis is None or k == axis % len(shape)]
    text, over = f"axis={axis}", axes
    if axes and setting.draws.below(2):
        over = [setting.draws.choice(axes)]
        text += f", physical_axis={str(over[0])!r}"

    def verify(x: Tensor) -> str | None:
        left = [own for k, cut in enumerate(x.layout.dims) for own in cut.axes if axis is None or k == axis % x.ndim]
        return f"{x.layout} is still split by {over}" if set(left) & set(over) else None

    return setting.call(f"sw.all_gather({a}, {text})", _same, verify=verify)


@row("all_slice")
def all_slice(setting: Setting, name: str) -> Call:
    """A dim, by all axes that are free or by one of them."""
    shape = setting.shape(low=1)
    a, axis = _moved(setting, shape), setting.dim(len(shape))
    free = _layout(setting).replicated_axes
    text, over = f"axis={axis}", list(free)
    if free and setting.draws.below(2):
        over = [setting.draws.choice(free)]
        text += f", mesh_axes={str(over[0])!r}"

    def verify(x: Tensor) -> str | None:
        parts = prod(own.size for own in x.layout.dims[axis].axes)
        wanted = prod(own.size for own in (*_layout(setting).dims[axis].axes, *over))
        return None if parts == wanted else f"dim {axis} of {x.layout} has {parts} parts instead of {wanted}"

    return setting.call(f"sw.all_slice({a}, {text})", _same, verify=verify)


@row("all_to_all")
def all_to_all(setting: Setting, name: str) -> Call:
    """The sharding of one dim to another; blocks of one dim; or slices of one dim that become another."""
    kind = setting.draws.choice(["tiled", "blocks", "slices"])
    shape = setting.shape(low=1 if kind == "blocks" else 2)
    split, concat = (setting.draws.below(len(shape)) for _ in range(2))
    if kind == "blocks":
        concat = split
    elif split == concat:
        concat = (split + 1) % len(shape)
    if kind == "tiled":
        a = _moved(setting, shape)
        return setting.call(f"sw.all_to_all({a}, {split}, {concat})", _same)
    layout = setting.layout(shape, plain=True)
    count = prod(axis.size for axis in layout.dims[concat].axes)
    sizes = list(shape)
    if kind == "slices" and layout.dims[split].axes:
        a = setting.given(shape, setting.dtype(MOVABLE), layout)
        return setting.call(f"sw.all_to_all({a}, {split}, {concat})", _same)
    if kind == "slices":
        sizes[split], sizes[concat] = count, count * setting.draws.between(1, 2)
    else:
        sizes[split] = count * count * setting.draws.between(1, 2)
    # The layout is drawn for a shape; a plain one fits any.
    a = setting.given(tuple(sizes), setting.dtype(MOVABLE), layout)
    if kind == "blocks":
        return setting.call(f"sw.all_to_all({a}, {split}, {split})", lambda x: _exchange(x, split, count))
    code = f"sw.all_to_all({a}, {split}, {concat}, tiled=False)"
    return setting.call(code, lambda x: _swap(x, split, concat, count))


def _exchange(x: np.ndarray, dim: int, count: int) -> np.ndarray:
    if not x.size:
        return x
    blocks = x.reshape(*x.shape[:dim], count, count, -1, *x.shape[dim + 1 :])
    return np.swapaxes(blocks, dim, dim + 1).reshape(x.shape)


def _swap(x: np.ndarray, split: int, concat: int, count: int) -> np.ndarray:
    # Slice i of `split` on device j goes to device i, as slice j of a new dim.
    blocks = np.moveaxis(x, split, 0)
    dim = concat + 1 - (split < concat)
    cut = blocks.reshape(*blocks.shape[:dim], count, x.shape[concat] // count, *blocks.shape[dim + 1 :])
    return np.moveaxis(np.swapaxes(cut, 0, dim).reshape(blocks.shape), 0, concat)


# -- reductions --------------------------------------------------------------------------------------------------


def _reduction(
    setting: Setting, op: ReduceOp | None, dtype: np.dtype
) -> tuple[tuple[Axis, ...] | None, ReduceOp | None]:
    # Which axes to reduce over, of those that the layout has, and how: as it is pending, where it is.
    layout = _layout(setting)
    over = None if setting.draws.below(2) else tuple(setting.draws.some(axes_of(layout)))
    over = over or None
    if op is not None:
        return over, op
    meets = over is None or set(over) & set(layout.partial)
    if layout.partial and meets:
        return over, layout.reduce_op
    return over, setting.draws.choice([None, *(o for o in ReduceOp if o in reductions_of(dtype))])


@row("all_reduce", "reduce_scatter", "pmean")
def reduction(setting: Setting, name: str) -> Call:
    """What devices hold, over some axes, whether they split a dim, hold contributions or copies."""
    dtypes = EVERY if name != "pmean" else [t for t in EVERY if ReduceOp.AVG in reductions_of(t)]
    shape, dtype = setting.shape(low=1 if name == "reduce_scatter" else 0), setting.dtype(dtypes)
    a = setting.operand(shape, dtype, "odd")
    layout, x = _layout(setting), setting.operands[a]
    over, op = _reduction(setting, ReduceOp.AVG if name == "pmean" else None, dtype)
    axes = over if over is not None else layout.partial or tuple(axes_of(layout))
    how = op or layout.reduce_op or ReduceOp.SUM
    parts = [a] + ([f"{setting.dim(len(shape))}"] if name == "reduce_scatter" else [])
    parts += [f"reduce_op={str(op)!r}"] if op is not None and name != "pmean" else []
    parts += [f"reduce_axes={[str(axis) for axis in over]}"] if over is not None else []
    code = f"sw.{name}({', '.join(parts)})"
    exact = how not in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PROD) or dtype.kind in "biu"
    rule = Rule(exact=exact, signs=False, ulps=8 + setting.mesh.num_devices)
    if how is not layout.reduce_op and set(axes) & set(layout.partial):
        return setting.call(code, _same, refusal="cannot be resolved as")
    if how not in reductions_of(dtype):
        return setting.call(code, _same, refusal="")
    known = x if how is layout.reduce_op or not layout.partial else type(x)(x.value, layout.resolved())
    if fold_shards(known, axes, how) is None:
        return setting.call(code, _same, refusal="must be equal")
    size = type(x)(np.maximum(x.size, 1.0) if how is ReduceOp.PROD else x.size, layout.resolved())
    total = ReduceOp.PROD if how is ReduceOp.PROD else ReduceOp.SUM
    scale = fold_shards(size, [axis for axis in axes if axis not in layout.partial], total)
    return setting.call(code, lambda value: fold_shards(known, axes, how), rule=rule, scale=lambda size: scale)


# -- from device to device -----------------------------------------------------------------------------------------


@row("ppermute", "shift")
def ppermute(setting: Setting, name: str) -> Call:
    """Shards to other devices, along an axis or anyhow."""
    draws, mesh = setting.draws, setting.mesh
    shape = setting.shape()
    a = _moved(setting, shape)
    split = [axis.name for axis in _layout(setting).sharded_axes if axis.is_whole] or list(mesh.axis_names)
    axis = mesh.axis(draws.choice(split)) if name == "shift" or draws.below(2) else None
    count = mesh.num_devices if axis is None else axis.size
    if name == "shift":
        offset, rotate = draws.between(0, 4) - 2, draws.below(2) == 0
        pairs = [(i, (i + offset) % count) for i in range(count) if rotate or 0 <= i + offset < count]
        code = f"sw.shift({a}, {axis.name!r}, {offset}, rotate={rotate})" if axis is not None else ""
    else:
        pairs = [(i, j) for i, j in enumerate(draws.order(count)) if not draws.rarely(5)]
        code = f"sw.ppermute({a}, {pairs}{'' if axis is None else f', axis={axis.name!r}'})"
    back = {target: source for source, target in pairs}
    sources: list[int | None] = []
    for device in range(mesh.num_devices):
        if axis is None:
            sources.append(back.get(device))
            continue
        source = back.get(digit(mesh, axis, device))
        coord = [int(i) for i in np.unravel_index(device, mesh.mesh_shape)]
        if source is not None:
            coord[mesh.axis_names.index(axis.name)] = source
        sources.append(None if source is None else int(np.ravel_multi_index(coord, mesh.mesh_shape)))
    x = setting.operands[a]
    if permute(x, sources) is None:
        return setting.call(code, _same, refusal="shards")
    return setting.call(code, lambda value: permute(x, sources), rule=Rule(signs=not x.is_pending))


@row("halo_exchange")
def halo_exchange(setting: Setting, name: str) -> Call:
    """As much of the neighbours as they own."""
    shape = setting.shape(low=1)
    a, dim = _moved(setting, shape), setting.dim(len(shape))
    cut = _layout(setting).dims[dim]
    own = lengths(shape[dim], prod(axis.size for axis in cut.axes), cut.split, cut.offsets)
    halo = tuple(setting.draws.between(0, min(some, default=3)) for some in (own[:-1], own[1:]))
    edge = setting.draws.choice(["clip", "pad"])

    def verify(x: Tensor) -> str | None:
        return None if x.layout.dims[dim].halo == halo or not cut.axes else f"{x.layout} without the halo {halo}"

    return setting.call(f"sw.halo_exchange({a}, {dim}, {halo}, edge={edge!r})", _same, verify=verify)
