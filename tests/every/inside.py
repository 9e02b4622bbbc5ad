"""Rows of the collectives inside shard_map: each device has an array of its own, and groups are along named axes."""

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from shardwise import ReduceOp
from shardwise.layout.axis import Axis
from shardwise.layout.placement import reductions_of
from tests.every.calls import Call, Setting
from tests.every.comparison import Rule
from tests.every.meshes import draw_factors
from tests.every.table import row
from tests.every.values import EVERY, MOVABLE, NUMBERS, Shape, reduce_terms
from tests.layout.oracle import held_box

Group = Callable[[list[np.ndarray], int], np.ndarray]  # of what the group holds, and which of it a device is


def _over_groups(setting: Setting, stack: np.ndarray, axes: Sequence[Axis], function: Group) -> np.ndarray:
    mesh = setting.mesh
    local = stack.reshape(mesh.num_devices, *stack.shape[mesh.ndim :])
    out = []
    for device in range(mesh.num_devices):
        members, own = [], 0
        coord = [int(i) for i in np.unravel_index(device, mesh.mesh_shape)]
        for place in product(*(range(axis.size) for axis in axes)):
            there = list(coord)
            for axis, at in zip(axes, place, strict=True):
                k = mesh.axis_names.index(axis.name)
                minor = axis.of // (axis.pre * axis.size)
                there[k] += (at - there[k] // minor % axis.size) * minor
            members.append(int(np.ravel_multi_index(there, mesh.mesh_shape)))
            own = len(members) - 1 if members[-1] == device else own
        out.append(function([local[member] for member in members], own))
    return np.stack(out).reshape(*mesh.mesh_shape, *out[0].shape)


def _stacked(setting: Setting, shape: Shape, dtype: np.dtype, domain: Any = "any") -> str:
    return setting.operand((*setting.mesh.mesh_shape, *shape), dtype, domain, pending=False, halo=False)


def inside(setting: Setting, code: str, axes: Sequence[Axis], function: Group, **how: Any) -> Call:
    """The call of a local function `code` of `a`, on stacks with a leading dim per mesh axis."""
    mesh = setting.mesh
    spec = f"P{mesh.axis_names}" if mesh.ndim > 1 else f"P({mesh.axis_names[0]!r})"
    lead, new = ", ".join("0" * mesh.ndim), ", ".join(["None"] * mesh.ndim)
    text = f"shard_map(lambda a: (lambda a: {code})(a[{lead}])[{new}], mesh, {spec}, {spec})(a)"
    scale = how.pop("scale", None)
    if scale is not None:
        how["scale"] = lambda size: _over_groups(setting, size, axes, scale)
    return setting.call(text, lambda stack: _over_groups(setting, stack, axes, function), **how)


def _axes(setting: Setting, parts: bool = False) -> list[Axis]:
    # Some axes of the mesh, at least one, in any order; sub-axes too where those are allowed.
    mesh = setting.mesh
    found = (
        draw_factors(setting.draws, mesh)
        if parts
        else [mesh.axis(mesh.axis_names[i]) for i in setting.draws.order(mesh.ndim)]
    )
    return found[: setting.draws.between(1, len(found))]


def _names(axes: Sequence[Axis]) -> str:
    return repr(str(axes[0])) if len(axes) == 1 else repr([str(axis) for axis in axes])


def _one(setting: Setting) -> Axis:
    return setting.mesh.axis(setting.draws.choice(setting.mesh.axis_names))


def _pieces(x: np.ndarray, count: int, dim: int) -> list[np.ndarray]:
    return np.split(x, count, dim)


def _rounding(op: ReduceOp, dtype: np.dtype) -> dict[str, Any]:
    exact = dtype.kind in "biu" or op not in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PROD)
    if exact:
        return {"rule": Rule(signs=False)}
    total = ReduceOp.PROD if op is ReduceOp.PROD else ReduceOp.SUM
    return {
        "rule": Rule(exact=False, ulps=32),
        "scale": lambda sizes, own: reduce_terms(
            [np.maximum(size, 1) if op is ReduceOp.PROD else size for size in sizes], total
        ),
    }


def _op(setting: Setting, dtype: np.dtype) -> ReduceOp:
    return setting.draws.choice([op for op in ReduceOp if op in reductions_of(dtype)])


@row("shard_map.all_reduce", "shard_map.pmean")
def all_reduce(setting: Setting, name: str) -> Call:
    """Over axes and sub-axes."""
    dtype = setting.dtype([t for t in EVERY if t.kind not in "biu"] if "pmean" in name else EVERY)
    _stacked(setting, setting.shape(), dtype, "odd")
    axes, op = _axes(setting, parts=True), ReduceOp.AVG if "pmean" in name else _op(setting, dtype)
    code = f"sw.all_reduce(a, reduce_op={str(op)!r}, reduce_axes={_names(axes)})"
    code = f"sw.pmean(a, {_names(axes)})" if "pmean" in name else code
    return inside(setting, code, axes, lambda group, own: reduce_terms(group, op), **_rounding(op, dtype))


@row("shard_map.reduce_scatter")
def reduce_scatter(setting: Setting, name: str) -> Call:
    """A piece of the reduction for each."""
    dtype, axes = setting.dtype(EVERY), _axes(setting)
    shape, count = list(setting.shape(low=1, high=2, most=4)), prod(axis.size for axis in axes)
    dim = setting.draws.below(len(shape))
    shape[dim] = count * setting.draws.between(1, 2)
    _stacked(setting, tuple(shape), dtype, "odd")
    op = _op(setting, dtype)
    rounding = _rounding(op, dtype)
    if whole := rounding.get("scale"):
        rounding["scale"] = lambda sizes, own: _pieces(whole(sizes, own), count, dim)[own]
    code = f"sw.reduce_scatter(a, {dim}, reduce_op={str(op)!r}, reduce_axes={_names(axes)})"
    return inside(setting, code, axes, lambda group, own: _pieces(reduce_terms(group, op), count, dim)[own], **rounding)


@row("shard_map.all_gather")
def all_gather(setting: Setting, name: str) -> Call:
    """What the group holds, in the order of the names."""
    axes, shape = _axes(setting), setting.shape(low=1)
    _stacked(setting, shape, setting.dtype(MOVABLE))
    dim = setting.draws.below(len(shape))
    code = f"sw.all_gather(a, {dim}, physical_axis={_names(axes)})"
    return inside(setting, code, axes, lambda group, own: np.concatenate(group, dim))


@row("shard_map.all_slice")
def all_slice(setting: Setting, name: str) -> Call:
    """The own piece."""
    axes, shape = _axes(setting, parts=True), list(setting.shape(low=1))
    dim, count = setting.draws.below(len(shape)), prod(axis.size for axis in axes)
    shape[dim] = count * setting.draws.between(1, 2)
    _stacked(setting, tuple(shape), setting.dtype(MOVABLE))
    code = f"sw.all_slice(a, {dim}, {_names(axes)})"
    return inside(setting, code, axes, lambda group, own: _pieces(group[own], count, dim)[own])


@row("shard_map.all_to_all")
def all_to_all(setting: Setting, name: str) -> Call:
    """A piece for each, and one from each."""
    axes, shape = _axes(setting), list(setting.shape(low=1))
    split, concat = (setting.draws.below(len(shape)) for _ in range(2))
    count, tiled = prod(axis.size for axis in axes), setting.draws.below(3) > 0
    shape[split] = count * setting.draws.between(1, 2) if tiled else count
    _stacked(setting, tuple(shape), setting.dtype(MOVABLE))
    code = f"sw.all_to_all(a, {split}, {concat}, {tiled}, mesh_axes={_names(axes)})"

    def function(group: list[np.ndarray], own: int) -> np.ndarray:
        if tiled:
            return np.concatenate([_pieces(x, count, split)[own] for x in group], concat)
        return np.stack([np.take(x, own, split) for x in group], concat)

    return inside(setting, code, axes, function)


@row("shard_map.ppermute", "shard_map.shift", "shard_map.send_recv")
def ppermute(setting: Setting, name: str) -> Call:
    """From position to position; zeros where nothing comes."""
    draws, axis = setting.draws, _one(setting)
    _stacked(setting, setting.shape(), setting.dtype(MOVABLE))
    if name == "shard_map.shift":
        offset, rotate = draws.between(0, 4) - 2, draws.below(2) == 0
        pairs = [(i, (i + offset) % axis.size) for i in range(axis.size) if rotate or 0 <= i + offset < axis.size]
        code = f"sw.shift(a, {axis.name!r}, {offset}, rotate={rotate})"
    elif name == "shard_map.send_recv":
        pairs = [(draws.below(axis.size), draws.below(axis.size))]
        code = f"sw.send_recv(a, {axis.name!r}, {pairs[0][0]}, {pairs[0][1]})"
    else:
        pairs = [(i, j) for i, j in enumerate(draws.order(axis.size)) if not draws.rarely(4)]
        code = f"sw.ppermute(a, {pairs}, axis={axis.name!r})"
    back = {target: source for source, target in pairs}
    return inside(
        setting, code, [axis], lambda group, own: group[back[own]] if own in back else np.zeros_like(group[own])
    )


@row("shard_map.halo_exchange")
def halo_exchange(setting: Setting, name: str) -> Call:
    """What the neighbours hold at their ends, and zeros outside."""
    axis, shape = _one(setting), setting.shape(low=1, least=1)
    _stacked(setting, shape, setting.dtype(MOVABLE))
    dim = setting.draws.below(len(shape))
    low, high = (setting.draws.between(0, shape[dim]) for _ in range(2))

    def function(group: list[np.ndarray], own: int) -> np.ndarray:
        row = np.concatenate([np.zeros_like(group[0]), *group, np.zeros_like(group[0])], dim)
        start = (own + 1) * shape[dim]
        return np.take(row, range(start - low, start + shape[dim] + high), dim)

    return inside(setting, f"sw.halo_exchange(a, {dim}, ({low}, {high}), mesh_axis={axis.name!r})", [axis], function)


@row("broadcast", "reduce", "gather", "scatter")
def rooted(setting: Setting, name: str) -> Call:
    """One member of a group gives to all, or takes from all; the others have zeros then."""
    draws, axis = setting.draws, _one(setting)
    dtype = setting.dtype(EVERY if name == "reduce" else MOVABLE)
    shape, root = list(setting.shape(low=1)), draws.below(axis.size)
    dim = draws.below(len(shape))
    if name == "scatter":
        shape[dim] = axis.size * draws.between(1, 2)
    _stacked(setting, tuple(shape), dtype, "odd" if name == "reduce" else "any")
    op = _op(setting, dtype) if name == "reduce" else ReduceOp.SUM
    how = _rounding(op, dtype) if name == "reduce" else {}
    extra = {"reduce": f", {str(op)!r}", "gather": f", {dim}", "scatter": f", {dim}"}.get(name, "")
    code = f"sw.{name}(a, {axis.name!r}, {root}{extra})"

    def function(group: list[np.ndarray], own: int) -> np.ndarray:
        if name == "broadcast":
            return group[root]
        if name == "scatter":
            return _pieces(group[root], axis.size, dim)[own]
        out = reduce_terms(group, op) if name == "reduce" else np.concatenate(group, dim)
        return out if own == root else np.zeros_like(out)

    return inside(setting, code, [axis], function, **how)


@row("axis_index")
def axis_index(setting: Setting, name: str) -> Call:
    """The position along an axis, added to what there is."""
    axis = _one(setting)
    dtype = setting.dtype([np.dtype("int64"), np.dtype("float64")])
    _stacked(setting, setting.shape(), dtype, "small")
    return inside(setting, f"a + sw.axis_index({axis.name!r})", [axis], lambda group, own: group[own] + own)


@row("shard_map")
def shard_map(setting: Setting, name: str) -> Call:
    """A function of what each device holds, of shards that are equal and of others, which are refused."""
    shape, dtype = list(setting.shape()), setting.dtype(NUMBERS)
    even = setting.draws.below(4) > 0
    layout = setting.layout(tuple(shape), plain=even)
    counts = [prod(axis.size for axis in cut.axes) for cut in layout.dims]
    if even:
        shape = [count * setting.draws.between(1, 2) for count in counts]
    setting.operand(tuple(shape), dtype)
    code = f"shard_map(lambda a: a + a, mesh, {setting.name(layout)}, {setting.name(layout)})(a)"
    boxes = [held_box(layout, shape, device) for device in range(setting.mesh.num_devices)]
    equal = len({tuple(stop - start for start, stop in box) for box in boxes}) == 1
    plain = all(cut.is_plain for cut in layout.dims)
    how: dict[str, Any] = {} if equal and plain else {"refusal": "shard_map"}
    return setting.call(code, lambda a: a + a, rule=Rule(exact=False), **how)
