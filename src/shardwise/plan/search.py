"""Search: the candidates for a transition, and the cheapest of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from operator import mul

from shardwise.layout.axis import Axis, common, cover, is_disjoint, merge, without
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.placement import ReduceOp
from shardwise.plan.cost import Links, move_time
from shardwise.plan.crowd import Crowd, CrowdMove
from shardwise.plan.holders import Holders
from shardwise.plan.kinds import Change, Kind, change_of, is_nested, remainder
from shardwise.plan.least import Option, count_messages, least
from shardwise.plan.loads import is_prefix, load_of
from shardwise.plan.moves import DirectMove, Move, ReduceMove, Shares, SpreadMove
from shardwise.plan.steps import Slots, State, Step

FAIR = 2  # times the mean: a busiest device that receives no more than that is not busy for others
EXTRA = 1.01  # times the least bytes: what is paid for a much less busy device


@dataclass(frozen=True, init=False)
class Search:
    """The transition to plan: both layouts, on one mesh or each on its own, and the links between devices."""

    src: Layout
    dst: Layout
    shape: Shape
    itemsize: int
    links: Links
    slots: Slots
    numbers: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # slots of either mesh, where they differ
    wide: int = 0  # bytes of an element of the dtype that is added up in, if that is another

    def __init__(
        self,
        src: Layout,
        dst: Layout,
        shape: Shape,
        itemsize: int,
        links: Links,
        slots: Slots,
        numbers: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
        wide: int = 0,
    ) -> None:
        """Set all fields at once, which is faster than one by one."""
        vars(self).update(
            src=src, dst=dst, shape=shape, itemsize=itemsize, links=links, slots=slots, numbers=numbers, wide=wide
        )

    def best(self) -> list[Step]:
        """Return the steps of the cheapest candidate."""
        if self.is_crowded:
            return min(self.crowds(), key=lambda steps: (sum(s.received.total for s in steps), _rounds(steps)))
        candidates = [self.direct(self.src, self.dst)]
        if self.numbers is None:
            candidates = [self._relieve(candidates[0])]
            candidates += map(self.chain, chains(self))
        if len(candidates) == 1:
            return candidates[0]
        # Candidates move equally many elements; the earlier one wins a tie.
        return min(candidates, key=lambda steps: (round(sum(s.time for s in steps), 12), _rounds(steps)))

    def _relieve(self, direct: list[Step]) -> list[Step]:
        # Where few devices would reduce for all the others, those that contribute share the reducing, and send what
        # they have reduced to where it is needed: that takes one message of an element more.
        if not self.src.partial:
            return direct
        pairs = zip(self.src.dims, self.dst.dims, strict=True)
        if all(is_prefix(old.axes, new.axes) for old, new in pairs) or self._is_fair(direct):
            return direct
        middle = _share_out(self.src, self.shape)
        if middle is None:
            return direct
        steps = self.chain([self.src, middle, self.dst])
        is_cheap = _count_bytes(steps) <= EXTRA * _count_bytes(direct)
        return steps if is_cheap and self._is_fair(steps) else direct

    def _is_fair(self, steps: Sequence[Step]) -> bool:
        # Whether the busiest device receives and sends at most a few times the mean, below which none of a plan is.
        return sum(sum(step.loads) for step in steps) <= FAIR * _count_bytes(steps) / self.slots.count

    def chain(self, layouts: Sequence[Layout]) -> list[Step]:
        """Return the steps that visit these layouts one after the other."""
        return self._carry([step for a, b in pairwise(layouts) for step in self.direct(a, b)])

    def _carry(self, steps: list[Step]) -> list[Step]:
        # What has been added up once and will be again is not rounded in between.
        hops = [i for i, step in enumerate(steps) if any(move.reduces for move in step.moves)]
        if len(hops) < 2 or self.wide in (0, self.itemsize):
            return steps
        out: list[Step] = []
        for i, step in enumerate(steps):
            widths = [self.wide if hops[0] < k <= hops[-1] else self.itemsize for k in (i, i + 1)]
            step = replace(step, widths=(widths[0], widths[1]))
            scales = [step.width(move) / self.itemsize for move in step.moves]
            received, sent = (tuple(map(mul, sizes, scales)) for sizes in (step.estimates, step.sends))
            step = replace(step, estimates=received, sends=sent)
            out.append(replace(step, time=self._time(step.axes, step.loads)))
        return out

    # -- one transition ----------------------------------------------------------------------------

    def direct(self, src: Layout, dst: Layout) -> list[Step]:
        """Return the steps of one transition in as few rounds as it needs."""
        options = list(self.options(src, dst))
        if len(options) > 1:
            options = self._cheapest(src, dst, options)
        return min([self._steps(src, dst, option) for option in options], key=len)

    def _cheapest(self, src: Layout, dst: Layout, options: Sequence[Option]) -> list[Option]:
        # Those that move the fewest elements, which mostly can be told without counting elements.
        a, b = self.holders(src.without_halo(), 0), self.holders(dst.without_halo(), 1)
        counts = {option: count for option in options if (count := count_messages(a, b, option)) is not None}
        if len(counts) == len(options):
            near, far = (min(count[i].total for count in counts.values()) for i in range(2))
            options = [o for o in options if counts[o][0].total == near or counts[o][1].total == far]
            if len({(a.total, b.total) for a, b in map(counts.__getitem__, options)}) == 1:
                return options
            if not common(src.sharded_axes, dst.sharded_axes):  # some device has every element before and after
                return [option for option in options if counts[option][0].total == near]
        totals = [least(a, b, option) for option in options]
        return [option for option, total in zip(options, totals, strict=True) if total == min(totals)]

    def options(self, src: Layout, dst: Layout) -> Iterator[Option]:
        """Yield the ways to treat the partial axes of a transition."""
        batch = common(src.partial, dst.partial) if src.reduce_op is dst.reduce_op and self.numbers is None else ()
        # The mean of equal copies is the copy: an average becomes pending along an axis by replicating, and
        # has no identity element that could stand elsewhere.
        is_average = dst.reduce_op is ReduceOp.AVG
        options = [Option(without(src.partial, batch), () if is_average else without(dst.partial, batch), batch)]
        if src.partial and dst.partial and src.reduce_op is dst.reduce_op and not is_average:
            keeping = Option(src.partial, dst.partial, (), keeps=True)
            if not batch:
                options = [keeping]
            elif options[0].pending or options[0].fresh or not self._is_local(src, dst):
                options.append(keeping)
        for option in options:
            yield option
            both = common(src.replicated_axes, dst.replicated_axes) if self.numbers is None else ()
            if option.pending and both:
                yield replace(option, batch=(*option.batch, *both))

    def _is_local(self, src: Layout, dst: Layout) -> bool:
        return change_of(src, dst, self.shape).kind in (None, "slice", "fill")

    def _steps(self, src: Layout, dst: Layout, option: Option) -> list[Step]:
        if not option.pending and not option.fresh:
            return self._move_boxes(src, dst, option.batch)
        start, end = src.without_halo(), dst.without_halo()
        steps = [self._step("slice", (), src, start)] if start is not src else []
        a, b = self.holders(start, 0), self.holders(end, 1)
        shares = Shares(a, b, option.pending, option.fresh, option.batch, option.keeps)
        if option.keeps and not least(a, b, option):
            steps.append(self._fill(start, end, shares))
        elif option.pending:
            steps += self._reduce(start, end, shares)
        else:
            steps += self._move_and_fill(start, end, shares)
        return steps + (self._move_boxes(end, dst, dst.partial, 1) if end is not dst else [])

    def _move_boxes(self, src: Layout, dst: Layout, batch: tuple[Axis, ...], mesh: int | None = None) -> list[Step]:
        # No reduction: slice what can be sliced, then one round. After a reduction both are on one mesh.
        if self.numbers is not None and mesh is None:
            a, b = self.holders(src, 0), self.holders(dst, 1)
            return [self._step("exchange", (), src, dst, (DirectMove(a, b),), (float(volume(b)),))]
        change = change_of(src, dst, self.shape)
        if change.kind is None:
            return []
        if change.kind in ("slice", "fill"):
            return [self._step(change.kind, change.axes, src, dst)]
        if self.is_crowded:
            halo = Crowd(self.holders(src, mesh or 0), self.holders(dst, mesh or 0), batch=batch)
            return [self._crowd_step(change.kind, change.axes, src, dst, CrowdMove(halo, "direct"))]
        first = change.start(src)
        steps = [self._step("slice", _added_axes(src, first), src, first)] if first is not src else []
        move = DirectMove(self.holders(first, mesh or 0), self.holders(dst, mesh or 0), batch)
        estimate = volume(move.dst) * (1 - fraction_in_place(first, dst, self.shape))
        return [*steps, self._step(change.kind, change.axes, first, dst, (move,), (estimate,))]

    def _reduce(self, src: Layout, dst: Layout, shares: Shares) -> list[Step]:
        targets = dst.mesh.rest((*dst.sharded_axes, *shares.fresh, *shares.batch))
        change = change_of(src, dst, self.shape) if self.numbers is None else Change("exchange")
        load = load_of(shares)
        reduce, spread = ReduceMove(shares), SpreadMove(shares)
        over = cover((*shares.pending, *change.axes))
        last = dst if not shares.fresh else shares
        if change.kind is None and targets and merge(targets) == merge(shares.pending) and not shares.fresh:
            received, sent = (load.reduced, load.received), (load.reduced, load.sent)
            steps = [self._step("all_reduce", shares.pending, src, dst, (reduce, spread), received, sent)]
        elif not targets:
            steps = [self._step("reduce_scatter", over, src, last, (reduce,), (load.reduced,))]
        else:
            steps = [
                self._step("reduce_scatter", over, src, shares, (reduce,), (load.reduced,)),
                self._step("all_gather", targets, shares, last, (spread,), (load.received,), (load.sent,)),
            ]
        return [*steps, self._fill(last, dst, shares)] if shares.fresh else steps

    def _move_and_fill(self, src: Layout, dst: Layout, shares: Shares) -> list[Step]:
        # Nothing to reduce: bring each device the boxes it keeps, then put identities elsewhere.
        if self.numbers is None:
            change = change_of(src, dst, self.shape)
            if change.kind in (None, "slice", "fill") or _is_in_place(src, dst, self.shape):
                return [self._fill(src, dst, shares)]
            is_gather = change.kind == "all_gather" and is_disjoint(change.axes, shares.fresh)
            kind: Kind = "all_gather" if is_gather else "exchange"
            axes = change.axes
        else:
            kind, axes = "exchange", ()
        size = volume(shares.dst) / prod(a.size for a in shares.fresh)
        move = DirectMove(shares.src, shares.dst, shares.batch, shares)
        return [self._step(kind, axes, src, shares, (move,), (size,)), self._fill(shares, dst, shares)]

    def _fill(self, before: State, after: Layout, shares: Shares) -> Step:
        return replace(self._step("fill", shares.fresh, before, after), shares=shares)

    # -- devices in several slots ------------------------------------------------------------------

    @property
    def is_crowded(self) -> bool:
        """Whether two meshes meet of which one has a device in several slots."""
        return self.numbers is not None and any(len(set(slots)) < len(slots) for slots in self.numbers)

    def crowds(self) -> Iterator[list[Step]]:
        """Yield the candidates where a device stands in several slots, first the one that reduces on the source."""
        src, dst, resolved = self.src, self.dst, self.src.resolved()
        if resolved is not src:
            yield [*self._crowd_steps(src, resolved, 0, 0), *self._crowd_steps(resolved, dst, 0, 1)]
        yield self._crowd_steps(src, dst, 0, 1)

    def crowd(self, src: Layout, dst: Layout, src_mesh: int = 0, dst_mesh: int = 1) -> Crowd:
        """Return which devices give and take what between two meshes, without halos where there are reductions."""
        fresh = () if dst.reduce_op is ReduceOp.AVG else dst.partial
        if src.partial or fresh:
            src, dst = src.without_halo(), dst.without_halo()
        return Crowd(self.holders(src, src_mesh), self.holders(dst, dst_mesh), src.partial, fresh)

    def _crowd_steps(self, src: Layout, dst: Layout, src_mesh: int, dst_mesh: int) -> list[Step]:
        crowd = self.crowd(src, dst, src_mesh, dst_mesh)
        start, end, fresh = crowd.src.layout, crowd.dst.layout, crowd.fresh
        if not src.partial and not fresh:
            return [self._crowd_step("exchange", (), src, dst, CrowdMove(crowd, "direct"))]
        steps = [self._step("slice", (), src, start)] if start is not src else []
        last = crowd if fresh else end
        if not src.partial:
            steps.append(self._crowd_step("exchange", (), start, crowd, CrowdMove(crowd, "direct")))
        elif not crowd.assignment.spread:
            steps.append(self._crowd_step("reduce_scatter", src.partial, start, last, CrowdMove(crowd, "reduce")))
        else:
            steps.append(self._crowd_step("reduce_scatter", src.partial, start, crowd, CrowdMove(crowd, "reduce")))
            steps.append(self._crowd_step("all_gather", (), crowd, last, CrowdMove(crowd, "spread")))
        if fresh:
            steps.append(replace(self._step("fill", fresh, crowd, end), shares=crowd))
        return steps + (self._move_boxes(end, dst, dst.partial, dst_mesh) if end is not dst else [])

    def _crowd_step(self, kind: Kind, axes: Sequence[Axis], before: State, after: State, move: CrowdMove) -> Step:
        return self._step(kind, axes, before, after, (move,), (float(move.busiest[0]),))

    # -- pieces ------------------------------------------------------------------------------------

    def holders(self, layout: Layout, mesh: int) -> Holders:
        """Return who holds what under a layout of the source mesh (0) or the target mesh (1)."""
        return Holders(layout, self.shape, () if self.numbers is None else self.numbers[mesh])

    def _step(
        self,
        kind: Kind,
        axes: Sequence[Axis],
        before: State,
        after: State,
        moves: tuple[Move, ...] = (),
        estimates: tuple[float, ...] = (),
        sends: tuple[float, ...] | None = None,
    ) -> Step:
        # `estimates` are the elements that the busiest device receives, `sends` those that one sends, if they differ.
        axes, received = tuple(axes), tuple([e * self.itemsize for e in estimates])
        sent = received if sends is None else tuple([e * self.itemsize for e in sends])
        time = self._time(axes, tuple(map(max, received, sent)))
        return Step(kind, axes, before, after, self.slots, self.itemsize, moves, received, sent, time)

    def _time(self, axes: Sequence[Axis], each: Sequence[float]) -> float:
        if not each:
            return 0
        levels = self.links.on(self.src.mesh, axes) if self.numbers is None else []
        return sum([move_time(levels or [(self.slots.count, self.links.default)], size) for size in each])


def _count_bytes(steps: Sequence[Step]) -> int:
    return sum(step.received.total for step in steps)


def _share_out(layout: Layout, shape: Shape) -> Layout | None:
    # The layout in which those that contribute to an element have equal shares of what their contributions make.
    parts = prod(axis.size for axis in layout.partial)
    tilings = layout.tiling(shape).dims
    for dim in sorted(range(len(shape)), key=lambda k: -tilings[k].largest):
        if layout.dims[dim].offsets is None and shape[dim] % (tilings[dim].parts * parts) == 0:
            cuts = enumerate(layout.dims)
            return Layout(layout.mesh, [(*cut.axes, *layout.partial) if k == dim else cut for k, cut in cuts])
    return None


def volume(holders: Holders) -> int:
    """Return how many elements the largest shard has."""
    return holders.tiling.volume


def _added_axes(src: Layout, dst: Layout) -> list[Axis]:
    return [a for old, new in zip(src.dims, dst.dims, strict=True) for a in remainder(new.axes, old.axes) or ()]


def fraction_in_place(src: Layout, dst: Layout, shape: Shape) -> float:
    """Return the part of its target that the worst-off device holds already, as the cost model sees it."""
    out = 1.0
    before, after = src.tiling(shape).dims, dst.tiling(shape).dims
    for old, new, s, d in zip(src.dims, dst.dims, before, after, strict=True):
        if old.axes == new.axes or remainder(new.axes, old.axes) is not None:
            out *= 1.0 if not d.halo[0] + d.halo[1] else s.largest / max(1, d.largest)
        elif remainder(old.axes, new.axes) is not None:
            out *= min(1.0, s.largest / max(1, d.largest))
        else:
            return 0.0
    return min(1.0, out)


def _is_in_place(src: Layout, dst: Layout, shape: Shape) -> bool:
    # Whether some device that needs an element always holds it: no axis that splits a dim before and after
    # disagrees about an element, and no copies are to be made.
    if not is_disjoint(dst.replicated_axes, src.sharded_axes):
        return False
    old: list[Axis] = []
    new: list[Axis] = []
    for before, after, s, d in zip(src.dims, dst.dims, src.tiling(shape).dims, dst.tiling(shape).dims, strict=True):
        same = 0
        while same < min(len(before.axes), len(after.axes)) and before.axes[same] == after.axes[same]:
            same += 1
        if same and not (s.is_even and d.is_even) and not (is_nested(s, d) or is_nested(d, s)):
            return False
        old += before.axes[same:]
        new += after.axes[same:]
    return is_disjoint(old, new)


def _rounds(steps: Sequence[Step]) -> int:
    return sum(len(step.moves) for step in steps)


# -- detours that move the same bytes over faster links ---------------------------------------------


def chains(search: Search) -> Iterator[list[Layout]]:
    """Yield the sequences of layouts to consider beside the direct transition: level by level of the links."""
    src, dst, shape = search.src, search.dst, search.shape
    if not search.links.axes or src.has_halo or dst.has_halo:
        return
    change = change_of(src, dst, shape)
    if change.kind == "all_gather" and src.partial == dst.partial:
        start = change.start(src)
        middle = list(_gathers(search, start, dst))
        if len(middle) > 1 and _all_gather(shape, [start, *middle]):
            yield [src, *([start] if start is not src else []), *middle]
    pending = without(src.partial, dst.partial)
    if change.kind is None and not dst.partial and merge(pending) == merge(dst.replicated_axes) and pending:
        yield from _reductions(search, pending)


def _levels(search: Search, axes: Sequence[Axis]) -> list[Axis]:
    # The axes cut where the links change, slowest first.
    mesh, links = search.src.mesh, search.links
    named = [mesh.axis(name, "links") for name, _ in links.axes]
    parts = [part for axis in axes for part in (*common([axis], named), *without([axis], named))]
    return sorted(parts, key=lambda a: (links.on(mesh, [a])[0][1].bandwidth, -links.on(mesh, [a])[0][1].latency, a))


def _gathers(search: Search, src: Layout, dst: Layout) -> Iterator[Layout]:
    # Gather one level at a time, the slowest of those that are minor in their dim first.
    layout = src
    while layout is not dst:
        ends: dict[Axis, tuple[int, tuple[Axis, ...]]] = {}
        for dim, (old, new) in enumerate(zip(layout.dims, dst.dims, strict=True)):
            rest = remainder(old.axes, new.axes)
            if rest:
                levels = sorted(_levels(search, rest[-1:]), key=lambda a: a.pre)
                ends[levels[-1]] = (dim, merge([*new.axes, *rest[:-1], *levels[:-1]]))
        if not ends:
            return
        slowest = _levels(search, list(ends))[0]
        dim, axes = ends[slowest]
        dims = [axes if k == dim else cut for k, cut in enumerate(layout.dims)]
        layout = Layout(layout.mesh, dims, layout.partial, layout.reduce_op or "sum")
        yield layout


def _all_gather(shape: Shape, layouts: Sequence[Layout]) -> bool:
    return all(change_of(a, b, shape).kind == "all_gather" for a, b in pairwise(layouts))


def _reductions(search: Search, pending: Sequence[Axis]) -> Iterator[list[Layout]]:
    # Reduce-scatter over the fast links, all-reduce the small rest over the slow ones, gather back.
    src, dst, shape = search.src, search.dst, search.shape
    levels = _levels(search, pending)
    if len(levels) < 2:
        return
    tiling = src.tiling(shape)
    for slow in range(1, len(levels)):
        fast = sorted(levels[slow:])
        parts = prod(a.size for a in fast)
        for dim in sorted(range(len(shape)), key=lambda k: -tiling.dims[k].largest):
            cut = src.dims[dim]
            if cut.offsets is not None or shape[dim] % (tiling.dims[dim].parts * parts):
                continue
            dims: list[Cut | tuple[Axis, ...]] = [(*c.axes, *fast) if k == dim else c for k, c in enumerate(src.dims)]
            op = src.reduce_op or "sum"
            yield [src, Layout(src.mesh, dims, levels[:slow], op), Layout(src.mesh, dims), dst]
            break
