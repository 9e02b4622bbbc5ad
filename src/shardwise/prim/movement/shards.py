"""Primitives on shards: change a layout, see shards as terms of a reduction, permute shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from shardwise.caches import cache
from shardwise.engine.arrays import accumulator
from shardwise.engine.execute import Program, permutation
from shardwise.engine.local_shards import sample
from shardwise.engine.storage import Storage, storage_of
from shardwise.errors import BindingError, DerivativeError, LayoutError
from shardwise.layout.axis import Axis, overlap, without
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.placement import ReduceOp
from shardwise.prim.arithmetic.elementwise import add, astype, divide, equal, multiply, narrow, pow, widen
from shardwise.prim.dispatch.per_device import Place, map_shards, take_shards
from shardwise.prim.kernel import zeros
from shardwise.prim.movement.terms import Sources, average_form, fold_form, permutation_form, unfold_form
from shardwise.prim.primitive import Primitive
from shardwise.prim.relayout import relayout, resolve
from shardwise.prim.tensor import Tensor

# -- shards as terms -----------------------------------------------------------------------------------


def relabel(x: Tensor, layout: Layout, shape: Shape) -> Tensor:
    """Return the tensor whose devices hold the very arrays that they hold now, seen in another layout."""
    return take_shards(x, layout, shape)


@cache()
def fold_layout(layout: Layout, shape: Shape, axes: tuple[Axis, ...], op: ReduceOp) -> tuple[Layout, Shape]:
    """Return layout and shape of the sum of the shards along `axes`, each of which splits a dim.

    A dim that none of them splits stays as it is; of one that they split, the shards of each group must be equal.

    >>> from shardwise import DeviceMesh
    >>> mesh = DeviceMesh((2, 3), ("x", "y"))
    >>> fold_layout(Layout(mesh, ["x", "y"]), (4, 5), (mesh.axis("x"),), ReduceOp.SUM)
    (Layout(mesh(x=2, y=3), [None, 'y'], partial=['x']), (2, 5))
    """
    tiling = layout.tiling(shape)
    dims: list[Cut] = []
    sizes: list[int] = []
    for k, (cut, dim) in enumerate(zip(layout.dims, tiling.dims, strict=True)):
        left = without(cut.axes, axes)
        if left == cut.axes:
            dims.append(cut)
            sizes.append(dim.size)
            continue
        lengths = lengths_of_terms(layout, shape, k, axes)
        if lengths is None:
            raise BindingError(
                f"reducing over {', '.join(map(str, axes))} adds the shards of dim {k} up, so they must be equal; "
                f"{dim.size} elements over {dim.parts} devices{' with a halo' if cut.halo != (0, 0) else ''} are not.\n"
                "  to sum the dim itself, reduce the global view; to have it whole on every device, all_gather."
            )
        dims.append(cut_into(left, lengths))
        sizes.append(sum(lengths))
    return Layout(layout.mesh, dims, (*layout.partial, *axes), op), tuple(sizes)


def lengths_of_terms(layout: Layout, shape: Shape, dim: int, axes: Sequence[Axis]) -> Sequence[int] | None:
    """Return how long the shards of a dim are, by part along its other axes, if they are equal along `axes`.

    >>> from shardwise import DeviceMesh
    >>> mesh = DeviceMesh((2, 2), ("x", "y"))
    >>> layout = Layout(mesh, [Cut(("x", "y"), offsets=(0, 1, 2, 5, 8))])
    >>> lengths_of_terms(layout, (8,), 0, [mesh.axis("y")]), lengths_of_terms(layout, (8,), 0, [mesh.axis("x")])
    ([1, 3], None)
    """
    cut, tiling = layout.dims[dim], layout.tiling(shape).dims[dim]
    left = without(cut.axes, axes)
    if cut.halo != (0, 0):
        return None
    if tiling.is_even:
        return [tiling.size // tiling.parts] * prod(a.size for a in left)
    lengths: dict[int, int] = {}
    for part in range(tiling.parts):
        start, stop = tiling.interval(part)
        if lengths.setdefault(_part_along(cut.axes, left, part), stop - start) != stop - start:
            return None
    return [lengths[part] for part in range(len(lengths))]


def _part_along(axes: Sequence[Axis], left: Sequence[Axis], part: int) -> int:
    # Which part a part along some axes is if only those that are left, factors of them in the same order, count.
    out, weight = 0, 1
    for axis in reversed(axes):
        part, digit = divmod(part, axis.size)
        for own in reversed([a for a in left if overlap(a, axis)]):
            out += digit // (axis.pre * axis.size // (own.pre * own.size)) % own.size * weight
            weight *= own.size
    return out


def cut_into(axes: tuple[Axis, ...], lengths: Sequence[int]) -> Cut:
    """Return how a dim is cut into shards that are so long: with offsets, unless they are balanced.

    >>> from shardwise import DeviceMesh
    >>> axes = (DeviceMesh((3,), ("x",)).axis("x"),)
    >>> cut_into(axes, (2, 1, 1)), cut_into(axes, (0, 3, 1))
    (Cut('x'), Cut('x', offsets=(0, 0, 3, 4)))
    """
    width, longer = divmod(sum(lengths), len(lengths))
    if all(length == width + (part < longer) for part, length in enumerate(lengths)):
        return Cut(axes)
    return Cut(axes, offsets=(0, *accumulate(lengths)))


def _fold(x: Tensor, *, axes: tuple[Axis, ...], op: ReduceOp) -> Tensor:
    op.check_dtype(x.dtype)
    return relabel(x, *fold_layout(x.layout, x.shape, axes, op))


def _fold_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axes: tuple[Axis, ...], op: ReduceOp) -> tuple[Tensor, ...]:
    spread = unfold(relayout(ct, layout=out.layout.resolved()), layout=x.layout.resolved(), shape=x.shape)
    op = _op_of_several(axes, op)
    if op is ReduceOp.AVG:
        return (divide_by(spread, prod(a.size for a in axes)),)
    return (spread if op is ReduceOp.SUM else multiply(spread, _weight(resolve(x), out, axes, op)),)


def _fold_jvp(tangents: Any, out: Tensor, x: Tensor, *, axes: tuple[Axis, ...], op: ReduceOp) -> Tensor:
    x = resolve(x)
    tangent = relayout(tangents[0], layout=x.layout)
    op = _op_of_several(axes, op)
    if op in (ReduceOp.SUM, ReduceOp.AVG):
        return fold(tangent, axes=axes, op=op)
    return fold(multiply(tangent, _weight(x, out, axes, op)), axes=axes, op=ReduceOp.SUM)


def _op_of_several(axes: tuple[Axis, ...], op: ReduceOp) -> ReduceOp:
    # One term is its own reduction, whatever that is.
    return op if prod(a.size for a in axes) > 1 else ReduceOp.SUM


def _is_exact(count: int, dtype: np.dtype) -> bool:
    with np.errstate(over="ignore"):
        return dtype.kind in "iu" or complex(np.asarray(count).astype(dtype)) == count


def divide_by(x: Tensor, count: int) -> Tensor:
    """Return a value divided by a number of devices, which its dtype need not be able to hold."""
    if _is_exact(count, x.dtype):
        return divide(x, float(count))
    return astype(divide(astype(x, dtype=accumulator(x.dtype)), float(count)), dtype=x.dtype)


def reduce_copies(x: Tensor, op: ReduceOp, count: int) -> Tensor:
    """Return the reduction of so many equal copies of a value; the number itself need not fit in the dtype.

    >>> from shardwise import asarray
    >>> reduce_copies(asarray(np.array([1, -1, 3], "int8")), ReduceOp.PROD, 129)
    Tensor([ 1, -1,  3], int8[3] on cpu:0)
    """
    if op is ReduceOp.SUM and x.dtype.kind in "iu":  # which wraps around, as adding does
        return multiply(x, np.array(count).astype(x.dtype).item())
    if op is ReduceOp.PROD and x.dtype.kind in "iuc":
        return _many(multiply, resolve(x), count)
    if op is ReduceOp.SUM and x.dtype.kind == "c":  # a product with a number makes NaN beside an infinity
        return _many(add, x, count)
    if op in (ReduceOp.SUM, ReduceOp.PROD):
        exact = _is_exact(count, x.dtype)
        wide = x if exact else astype(resolve(x), dtype=accumulator(x.dtype))
        out = multiply(wide, count) if op is ReduceOp.SUM else pow(resolve(wide), count)
        return out if exact else astype(out, dtype=x.dtype)
    if op is ReduceOp.BXOR and count % 2 == 0:
        return multiply(x, False)
    return x


def _many(combine: Primitive, x: Tensor, count: int) -> Tensor:
    # By doubling: squares wrap around as the product of integers does, where a power must fit in the dtype; and powers
    # of complex numbers go by angles, which are off where squares are exact.
    out = None
    while count:
        if count % 2:
            out = x if out is None else combine(out, x)
        count //= 2
        x = combine(x, x) if count else x
    assert out is not None, "there is one copy at least"
    return out


def _mask(x: Tensor, y: Any) -> Tensor:
    return astype(equal(x, y), dtype=accumulator(x.dtype))


def _weight(x: Tensor, out: Tensor, axes: tuple[Axis, ...], op: ReduceOp) -> Tensor:
    # How much of a change of each term reaches the result; terms that tie for the maximum share evenly.
    if op in (ReduceOp.MAX, ReduceOp.MIN):
        best = _mask(x, unfold(resolve(out), layout=x.layout, shape=x.shape))
        ties = unfold(resolve(fold(best, axes=axes, op=ReduceOp.SUM)), layout=x.layout, shape=x.shape)
        return astype(divide(best, ties), dtype=x.dtype)
    if op is ReduceOp.PROD:
        return narrow(_product_of_others(widen(x), axes), x.dtype)
    raise DerivativeError(f"the reduction {op} has no derivative.")


def _product_of_others(x: Tensor, axes: tuple[Axis, ...]) -> Tensor:
    # Without division, so that it and its own derivatives are exact where terms are zero: the product of the
    # n - 1 terms that follow in the ring of a group, from products of runs of 1, 2, 4, ... terms.
    groups = x.mesh.groups([str(a) for a in axes])

    def ahead(terms: Tensor, step: int) -> Tensor:
        sources: dict[int, int] = {}
        for group in groups:
            sources |= {device: group[(i + step) % len(group)] for i, device in enumerate(group)}
        return permute_shards(terms, sources=tuple(sources[device] for device in range(len(sources))))

    run, length, out, done = x, 1, None, 0
    while length < len(groups[0]):
        if (len(groups[0]) - 1) & length:
            out, done = (run if out is None else multiply(out, ahead(run, done))), done + length
        run, length = multiply(run, ahead(run, length)), 2 * length
    assert out is not None, "fold has axes of more than one device"
    return ahead(out, 1)


def _unfold_vjp(ct: Tensor, out: Tensor, x: Tensor, *, layout: Layout, shape: Shape) -> tuple[Tensor, ...]:
    axes = without(layout.sharded_axes, x.layout.sharded_axes)
    total = fold(relayout(ct, layout=layout), axes=axes, op=ReduceOp.SUM)
    return (relayout(total, layout=x.layout.resolved()),)


def batch_shards(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    """Apply a primitive on shards to values with leading dims: every device has those whole."""
    return row(*[lead.unsplit(x) for x in lead.spread_all(mapped, operands)], **lead.whole().shift(params))


fold = Primitive(
    "fold",
    _fold,
    _fold_vjp,
    _fold_jvp,
    batch=batch_shards,
    needs=lambda i, j, operands, params: params["op"] not in (ReduceOp.SUM, ReduceOp.AVG),
    lower=fold_form,
)
unfold = Primitive("unfold", relabel, _unfold_vjp, linear=True, batch=batch_shards, lower=unfold_form)


def _average(x: Tensor, *, axes: tuple[Axis, ...]) -> Tensor:
    return unfold(resolve(fold(x, axes=axes, op=ReduceOp.AVG)), layout=x.layout, shape=x.shape)


def _average_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axes: tuple[Axis, ...]) -> tuple[Tensor, ...]:
    return (average(relayout(ct, layout=x.layout), axes=axes),)


# The average of the shards along axes in place of each of them. It is its own transpose: cotangents are averaged too,
# of which the sum might be too large for 16 bits.
average = Primitive("average", _average, _average_vjp, linear=True, batch=batch_shards, lower=average_form)


# -- permutations --------------------------------------------------------------------------------------


def _permute(x: Tensor, *, sources: Sources) -> Tensor:
    program = _permutation(x.storage, sources, x.dtype)
    return Tensor(x.engine.run(program, x.arrays), x.layout, x.shape, x.dtype, x.engine)


@cache()
def _permutation(storage: Storage, sources: Sources, dtype: np.dtype) -> Program:
    if storage.layout.partial:  # the value is permuted, not the terms of its reduction
        _picks(storage_of(storage.layout.resolved(), storage.shape), sources)
    picks = _picks(storage, sources)
    for out, pick in enumerate(picks):
        if pick is not None and storage.shapes[pick] != storage.shapes[out]:
            raise LayoutError(
                f"shards can only be permuted where they have equal shapes; devices {storage.holders[pick]} hold "
                f"{storage.shapes[pick]} and devices {storage.holders[out]} hold {storage.shapes[out]}."
            )
    times = [
        sum(pick is not None and storage.index(device) != pick for device in holders)
        for pick, holders in zip(picks, storage.holders, strict=True)
    ]
    return permutation(storage, picks, tuple(times), dtype, sources)


def _picks(storage: Storage, sources: Sources) -> tuple[int | None, ...]:
    # Which array each array becomes, or None for zeros.
    out: list[int | None] = []
    for holders in storage.holders:
        picks = {None if source is None else storage.index(source) for source in map(sources.__getitem__, holders)}
        if len(picks) > 1:
            raise LayoutError(
                f"devices {holders} hold the same data under {storage.layout}, but would receive different shards.\n"
                "  permute along an axis that splits the tensor, or write local-view code with shard_map."
            )
        out.append(picks.pop())
    return tuple(out)


def _permute_vjp(ct: Tensor, out: Tensor, x: Tensor, *, sources: Sources) -> tuple[Tensor, ...]:
    back: list[int | None] = [None] * len(sources)
    for target, source in enumerate(sources):
        if source is not None:
            back[source] = target
    return (permute_shards(relayout(ct, layout=x.layout.resolved()), sources=tuple(back)),)


permute_shards = Primitive(
    "permute_shards", _permute, _permute_vjp, linear=True, batch=batch_shards, lower=permutation_form
)


# -- linear maps of what each device holds ---------------------------------------------------------------

Kernel = Callable[..., Any]


def _local_map(
    x: Tensor, *, kernel: Kernel, transpose: Kernel, layout: Layout, shape: Shape, positional: bool = False
) -> Tensor:
    if positional:
        return map_shards(lambda place, a: kernel(a, device=place.device), [x], layout, shape)
    done: dict[int, Any] = {}  # devices that hold equal arrays share the result too

    def once(place: Place, array: Any) -> Any:
        if id(array) not in done:
            done[id(array)] = kernel(array)
        return done[id(array)]

    return map_shards(once, [x], layout, shape)


def _local_map_vjp(ct: Tensor, out: Tensor, x: Tensor, *, layout: Layout, shape: Shape, **how: Any) -> Any:
    # Axes along which one array of x became several of the result: what comes back along them is summed.
    base = x.layout.resolved()
    summed = Layout(base.mesh, base.dims, without(layout.sharded_axes, base.sharded_axes))
    back = {"kernel": how["transpose"], "transpose": how["kernel"], "positional": how.get("positional", False)}
    return (resolve(local_map(relayout(ct, layout=layout.resolved()), **back, layout=summed, shape=x.shape)),)


def _batch_local_map(row: Primitive, lead: Any, mapped: Any, operands: Any, params: Any) -> Tensor:
    (x,), whole = operands, lead.whole()
    kernels = {name: _each_place(params[name], lead.sizes) for name in ("kernel", "transpose")}
    return local_map(lead.unsplit(x), **(params | kernels | whole.shift({k: params[k] for k in ("layout", "shape")})))


def _each_place(kernel: Kernel, sizes: Shape) -> Kernel:
    # A kernel of what stands at one place of leading dims, on all of them.
    def each(array: Any, **how: Any) -> Any:
        flat = array.reshape((prod(sizes), *array.shape[len(sizes) :]))
        if not flat.shape[0]:
            one = kernel(zeros(array, flat.shape[1:]), **how)
            return zeros(one, (*sizes, *one.shape))
        out = array_namespace(array).stack([kernel(flat[k, ...], **how) for k in range(flat.shape[0])])
        return out.reshape((*sizes, *out.shape[1:]))

    return each


# What each device holds, put through a linear kernel (that is told the device, if `positional`): the result
# has this layout and shape.
local_map = Primitive("local_map", _local_map, _local_map_vjp, linear=True, batch=_batch_local_map)


# -- part of a mesh --------------------------------------------------------------------------------------


def _restrict(x: Tensor, *, axis: Axis, position: int) -> Tensor:
    layout, shape, first = restrict_layout(x.layout, x.shape, axis, position)
    step = x.mesh.divisor(axis)
    return take_shards(x, layout, shape, lambda device: _inside(device, axis, step) + first)


def _embed(x: Tensor, *, axis: Axis, position: int, layout: Layout, shape: Shape) -> Tensor:
    new, step, like = storage_of(layout, shape), layout.mesh.divisor(axis), sample(x.arrays)

    def make(index: int, device: int) -> Any:
        if device // step % axis.size == position:
            return x.arrays[x.storage.index(_outside(device, axis, step))]
        local = new.shapes[index]
        return x.engine.apply(partial(zeros, shape=local), [like], local)

    return Tensor(x.engine.each(new, x.dtype, make, like=like), layout, shape, x.dtype, x.engine)


def _inside(device: int, axis: Axis, step: int) -> int:
    # The index in the whole mesh, at position 0 of the axis, of a device of the mesh without that axis.
    return device // step * step * axis.size + device % step


def _outside(device: int, axis: Axis, step: int) -> int:
    return device // (step * axis.size) * step + device % step


def restrict_layout(layout: Layout, shape: Shape, axis: Axis, position: int) -> tuple[Layout, Shape, int]:
    """Return layout and shape of what the devices at one position along a whole axis hold, and their first index."""
    mesh = layout.mesh.fix({axis.name: position})
    sizes = tuple(size // (axis.size if axis in cut.axes else 1) for size, cut in zip(shape, layout.dims, strict=True))
    dims = [tuple(str(a) for a in cut.axes if a != axis) for cut in layout.dims]
    return Layout(mesh, dims), sizes, position * layout.mesh.divisor(axis)


def _restrict_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: Axis, position: int) -> tuple[Tensor, ...]:
    return (embed(relayout(ct, layout=out.layout), axis=axis, position=position, layout=x.layout, shape=x.shape),)


def _embed_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: Axis, position: int, layout: Layout, shape: Shape) -> Any:
    return (restrict(relayout(ct, layout=layout), axis=axis, position=position),)


# A stack at one position of a mesh axis, as a tensor on that part of the mesh; and back, with zeros elsewhere.
restrict = Primitive("restrict", _restrict, _restrict_vjp, linear=True, batch=batch_shards)
embed = Primitive("embed", _embed, _embed_vjp, linear=True, batch=batch_shards)
