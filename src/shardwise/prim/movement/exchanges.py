"""Exchanges: the devices of a group give each other pieces of what they hold, each piece i to member i."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from math import prod
from typing import Any, NamedTuple

from array_api_compat import array_namespace

from shardwise.caches import cache
from shardwise.errors import BindingError
from shardwise.layout.axis import Axis, without
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.prim.dispatch.per_device import Place, in_shape, map_shards
from shardwise.prim.forms import Form
from shardwise.prim.kernel import transpose
from shardwise.prim.movement.shards import batch_shards, cut_into, lengths_of_terms
from shardwise.prim.movement.terms import rearrange
from shardwise.prim.primitive import Primitive
from shardwise.prim.relayout import cut_as, cut_dim, relayout
from shardwise.prim.tensor import Tensor, move_to

# -- pieces of a dim, joined along the same dim ----------------------------------------------------------


class Blocks(NamedTuple):
    """How the devices of groups exchange pieces of a dim.

    `axes` are those that split the dim, members of a group last: parts are numbered in this order here, and `numbers`
    says which number each part of the dim has. `pieces[i]` are the lengths of the pieces of number i.
    """

    axes: tuple[Axis, ...]
    numbers: tuple[int, ...]
    pieces: tuple[tuple[int, ...], ...]
    after: Layout

    @property
    def members(self) -> int:
        """How many members a group has."""
        return len(self.pieces[0])

    @property
    def is_even(self) -> bool:
        """Whether all pieces are equally long."""
        return len({length for pieces in self.pieces for length in pieces}) == 1

    def shares(self, member: int) -> tuple[list[int], list[int]]:
        """Return how much of what goes to one member each part holds, before and after."""
        count = self.members
        before = [pieces[member] for pieces in self.pieces]
        after = [
            sum(before[part - member : part - member + count]) if part % count == member else 0
            for part in range(len(before))
        ]
        return before, after


@cache()
def blocks(layout: Layout, shape: Shape, dim: int, axes: tuple[Axis, ...]) -> Blocks:
    """Return how the groups along axes that split a dim exchange pieces of it; the pieces of a shard are balanced.

    >>> from shardwise import DeviceMesh
    >>> mesh = DeviceMesh((2,), ("x",))
    >>> how = blocks(Layout(mesh, ["x"]), (5,), 0, (mesh.axis("x"),))
    >>> how.pieces, how.after.dims, how.shares(0)
    (((2, 1), (1, 1)), (Cut('x'),), ([2, 1], [3, 0]))
    """
    own = layout.dims[dim].axes
    order = (*without(own, axes), *axes)
    tiling, count = layout.tiling(shape).dims[dim], prod(a.size for a in axes)
    lengths, numbers = [0] * tiling.parts, [0] * tiling.parts
    for device in _one_of_each_part(layout, dim):
        part = layout.tile_of(device)[dim]
        start, stop = tiling.interval(part)
        at = _position(layout, order, device)
        lengths[at], numbers[part] = stop - start, at
    pieces = tuple(tuple(size // count + (i < size % count) for i in range(count)) for size in lengths)
    new = [
        sum(pieces[at - at % count + i][at % count] for i in range(count)) for at in numbers
    ]  # by part, in the order of the dim's own axes
    return Blocks(order, tuple(numbers), pieces, cut_dim(layout, dim, cut_into(own, new)))


def _one_of_each_part(layout: Layout, dim: int) -> list[int]:
    devices = [0]
    for axis in layout.dims[dim].axes:
        step = layout.mesh.divisor(axis)
        devices = [device + i * step for device in devices for i in range(axis.size)]
    return devices


def _position(layout: Layout, axes: Sequence[Axis], device: int) -> int:
    out = 0
    for axis in axes:
        out = out * axis.size + device // layout.mesh.divisor(axis) % axis.size
    return out


def _exchange(x: Tensor, *, dim: int, axes: tuple[Axis, ...], back_to: Layout | None = None) -> Tensor:
    how = blocks(x.layout if back_to is None else back_to, x.shape, dim, axes)
    target = cut_as(x.layout, how.after.dims if back_to is None else back_to.dims)
    if how.is_even:
        return _exchange_evenly(x, dim, axes, target)
    parts: list[Tensor] = []
    for member in range(how.members):
        part = _share(x, dim, member, how, back_to is not None)
        size, old, new = part.shape[dim], *how.shares(member)
        ends = (0, *accumulate(new if back_to is None else old))
        assert ends[-1] == size
        parts.append(move_to(part, cut_dim(x.layout, dim, Cut(how.axes, offsets=ends))))

    def join(place: Place, *arrays: Any) -> Any:
        return array_namespace(*arrays).concat(arrays, axis=dim)

    return map_shards(join, parts, target, x.shape)


def _share(x: Tensor, dim: int, member: int, how: Blocks, whole: bool) -> Tensor:
    # What goes to one member: of each device its piece for it; on the way back, all that the member holds.
    before, after = how.shares(member)
    lengths = after if whole else before
    starts = [0 if whole else sum(pieces[:member]) for pieces in how.pieces]
    layout = cut_dim(x.layout, dim, Cut(how.axes, offsets=(0, *accumulate(lengths))))

    def cut(place: Place, array: Any) -> Any:
        at = _position(layout, how.axes, place.device)
        return array[(*[slice(None)] * dim, slice(starts[at], starts[at] + lengths[at]))]

    return map_shards(cut, [x], layout, (*x.shape[:dim], sum(lengths), *x.shape[dim + 1 :]))


def _exchange_evenly(x: Tensor, dim: int, axes: tuple[Axis, ...], target: Layout) -> Tensor:
    # As dims of their own, the members of a group and the pieces that each holds swap places: one all-to-all.
    rest, count = without(x.layout.dims[dim].axes, axes), prod(a.size for a in axes)
    groups = prod(a.size for a in rest)
    width = x.shape[dim] // (groups * count * count)
    before, after = x.layout.dims[:dim], x.layout.dims[dim + 1 :]
    shape = (*x.shape[:dim], groups, count, count, width, *x.shape[dim + 1 :])
    apart = map_shards(in_shape, [x], cut_as(x.layout, (*before, rest, axes, None, None, *after)), shape, view=True)
    swapped = move_to(apart, cut_as(x.layout, (*before, rest, None, axes, None, *after)))
    return map_shards(in_shape, [swapped], target, x.shape)


def _exchange_vjp(
    ct: Tensor, out: Tensor, x: Tensor, *, dim: int, axes: tuple[Axis, ...], back_to: Layout | None = None
) -> tuple[Tensor, ...]:
    here = relayout(ct, layout=out.layout.resolved())
    if back_to is None:
        return (exchange_blocks(here, dim=dim, axes=axes, back_to=x.layout.resolved()),)
    return (exchange_blocks(here, dim=dim, axes=axes),)


def _exchange_form(out: Tensor, x: Tensor, *, dim: int, axes: tuple[Axis, ...], back_to: Layout | None = None) -> Form:
    how = blocks(back_to or x.layout.resolved(), x.shape, dim, axes)
    lengths = {(at, i): length for at, pieces in enumerate(how.pieces) for i, length in enumerate(pieces)}
    before = [(at, i) for at in how.numbers for i in range(how.members)]
    after = [(at - at % how.members + i, at % how.members) for at, i in before]
    return rearrange(x, dim, lengths, *((before, after) if back_to is None else (after, before)))


# Each device cuts its part of a dim into one piece for each member of its group, sends them their pieces and joins
# what comes along the same dim; or the way back, to what was laid out as `back_to`.
exchange_blocks = Primitive(
    "exchange_blocks", _exchange, _exchange_vjp, linear=True, batch=batch_shards, lower=_exchange_form
)


# -- slices of a dim, stacked along a new one ------------------------------------------------------------


def check_slices(layout: Layout, shape: Shape, dim: int, count: int) -> None:
    """Raise a BindingError unless every device has as many slices of a dim as there are members of a group."""
    tiling = layout.tiling(shape).dims[dim]
    wrong = {stop - start for start, stop in map(tiling.interval, range(tiling.parts))} - {count}
    if wrong:
        raise BindingError(f"all_to_all: dim {dim} has size {min(wrong)}, but must be {count}, the size of the group.")


def _swap(x: Tensor, *, split: int, concat: int, axes: tuple[Axis, ...], home: int) -> Tensor:
    layout, shape, count = x.layout, x.shape, prod(a.size for a in axes)
    check_slices(layout, shape, split, count)
    lengths = lengths_of_terms(layout, shape, home, axes)
    if lengths is None:
        raise BindingError(
            f"all_to_all with tiled=False stacks what a group along {', '.join(map(str, axes))} holds, so its parts of "
            f"dim {home} must be equal; {shape[home]} elements over {layout.parts(home)} devices are not.\n"
            "  pad the dim, or use tiled=True."
        )
    # The dim that disappears is one of groups and one of their members; so is the one that the group splits.
    dims: list[list[Cut | tuple[Axis, ...] | None]] = [[cut] for cut in layout.dims]
    wide: list[list[int]] = [[size] for size in shape]
    dims[split], wide[split] = [layout.dims[split].axes, None], [layout.parts(split), count]
    rest = without(layout.dims[home].axes, axes)
    dims[home], wide[home] = [axes, cut_into(rest, lengths)], [count, sum(lengths)]
    apart = cut_as(layout, tuple(chain(*dims)))
    view = map_shards(in_shape, [x], apart, tuple(chain(*wide)), view=True)
    dims[split][1], dims[home][0] = axes, None
    there = move_to(view, cut_as(layout, tuple(chain(*dims))))
    # What each device holds now: one group, one slice, and of each member its part.
    members = home + (split < home)
    order = [i for i in range(len(shape) + 2) if i not in (members, split + (home < split), split + (home < split) + 1)]
    order.insert(concat, members)
    cuts, sizes_after = list(layout.dims), list(shape)
    cuts.insert(concat, cuts.pop(split))
    sizes_after.insert(concat, sizes_after.pop(split))

    def stack(place: Place, array: Any) -> Any:
        return transpose(array, (*order, *[i for i in range(array.ndim) if i not in order])).reshape(place.shape)

    return map_shards(stack, [there], cut_as(layout, tuple(cuts)), tuple(sizes_after))


def _swap_vjp(
    ct: Tensor, out: Tensor, x: Tensor, *, split: int, concat: int, axes: tuple[Axis, ...], home: int
) -> tuple[Tensor, ...]:
    at = home - (split < home)
    there = relayout(ct, layout=out.layout.resolved())
    back = swap_slices(there, split=concat, concat=split, axes=axes, home=at + (concat <= at))
    return (relayout(back, layout=x.layout.resolved()),)


# Each device sends slice i of a dim to member i of its group, which splits dim `home`; the dim disappears, and what
# comes is stacked along a new one.
swap_slices = Primitive("swap_slices", _swap, _swap_vjp, linear=True, batch=batch_shards)
