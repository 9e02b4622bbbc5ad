"""Chains: an exchange as collectives of the dialect one after the other, where they move exactly its bytes.

What may be received is what is needed and not there yet, each element once. So a chain has one form: slices, which are
free; then one all-to-all or permute after which each device holds only what it needs; then an all-gather for each dim
that is finer than it is to be. The axes that the target does not have are those that are gathered in the end, and
those that the source does not have are sliced in the beginning: what is searched is only where they stand meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations_with_replacement, islice, pairwise, permutations, product
from math import prod
from operator import mul
from typing import Any

from shardwise.layout.axis import Axis
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.plan.kinds import Kind, remainder
from shardwise.plan.plan import plan_reshard
from shardwise.plan.steps import Step

MOST = 20_000  # pairs of layouts that are looked at
PERMUTES = 16  # permutes whose bytes are counted

Axes = tuple[Axis, ...]
Dims = tuple[Axes, ...]  # the axes that split each dim


@dataclass(frozen=True)
class Chain:
    """The layouts that slices, one all-to-all or permute, and all-gathers visit, and how many ops of them send.

    They are layouts of a tensor of which each dim may be seen as several: `digits` has the sizes of these.
    """

    layouts: tuple[Layout, ...]
    digits: tuple[Shape, ...]
    rounds: int

    @property
    def shape(self) -> Shape:
        """The shape of the tensor that the layouts are of."""
        return tuple(size for sizes in self.digits for size in sizes)

    def steps(self, dtype: Any) -> list[Step]:
        """Return the steps between the layouts, as the planner has them.

        >>> from shardwise import DeviceMesh
        >>> mesh = DeviceMesh((2, 2), ("x", "y"))
        >>> layouts = Layout(mesh, [("x", "y"), None]), Layout(mesh, ["x", "y"]), Layout(mesh, [None, "y"])
        >>> [str(step) for step in Chain(layouts, ((4,), (4,)), 2).steps("int8")]
        ['all_to_all over y', 'all_gather over x']
        """
        plans = [plan_reshard(a, b, self.shape, dtype) for a, b in pairwise(self.layouts)]
        return [step for plan in plans for step in plan.steps]


def find_chain(step: Step, shape: Shape, dtype: Any) -> Chain | None:
    """Return the chain of fewest rounds that moves exactly the bytes of an exchange or permute, if there is one.

    >>> from shardwise import DeviceMesh, P
    >>> mesh = DeviceMesh((32, 32), ("x", "y"))
    >>> (step,) = plan_reshard(P("x", None, "y"), P(None, "x", None), (32, 32, 32), "int8", mesh=mesh).steps
    >>> step.kind, [str(layout) for layout in find_chain(step, (32, 32, 32), "int8").layouts]
    ('exchange', ['[x|-|y]', '[-|x|y]', '[-|x|-]'])

    The major axis of a dim leaves it alone if the dim is seen as two:

    >>> (step,) = plan_reshard(P(("x", "y"), None), P(None, "x"), (1024, 64), "int8", mesh=mesh).steps
    >>> chain = find_chain(step, (1024, 64), "int8")
    >>> chain.digits, [str(layout) for layout in chain.layouts]
    (((32, 32), (32, 2)), ['[x|y|-|-]', '[-|y|x|-]', '[-|-|x|-]'])
    """
    src, dst = step.before, step.after
    if not isinstance(src, Layout) or not isinstance(dst, Layout) or src.mesh is not dst.mesh:
        return None
    # Along partial axes each position moves by itself, as along those where copies lie.
    src, dst = src.resolved(), dst.resolved()
    total = step.received.total
    if not total or not all(_is_plain(src, dst, shape, dim) for dim in range(len(shape))):
        return None
    views = [(src, dst, tuple((size,) for size in shape)), _by_digits(src, dst, shape)]
    chains = [_chain(*view, total, dtype) for view in views if view is not None]
    return min((chain for chain in chains if chain is not None), key=lambda chain: chain.rounds, default=None)


def _chain(src: Layout, dst: Layout, digits: tuple[Shape, ...], total: int, dtype: Any) -> Chain | None:
    shape = tuple(size for sizes in digits for size in sizes)
    for pair in _candidates(src, dst, shape):
        layouts = tuple(_without_repeats([src, *(_with_axes(src, dims) for dims in pair.dims), dst]))
        chain = Chain(layouts, digits, pair.rounds)
        if sum(part.received.total for part in chain.steps(dtype) if not part.is_local) == total:
            return chain
    return None


def _by_digits(src: Layout, dst: Layout, shape: Shape) -> tuple[Layout, Layout, tuple[Shape, ...]] | None:
    # Both layouts of a tensor of which each dim that changes is several, each split by one axis, or by some that are
    # gathered together. A shard is the same numbers in the same order.
    digits: list[Shape] = []
    dims: tuple[list[Cut | Axes], list[Cut | Axes]] = [], []
    for old, new, size in zip(src.dims, dst.dims, shape, strict=True):
        if old == new:
            digits.append((size,))
            dims[0].append(old)
            dims[1].append(new)
            continue
        # At which factor of the dim each axis begins.
        bounds = [list(accumulate((axis.size for axis in cut.axes), mul, initial=1)) for cut in (old, new)]
        starts = [dict(zip(bound, cut.axes, strict=False)) for bound, cut in zip(bounds, (old, new), strict=True)]
        points = sorted({*bounds[0], *bounds[1]})
        widths = dict(zip(points, (b // a for a, b in pairwise([*points, size])), strict=True))
        splits = [(widths[at], axis.size) for start in starts for at, axis in start.items()]
        if any(b % a for a, b in pairwise(points)) or any(width != count for width, count in splits):
            return None  # an axis would split two digits, or a part of one
        firsts = [at for at in points if widths[at] != 1 and not _goes_along(at, starts[0], bounds[1], dst)]
        runs = [[at for at in points if a <= at < b] for a, b in pairwise([*firsts, size + 1])]
        digits.append(tuple(prod(widths[at] for at in run) for run in runs))
        for out, start in zip(dims, starts, strict=True):
            out += [tuple(start[at] for at in run if at in start) for run in runs]
    return Layout(src.mesh, dims[0]), Layout(dst.mesh, dims[1]), tuple(digits)


def _goes_along(at: int, starts: Mapping[int, Axis], bounds: Sequence[int], dst: Layout) -> bool:
    # Whether an axis of the source is gathered together with the one before it, where the target has no boundary.
    before = next((axis for start, axis in starts.items() if start * axis.size == at), None)
    own = starts.get(at)
    return own is not None and before is not None and not {own, before} & set(dst.sharded_axes) and at not in bounds[1:]


def _is_plain(src: Layout, dst: Layout, shape: Shape, dim: int) -> bool:
    old, new = src.dims[dim], dst.dims[dim]
    if old == new:
        return old.halo == (0, 0)
    tilings = src.tiling(shape).dims[dim], dst.tiling(shape).dims[dim]
    return all(c.halo == (0, 0) and c.offsets is None for c in (old, new)) and all(t.is_even for t in tilings)


def _with_axes(like: Layout, dims: Dims) -> Layout:
    # Dims whose axes stay keep how they are cut.
    return Layout(like.mesh, [cut if cut.axes == axes else axes for cut, axes in zip(like.dims, dims, strict=True)])


def _without_repeats(layouts: Sequence[Layout]) -> Iterator[Layout]:
    previous = None
    for layout in layouts:
        if layout is not previous:
            yield layout
        previous = layout


# -- candidates ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pair:
    # Where the one step begins that is no slice and no gather, and where it ends.
    dims: tuple[Dims, Dims]
    kind: Kind
    rounds: int
    group: int  # devices of an all-to-all: each keeps one part of its shard in so many


def _candidates(src: Layout, dst: Layout, shape: Shape) -> Iterator[_Pair]:
    # Those of fewest rounds first. Of all-to-alls of equally many rounds the one over the fewest devices keeps most.
    pairs = sorted(_pairs(src, dst, shape), key=lambda pair: (pair.rounds, pair.kind, pair.group))
    for rounds in sorted({pair.rounds for pair in pairs}):
        alike = [pair for pair in pairs if pair.rounds == rounds]
        swaps = [pair for pair in alike if pair.kind == "all_to_all"]
        yield from swaps[:1]
        yield from [pair for pair in alike if pair.kind == "permute"][:PERMUTES]


def _pairs(src: Layout, dst: Layout, shape: Shape) -> Iterator[_Pair]:
    old, new = (tuple(cut.axes for cut in layout.dims) for layout in (src, dst))
    sliced = sorted(set(dst.sharded_axes) - set(src.sharded_axes))
    gathered = sorted(set(src.sharded_axes) - set(dst.sharded_axes))
    changed = [dim for dim in range(len(shape)) if old[dim] != new[dim]]
    starts, ends = (islice(_refined(*case, changed, shape), MOST) for case in ((old, sliced), (new, gathered)))
    for start, end in islice(product(starts, ends), MOST):
        step = _step_between(start, end)
        if step is not None:
            kind, group = step
            yield _Pair((start, end), kind, 1 + sum(a != b for a, b in zip(end, new, strict=True)), group)


def _refined(dims: Dims, axes: Sequence[Axis], among: Sequence[int], shape: Shape) -> Iterator[Dims]:
    # Every way to split the dims further by these axes, in any order, that leaves all shards equally large.
    for order in permutations(axes):
        for places in combinations_with_replacement(among, len(order)):
            out = list(dims)
            for axis, dim in zip(order, places, strict=True):
                out[dim] = (*out[dim], axis)
            if not any(shape[dim] % prod(axis.size for axis in out[dim]) for dim in set(places)):
                yield tuple(out)


def _step_between(start: Dims, end: Dims) -> tuple[Kind, int] | None:
    # Whether all axes that leave a dim join another one, behind those that stay; or the parts of every dim are as many.
    if [prod(a.size for a in axes) for axes in start] == [prod(a.size for a in axes) for axes in end]:
        return "permute", 1
    lost: list[Axis] = []
    for old, new in zip(start, end, strict=True):
        less = remainder(old, new)
        if less is None and remainder(new, old) is None:
            return None
        lost += less or ()
    return "all_to_all", prod(axis.size for axis in lost)
