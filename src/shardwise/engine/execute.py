"""Programs: a plan as the copies and reductions between distinct arrays, compiled when first needed.

The transfers of a plan are the only description of its movement. Devices that hold equal data share one
array, so an element that several of them receive is copied once, and the instruction that copies it remembers
how many bytes that is between devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from shardwise.caches import cache
from shardwise.engine.boxes import Placed, disjoint, joined, merged
from shardwise.engine.grid import Regrid, regrid_of, tiled
from shardwise.engine.storage import Region, Storage, covered, region, storage_of
from shardwise.layout.axis import common
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.placement import ReduceOp, accumulator
from shardwise.layout.tiling import Box, box_size, intersect
from shardwise.plan.crowd import Crowd, CrowdMove
from shardwise.plan.holders import ListedSide, MeshSide, Side, clipped
from shardwise.plan.moves import DirectMove, Shares
from shardwise.plan.plan import Plan
from shardwise.plan.steps import Step
from shardwise.plan.transfer import Slot

Moved = tuple[tuple[str, int], ...]  # per kind of step, the bytes that devices receive in all
LINE = 64  # bytes of a cache line, at which arrays in one block begin
Term = tuple[int, Region]  # a part of one of the arrays; an empty region is all of it


class StepNote(NamedTuple):
    """What the log says of a step."""

    kind: str
    axes: tuple[str, ...]
    before: str
    after: str
    busiest: int = 0  # bytes that the busiest device receives, as the planner estimates them


class Take(NamedTuple):
    """Array `out` is a view of array `source`."""

    out: int
    source: int
    region: Region


class Join(NamedTuple):
    """Parts of arrays are copied, side by side along `dim`, to the part `at` of array `out`."""

    out: int
    at: Region
    dim: int
    terms: tuple[Term, ...]
    moved: Moved
    size: int  # in bytes


class Reduce(NamedTuple):
    """Parts of several arrays are reduced into the part `at` of array `out`."""

    out: int
    at: Region
    terms: tuple[Term, ...]
    moved: Moved
    size: int  # in bytes


@dataclass(frozen=True)
class Stage:
    """One or a few steps of a plan, between two layouts."""

    steps: tuple[StepNote, ...]
    before: Storage
    after: Storage
    op: ReduceOp | None  # how contributions are combined: the source's reduction
    filling: ReduceOp | None  # whose identities stand in where values become partial: the target's
    takes: tuple[Take, ...]
    wholes: tuple[Shape, ...]  # shapes of arrays, numbered after those of the target, that only views are kept of
    views: tuple[Take, ...]  # the arrays that are views of those
    fresh: tuple[int, ...]  # arrays to allocate
    blank: tuple[int, ...]  # those of them that no copy fills entirely
    joins: tuple[Join, ...]
    reduces: tuple[Reduce, ...]
    free: Moved  # what devices receive in views of arrays that others hold
    itemsize: int
    order: tuple[int, ...] | None = None  # which of the arrays each array of the next layout is, if not its number
    is_small: bool = False  # whether so little is copied that what a call costs is all that counts
    dtype: np.dtype | None = None  # of the arrays that are made, if that is not the program's

    @cached_property
    def size(self) -> int:
        """The bytes that are written."""
        return sum(job.size for job in (*self.joins, *self.reduces))

    @cached_property
    def regrid(self) -> Regrid | None:
        """How one copy, or one view, makes all arrays, if it can."""
        if self.reduces or self.wholes or self.blank or self.order or (self.takes and self.fresh):
            return None
        found = regrid_of(self.before, self.after)
        return found if found is not None and self._keeps_places else None

    @property
    def _keeps_places(self) -> bool:
        # Whether every element stays where it is in the tensor, as in a reshard, unlike in a permutation or a flip.
        joins = [(join.out, join.at, join.dim, join.terms) for join in self.joins]
        takes = [(take.out, (), 0, ((take.source, take.region),)) for take in self.takes]
        for out, at, dim, terms in (*joins, *takes):
            into = covered(self.after.box(out), at)
            start = into[dim][0]
            for source, where in terms:
                box = covered(self.before.box(source), where)
                stop = start + box[dim][1] - box[dim][0]
                if box != (*into[:dim], (start, stop), *into[dim + 1 :]) or any(s.step for s in where[:-1]):
                    return False
                start = stop
        return True

    @cached_property
    def copies(self) -> int:
        """How many arrays are copied from, over all targets."""
        return sum(len(join.terms) for join in self.joins)

    @cached_property
    def moved(self) -> Moved:
        """What all copies together are between devices."""
        out: dict[str, int] = {}
        for join in self.joins:
            for kind, size in join.moved:
                out[kind] = out.get(kind, 0) + size
        return tuple(sorted(out.items()))

    @cached_property
    def tiled(self) -> Shape | None:
        """The shape of the grid that one reduction makes, if all arrays are tiles of it, one after the other."""
        if self.wholes != (self.after.shape,) or len(self.views) < self.after.count or self.order is not None:
            return None
        return tiled(self.after)

    @cached_property
    def is_lone(self) -> bool:
        """Whether one reduction into one new array is all there is to do."""
        others = self.joins or self.takes or self.blank or self.order is not None
        whole = self.tiled is not None if self.views else self.after.count == 1
        return len(self.reduces) == len(self.fresh) == 1 and whole and not others and not self.reduces[0].at

    @cached_property
    def is_joined(self) -> bool:
        """Whether every array is a view, the parts of others side by side, or empty."""
        whole = len({join.out for join in self.joins}) == len(self.joins) and not any(join.at for join in self.joins)
        return whole and not (self.blank or self.reduces or self.wholes)

    @cached_property
    def empties(self) -> tuple[int, ...]:
        """The arrays of no elements, which nothing is copied to."""
        return tuple(sorted({*self.fresh} - {job.out for job in (*self.joins, *self.reduces)}))

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of all arrays that the stage makes."""
        return (*self.after.shapes, *self.wholes)

    @cached_property
    def memory(self) -> tuple[int, tuple[int, ...]]:
        """The bytes of one block for all fresh arrays, and where in it each begins."""
        sizes = [-(-prod(self.shapes[i]) * self.itemsize // LINE) * LINE for i in self.fresh]
        ends = tuple(accumulate(sizes))
        return sum(sizes), (0, *ends[:-1])

    @cached_property
    def rows(self) -> tuple[int, tuple[Join, ...]] | None:
        """The copies as of whole runs of elements along the last dim, and the length of a run.

        Runs are as long as every boundary allows. Copying each as one wide element saves the inner loop.
        """
        shapes = (*self.before.shapes, *self.after.shapes)
        length = gcd(*(shape[-1] if shape else 1 for shape in shapes))
        for join in self.joins:
            for where in (join.at, *(where for _, where in join.terms)):
                if where:
                    length = gcd(length, where[-2].start, where[-2].stop)
        if length <= 1 or all(shape[-1] == length for shape in shapes):  # rows that are never cut are contiguous
            return None
        return length, tuple(_in_runs(join, length) for join in self.joins)


def _in_runs(join: Join, length: int) -> Join:
    def scaled(where: Region) -> Region:
        if not where:
            return where
        return (*where[:-2], slice(where[-2].start // length, where[-2].stop // length), ...)

    terms = tuple((source, scaled(where)) for source, where in join.terms)
    return join._replace(at=scaled(join.at), terms=terms)


@dataclass(frozen=True, eq=False)  # `compiled` makes it once for a plan, and it is known by identity
class Program:
    """How the arrays of one layout are made from those of another: the stages of a plan, or given ones."""

    target: Storage
    dtype: np.dtype
    plan: Plan | None = None
    given: tuple[Stage, ...] = ()
    sources: tuple[int | None, ...] | None = None  # of a permutation: per device, the one whose array it receives

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """What is to be done, one after the other."""
        if self.plan is None:
            return self.given
        return tuple(_stage(self.plan, steps) for steps in groups(self.plan.steps))

    @cached_property
    def regrid(self) -> Regrid | None:
        """The one copy that is all there is to do, if it is so."""
        only = self.stages[0] if len(self.stages) == 1 else None
        return only.regrid if only is not None and only.fresh and self.order is None else None

    @cached_property
    def order(self) -> tuple[int, ...] | None:
        """Which of the last stage's arrays is each array of the target, if not the one with its number."""
        plan = self.plan
        if plan is None or plan.search.numbers is not None or plan.dst is plan.search.dst:
            return None
        # The target is on a mesh of its own, which the plan has put into the axes of the source's. If there is nothing
        # to do, the arrays are still those of the source, which may be fewer: equal copies seen as terms of an average.
        ground, own = plan.search.ground, storage_of(plan.search.dst if plan.steps else plan.src, plan.shape)
        order = tuple(own.index(ground.slot(plan.dst.mesh.device(ds[0]))) for ds in self.target.holders)
        return None if order == tuple(range(own.count)) else order


@cache()
def compiled(plan: Plan) -> Program:
    """Return the program of a plan."""
    return Program(storage_of(plan.dst, plan.shape), plan.dtype, plan)


def groups(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield the steps of each stage: those between which devices hold shares, not a layout, are run as one."""
    group: list[Step] = []
    for step in steps:
        group.append(step)
        if isinstance(step.after, Layout):
            yield group
            group = []


def notes(steps: Sequence[Step]) -> tuple[StepNote, ...]:
    """Return what the log says of some steps."""
    return tuple(
        StepNote(s.kind, tuple(map(str, s.axes)), str(s.before), str(s.after), int(sum(s.estimates))) for s in steps
    )


# -- from transfers to instructions ----------------------------------------------------------------------


@dataclass
class _Builder:
    """Collects what goes into the arrays of one stage."""

    before: Storage
    after: Storage
    itemsize: int
    # Per target array and box: the source arrays, and per kind of step the bytes that devices received of an element.
    parts: list[dict[tuple[Box, tuple[int, ...]], dict[str, int]]] = field(init=False)

    def __post_init__(self) -> None:
        self.parts = [{} for _ in range(self.after.count)]

    def add(self, out: int, box: Box, sources: tuple[int, ...], kind: str = "", size: int = 0) -> None:
        if not box_size(box):
            return
        found = self.parts[out].setdefault((box, sources), {})
        if size:
            found[kind] = found.get(kind, 0) + size

    def stage(self, steps: Sequence[Step], op: ReduceOp | None, filling: ReduceOp | None) -> Stage:
        takes, fresh, blank, joins, reduces = [], [], [], [], []
        free: dict[str, int] = {}
        made = [merged(disjoint(merged([self._placed(*part) for part in parts.items()]))) for parts in self.parts]
        wholes, views = self._wholes(made)
        for number, whole in enumerate(wholes, self.after.count):
            reduces.append(Reduce(number, (), self._terms(whole), *self._count([whole])))
            fresh.append(number)
        inside = {view.out for view in views}
        for out, found in enumerate(made):
            box = self.after.boxes[out]
            if out in inside:
                continue
            if len(found) == 1 and found[0].box == box and len(found[0].sources) == 1:
                takes.append(Take(out, *self._terms(found[0])[0]))
                for kind, size in found[0].moved.items():
                    free[kind] = free.get(kind, 0) + size
                continue
            fresh.append(out)
            if sum(box_size(part.box) for part in found) < box_size(box):
                blank.append(out)
            for part in found:
                if len(part.sources) > 1:
                    reduces.append(Reduce(out, self._at(out, part.box), self._terms(part), *self._count([part])))
            for where, dim, group in joined([part for part in found if len(part.sources) == 1]):
                terms = tuple(term for part in group for term in self._terms(part))
                joins.append(Join(out, self._at(out, where), dim, terms, *self._count(group)))
        return Stage(
            notes(steps),
            self.before,
            self.after,
            op,
            filling,
            tuple(takes),
            tuple(tuple(stop - start for start, stop in whole.box) for whole in wholes),
            tuple(views),
            tuple(fresh),
            tuple(blank),
            tuple(joins),
            tuple(reduces),
            tuple(sorted(free.items())),
            self.itemsize,
        )

    def _wholes(self, made: Sequence[Sequence[Placed]]) -> tuple[list[Placed], list[Take]]:
        # Arrays that are reductions of the same terms, side by side, are made as one, of which they are views.
        alike: dict[tuple[int, ...], list[tuple[int, Placed]]] = {}
        for out, found in enumerate(made):
            if len(found) == 1 and len(found[0].sources) > 1 and found[0].box == self.after.boxes[out]:
                alike.setdefault(found[0].sources, []).append((out, found[0]))
        wholes, views = [], []
        for sources, group in alike.items():
            spans = zip(*(part.box for _, part in group), strict=True)
            box = tuple((min(start for start, _ in span), max(stop for _, stop in span)) for span in spans)
            if len(group) == 1 or box_size(box) != sum(box_size(part.box) for _, part in group):
                continue
            whole = Placed(box, sources)
            for out, part in group:
                whole.count(part)
                views.append(Take(out, self.after.count + len(wholes), _where(part.box, box)))
            wholes.append(whole)
        return wholes, views

    def _placed(self, key: tuple[Box, tuple[int, ...]], sizes: dict[str, int]) -> Placed:
        box, sources = key
        return Placed(box, sources, {kind: n * box_size(box) for kind, n in sizes.items()})

    def _at(self, out: int, box: Box) -> Region:
        return _where(box, self.after.boxes[out])

    def _terms(self, part: Placed) -> tuple[Term, ...]:
        return tuple((i, _where(part.box, self.before.boxes[i])) for i in part.sources)

    def _count(self, group: Sequence[Placed]) -> tuple[Moved, int]:
        moved: dict[str, int] = {}
        for part in group:
            for kind, size in part.moved.items():
                moved[kind] = moved.get(kind, 0) + size
        return tuple(sorted(moved.items())), sum(box_size(part.box) for part in group) * self.itemsize


def _where(box: Box, inside: Box) -> Region:
    return () if box == inside else region(box, inside)


def _stage(plan: Plan, steps: Sequence[Step]) -> Stage:
    first, last = steps[0], steps[-1]
    assert isinstance(first.before, Layout)
    assert isinstance(last.after, Layout)
    shares = _shares(steps)
    before, after = storage_of(first.before, plan.shape), _made(last.after, shares, plan.shape)
    dtype = made_dtype(last, plan.dtype)
    build = _Builder(before, after, dtype.itemsize)
    crowd = next((move.crowd for step in steps for move in step.moves if isinstance(move, CrowdMove)), None)
    if crowd is not None:
        _build_crowd(build, steps, crowd)
    elif shares is None:
        _build_direct(build, first, plan)
    elif isinstance(shares, Crowd):
        raise AssertionError("a crowd has a move")
    elif shares.pending:
        _build_reduced(build, steps, shares)
    else:
        _build_filled(build, steps, shares)
    stage = build.stage(steps, first.before.reduce_op, None if shares is None else last.after.reduce_op)
    stage = stage if dtype == plan.dtype else replace(stage, dtype=dtype)
    if after.layout is last.after:
        return stage
    target = storage_of(last.after, plan.shape)
    return replace(stage, order=tuple(after.index(devices[0]) for devices in target.holders))


def made_dtype(step: Step, dtype: np.dtype) -> np.dtype:
    """Return the dtype of the arrays that a step makes: sums that are added up further are not rounded yet."""
    return dtype if step.widths is None or step.widths[1] == dtype.itemsize else accumulator(dtype)


def _shares(steps: Sequence[Step]) -> Shares | Crowd | None:
    # Who reduces or keeps what, where values are brought together or become partial.
    for move in (move for step in steps for move in step.moves):
        if isinstance(move, CrowdMove):
            return move.crowd if move.crowd.pending or move.crowd.fresh else None
        if move.shares:
            return move.shares
    return steps[-1].shares


def _made(layout: Layout, shares: Shares | Crowd | None, shape: Shape) -> Storage:
    # An average becomes pending by replicating: the result is made once, and every term is that array.
    if shares is None or layout.reduce_op is not ReduceOp.AVG:
        return storage_of(layout, shape)
    return storage_of(Layout(layout.mesh, layout.dims, common(layout.partial, shares.batch), ReduceOp.AVG), shape)


def _build_direct(build: _Builder, step: Step, plan: Plan) -> None:
    if step.is_local:
        for out, devices in enumerate(build.after.holders):
            source = build.before.index(devices[0])
            inside = clipped(build.after.boxes[out], plan.shape)
            common = intersect(inside, build.before.boxes[source]) if inside else ()
            if common is not None:
                build.add(out, common, (source,))
        return
    move = step.moves[0]
    assert isinstance(move, DirectMove)
    slots = _slots(move.dst)
    for out, devices in enumerate(build.after.holders):
        for slot in (slots(device) for device in devices):
            own, need = move.src.held(slot), move.dst.held(slot)
            common = intersect(need, own) if own is not None and need is not None else None
            if common is not None:
                build.add(out, common, (build.before.index(_index(move.src, slot)),))
            for transfer in move.incoming(slot):
                source = build.before.index(_index(move.src, transfer.source))
                build.add(out, transfer.box, (source,), step.kind, step.width(move))


def _build_reduced(build: _Builder, steps: Sequence[Step], shares: Shares) -> None:
    moves = [(step.kind, move, step.width(move)) for step in steps for move in step.moves]
    slots = _slots(shares.dst)
    for out, devices in enumerate(build.after.holders):
        for slot in (slots(device) for device in devices):
            for tile, box in shares.of(slot):
                sources = shares.src.sources(tile, slot, shares.pending)
                terms = tuple(build.before.index(_index(shares.src, s)) for s in sources)
                build.add(out, box, terms, moves[0][0], sum(s != slot for s in sources) * moves[0][2])
        # The spread goes to devices that share this very array, so it is counted but not copied.
        for slot in (slots(device) for device in devices):
            for kind, move, size in moves[1:]:
                for transfer in move.incoming(slot):
                    build.add(out, transfer.box, (), kind, size)


def _build_filled(build: _Builder, steps: Sequence[Step], shares: Shares) -> None:
    slots = _slots(shares.dst)
    for out, devices in enumerate(build.after.holders):
        for slot in (slots(device) for device in devices):
            own = shares.src.held(slot)
            for box in shares.kept(slot):
                common = None if own is None else intersect(box, own)
                if common is not None:
                    build.add(out, common, (build.before.index(_index(shares.src, slot)),))
            for step in steps:
                for move in step.moves:
                    for transfer in move.incoming(slot):
                        source = build.before.index(_index(shares.src, transfer.source))
                        build.add(out, transfer.box, (source,), step.kind, step.width(move))


def _build_crowd(build: _Builder, steps: Sequence[Step], crowd: Crowd) -> None:
    # What slots of one device hand each other is a copy of what came, and within one array nothing at all.
    kinds = {move.phase: step.kind for step in steps for move in step.moves if isinstance(move, CrowdMove)}
    work, before, after = crowd.work, build.before.index, build.after.index
    for i, j, box in work.near:
        build.add(after(j), box, (before(i),))
    for i, j, box in work.far:
        build.add(after(j), box, (before(i),), kinds["direct"], build.itemsize)
    for handed in work.handed:
        if handed.source is not None:
            build.add(after(handed.target), handed.box, (before(handed.source),))
    for sources, j, box in work.totals:
        far = sum(crowd.src.numbers[i] != crowd.dst.numbers[j] for i in sources)
        build.add(after(j), box, tuple(map(before, sources)), kinds["reduce"], far * build.itemsize)
    for _, j, box in work.spread:
        build.add(after(j), box, (), kinds["spread"], build.itemsize)


def _slots(side: Side) -> Callable[[int], int]:
    return side.numbers.__getitem__ if isinstance(side, ListedSide) else int


def _index(side: Side, slot: Slot) -> int:
    assert isinstance(slot, int), "moves know devices by slots"
    return slot if isinstance(side, MeshSide) else side.index(slot)


@cache()
def permutation(
    storage: Storage,
    picks: tuple[int | None, ...],
    times: tuple[int, ...],
    dtype: np.dtype,
    sources: tuple[int | None, ...] | None = None,
) -> Program:
    """Return the program in which array i becomes array `picks[i]`, or zeros where that is None.

    `times[i]` is how many devices receive it, `sources` from which device each of them does.
    """
    takes = tuple(Take(out, pick, ()) for out, pick in enumerate(picks) if pick is not None)
    zeros = tuple(out for out, pick in enumerate(picks) if pick is None)
    moved = sum(box_size(storage.boxes[take.out]) * times[take.out] for take in takes) * dtype.itemsize
    note = StepNote("permute", (), str(storage.layout), str(storage.layout))
    free = (("permute", moved),) if moved else ()
    stage = Stage((note,), storage, storage, None, None, takes, (), (), zeros, zeros, (), (), free, dtype.itemsize)
    return Program(storage, dtype, given=(stage,), sources=sources)
