"""Programs: a plan as the copies and reductions between distinct arrays, compiled when first needed.

The transfers of a plan are the only description of its movement. Devices that hold equal data share one
array, so an element that several of them receive is copied once, and the instruction that copies it remembers
how many bytes that is between devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from shardwise.caches import cache, cached_property
from shardwise.engine.boxes import PlacedBox, group_rows, make_disjoint, merge_neighbours
from shardwise.engine.counters import add_up
from shardwise.engine.grid import Regrid, grid_shape_of, regrid_of
from shardwise.engine.storage import Region, Storage, box_of_region, region, storage_of
from shardwise.layout.axis import common
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.placement import ReduceOp
from shardwise.layout.tiling import Box, box_size
from shardwise.plan.movement import Movement
from shardwise.plan.plan import Plan
from shardwise.plan.record import StepNote
from shardwise.plan.steps import Step
from shardwise.plan.transition import Transition, transitions

Traffic = tuple[tuple[str, int], ...]  # per kind of step, the bytes that devices receive in all
LINE = 64  # bytes of a cache line, at which arrays in one block begin
Term = tuple[int, Region]  # a part of one of the arrays; an empty region is all of it


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
    traffic: Traffic
    size: int  # in bytes


class Reduce(NamedTuple):
    """Parts of several arrays are reduced into the part `at` of array `out`."""

    out: int
    at: Region
    terms: tuple[Term, ...]
    traffic: Traffic
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
    view_traffic: Traffic  # what devices receive in views of arrays that others hold
    itemsize: int
    picks: tuple[int, ...] | None = None  # which of the arrays each array of the next layout is, if not that number
    is_small: bool = False  # whether so little is copied that what a call costs is all that counts
    dtype: np.dtype | None = None  # of the arrays that are made, if that is not the program's

    @cached_property
    def size(self) -> int:
        """The bytes that are written."""
        return sum(job.size for job in (*self.joins, *self.reduces))

    @cached_property
    def regrid(self) -> Regrid | None:
        """How one copy, or one view, makes all arrays, if it can."""
        if self.reduces or self.wholes or self.blank or self.picks or (self.takes and self.fresh):
            return None
        regrid = regrid_of(self.before, self.after)
        return regrid if regrid is not None and self._keeps_places else None

    @property
    def _keeps_places(self) -> bool:
        # Whether every element stays where it is in the tensor, as in a reshard, unlike in a permutation or a flip.
        joins = [(join.out, join.at, join.dim, join.terms) for join in self.joins]
        takes = [(take.out, (), 0, ((take.source, take.region),)) for take in self.takes]
        for out, at, dim, terms in (*joins, *takes):
            into = box_of_region(self.after.box(out), at)
            start = into[dim][0]
            for source, where in terms:
                box = box_of_region(self.before.box(source), where)
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
    def traffic(self) -> Traffic:
        """The bytes that devices receive by all copies together, by kind of step."""
        out: dict[str, int] = {}
        for join in self.joins:
            add_up(out, join.traffic)
        return tuple(sorted(out.items()))

    @cached_property
    def grid_shape(self) -> Shape | None:
        """The shape of the grid that one reduction makes, if all arrays are tiles of it, one after the other."""
        if self.wholes != (self.after.shape,) or len(self.views) < self.after.count or self.picks is not None:
            return None
        return grid_shape_of(self.after)

    @cached_property
    def is_lone(self) -> bool:
        """Whether one reduction into one new array is all there is to do."""
        others = self.joins or self.takes or self.blank or self.picks is not None
        whole = self.grid_shape is not None if self.views else self.after.count == 1
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
    def scale(where: Region) -> Region:
        if not where:
            return where
        return (*where[:-2], slice(where[-2].start // length, where[-2].stop // length), ...)

    terms = tuple((source, scale(where)) for source, where in join.terms)
    return join._replace(at=scale(join.at), terms=terms)


@dataclass(frozen=True, eq=False)  # `program_of` makes it once for a plan, and it is known by identity
class Program:
    """How the arrays of one layout are made from those of another: the stages of a plan, or its own."""

    target: Storage
    dtype: np.dtype
    plan: Plan | None = None
    own_stages: tuple[Stage, ...] = ()  # if there is no plan
    sources: tuple[int | None, ...] | None = None  # of a permutation: per device, the one whose array it receives

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """What is to be done, one after the other."""
        if self.plan is None:
            return self.own_stages
        return tuple(_stage(self.plan, transition) for transition in transitions(self.plan))

    @cached_property
    def regrid(self) -> Regrid | None:
        """The one copy that is all there is to do, if it is so."""
        only = self.stages[0] if len(self.stages) == 1 else None
        return only.regrid if only is not None and only.fresh and self.picks is None else None

    @cached_property
    def picks(self) -> tuple[int, ...] | None:
        """Which of the last stage's arrays each array of the target is, if not the one with its number."""
        plan = self.plan
        if plan is None or plan.search.numbers is not None or plan.dst is plan.search.dst:
            return None
        # The target is on a mesh of its own, which the plan has put into the axes of the source's. If there is nothing
        # to do, the arrays are still those of the source, which may be fewer: equal copies seen as terms of an average.
        slots, own = plan.search.slots, storage_of(plan.search.dst if plan.steps else plan.src, plan.shape)
        picks = tuple(own.index(slots.find(plan.dst.mesh.device(i))) for i in self.target.firsts)
        return None if picks == tuple(range(own.count)) else picks


@cache()
def program_of(plan: Plan) -> Program:
    """Return the program of a plan."""
    return Program(storage_of(plan.dst, plan.shape), plan.dtype, plan)


def notes(steps: Sequence[Step]) -> tuple[StepNote, ...]:
    """Return what the log says of some steps."""
    return tuple(
        StepNote(s.kind, tuple(map(str, s.axes)), str(s.before), str(s.after), int(sum(s.estimates))) for s in steps
    )


# -- from transfers to instructions ----------------------------------------------------------------------


@dataclass
class _StageBuilder:
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
        sizes = self.parts[out].setdefault((box, sources), {})
        if size:
            sizes[kind] = sizes.get(kind, 0) + size

    def stage(self, steps: Sequence[Step], op: ReduceOp | None, filling: ReduceOp | None) -> Stage:
        takes: list[Take] = []
        joins: list[Join] = []
        reduces: list[Reduce] = []
        fresh: list[int] = []
        blank: list[int] = []
        view_traffic: dict[str, int] = {}
        contents = [self._boxes(parts) for parts in self.parts]
        wholes, views = self._wholes(contents)
        for number, whole in enumerate(wholes, self.after.count):
            reduces.append(Reduce(number, (), self._terms(whole), *self._count([whole])))
            fresh.append(number)
        inside = {view.out for view in views}
        for out, boxes in enumerate(contents):
            box = self.after.boxes[out]
            if out in inside:
                continue
            if len(boxes) == 1 and boxes[0].box == box and len(boxes[0].sources) == 1:
                takes.append(Take(out, *self._terms(boxes[0])[0]))
                add_up(view_traffic, boxes[0].traffic.items())
                continue
            fresh.append(out)
            if sum(box_size(part.box) for part in boxes) < box_size(box):
                blank.append(out)
            for part in boxes:
                if len(part.sources) > 1:
                    reduces.append(Reduce(out, self._at(out, part.box), self._terms(part), *self._count([part])))
            for where, dim, group in group_rows([part for part in boxes if len(part.sources) == 1]):
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
            tuple(sorted(view_traffic.items())),
            self.itemsize,
        )

    def _wholes(self, contents: Sequence[Sequence[PlacedBox]]) -> tuple[list[PlacedBox], list[Take]]:
        # Arrays that are reductions of the same terms, side by side, are made as one, of which they are views.
        alike: dict[tuple[int, ...], list[tuple[int, PlacedBox]]] = {}
        for out, boxes in enumerate(contents):
            if len(boxes) == 1 and len(boxes[0].sources) > 1 and boxes[0].box == self.after.boxes[out]:
                alike.setdefault(boxes[0].sources, []).append((out, boxes[0]))
        wholes: list[PlacedBox] = []
        views: list[Take] = []
        for sources, group in alike.items():
            spans = zip(*(part.box for _, part in group), strict=True)
            box = tuple((min(start for start, _ in span), max(stop for _, stop in span)) for span in spans)
            if len(group) == 1 or box_size(box) != sum(box_size(part.box) for _, part in group):
                continue
            whole = PlacedBox(box, sources)
            for out, part in group:
                add_up(whole.traffic, part.traffic.items())
                views.append(Take(out, self.after.count + len(wholes), _where(part.box, box)))
            wholes.append(whole)
        return wholes, views

    def _boxes(self, parts: dict[tuple[Box, tuple[int, ...]], dict[str, int]]) -> list[PlacedBox]:
        boxes = [
            PlacedBox(box, sources, {kind: n * box_size(box) for kind, n in sizes.items()})
            for (box, sources), sizes in parts.items()
        ]
        return merge_neighbours(make_disjoint(merge_neighbours(boxes)))

    def _at(self, out: int, box: Box) -> Region:
        return _where(box, self.after.boxes[out])

    def _terms(self, part: PlacedBox) -> tuple[Term, ...]:
        return tuple((i, _where(part.box, self.before.boxes[i])) for i in part.sources)

    def _count(self, group: Sequence[PlacedBox]) -> tuple[Traffic, int]:
        traffic: dict[str, int] = {}
        for part in group:
            add_up(traffic, part.traffic.items())
        return tuple(sorted(traffic.items())), sum(box_size(part.box) for part in group) * self.itemsize


def _where(box: Box, inside: Box) -> Region:
    return () if box == inside else region(box, inside)


def _stage(plan: Plan, transition: Transition) -> Stage:
    before, target = (storage_of(layout, plan.shape) for layout in (transition.before, transition.after))
    after = _merge_terms(target, transition)
    build = _StageBuilder(before, after, transition.dtype.itemsize)
    for step, move in transition.moves:
        for out, slots in enumerate(after.holders):
            for slot in slots:
                _add_slot(build, out, step, move, slot)
    stage = build.stage(transition.steps, transition.before.reduce_op, transition.filling)
    if transition.dtype != plan.dtype:
        stage = replace(stage, dtype=transition.dtype)
    if after is target:
        return stage
    return replace(stage, picks=tuple(map(after.index, target.firsts)))


def _merge_terms(target: Storage, transition: Transition) -> Storage:
    # An average becomes pending by replicating: the result is made once, and every term is that array.
    layout = target.layout
    batch = [move.batch_axes for _, move in transition.moves if move.reduces]
    if not batch or layout.reduce_op is not ReduceOp.AVG:
        return target
    return storage_of(Layout(layout.mesh, layout.dims, common(layout.partial, batch[0]), ReduceOp.AVG), target.shape)


def _add_slot(build: _StageBuilder, out: int, step: Step, move: Movement, slot: int) -> None:
    # What the array of a slot is made of in one round.
    index, width = build.before.index, step.width(move)
    if move.reduces:
        for reduction in move.reductions(slot):
            terms = tuple(map(index, reduction.sources))
            build.add(out, reduction.box, terms, step.kind, move.count_far(reduction) * width)
        return
    for source, _, box in move.stays(slot):
        build.add(out, box, (index(source),))
    for source, _, box in move.arrivals(slot):
        # What is spread goes to devices that share this very array, so it is counted but not copied.
        build.add(out, box, () if move.spreads else (index(source),), step.kind, width)
    for copy in move.local_copies(slot):
        if copy.source is not None:
            build.add(out, copy.box, (index(copy.source),))


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
    size = sum(box_size(storage.boxes[take.out]) * times[take.out] for take in takes) * dtype.itemsize
    note = StepNote("permute", (), str(storage.layout), str(storage.layout))
    traffic = (("permute", size),) if size else ()
    stage = Stage((note,), storage, storage, None, None, takes, (), (), zeros, zeros, (), (), traffic, dtype.itemsize)
    return Program(storage, dtype, own_stages=(stage,), sources=sources)
