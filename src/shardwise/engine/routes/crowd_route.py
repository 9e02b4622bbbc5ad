"""Routes of crowds: what one process does in a plan between meshes where a device stands in several slots.

Arrays are known by their slot in the mesh that they are on; slots of one device that hold equal data share the first
one's. What several slots of a device need comes once, and is handed on in a last round of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import prod

from shardwise.engine.call import Call, meshes_text
from shardwise.engine.execute import groups, notes
from shardwise.engine.routes.route import Leg, Message, Out, Part, Round, Route, Sum
from shardwise.engine.storage import Storage, region, storage_of
from shardwise.layout.device import Accelerator
from shardwise.layout.layout import Layout
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.tiling import Box, box_size, intersect
from shardwise.plan.crowd import Crowd, CrowdMove, Pick
from shardwise.plan.holders import clipped
from shardwise.plan.plan import Plan
from shardwise.plan.steps import Step
from shardwise.plan.transfer import pieces

Copy = tuple[Part, Part]  # into, from


def crowd_route(plan: Plan, rank: int) -> Route:
    """Return what the process with a rank does in a plan where a device stands in several slots."""
    src, dst = storage_of(plan.src, plan.shape), storage_of(plan.dst, plan.shape)
    starts = {_first(src, i): src.index(i) for i in _own(plan.src.mesh, rank)}
    ends: dict[int, int] = {}
    for j in _own(plan.dst.mesh, rank):
        ends.setdefault(dst.index(j), _first(dst, j))
    legs = tuple(_leg(plan, rank, steps) for steps in groups(plan.steps))
    return Route(tuple(starts.items()), legs, tuple(ends.items()))


def _own(mesh: DeviceMesh, rank: int) -> list[int]:
    return [i for i, device in enumerate(mesh.devices) if device.id == rank]


def _first(storage: Storage, slot: int) -> int:
    # The first of a device's slots that hold the array of this one.
    device, which = storage.layout.mesh.device(slot), storage.index(slot)
    return next(i for i in storage.holders[which] if storage.layout.mesh.device(i) == device)


def _part(storage: Storage, slot: int, box: Box) -> Part:
    held = storage.box(storage.index(slot))
    shape = tuple([stop - start for start, stop in box])
    return Part(_first(storage, slot), () if box == held else region(box, held), shape)


def _distinct(copies: Iterable[Copy]) -> tuple[Copy, ...]:
    return tuple({repr(copy): copy for copy in copies}.values())  # slices have no hash before Python 3.12


def _leg(plan: Plan, rank: int, steps: Sequence[Step]) -> Leg:
    first, last = steps[0], steps[-1]
    assert isinstance(first.before, Layout)
    assert isinstance(last.after, Layout)
    before, after = storage_of(first.before, plan.shape), storage_of(last.after, plan.shape)
    moves = [(step, move) for step in steps for move in step.moves]
    crowd = next((move.crowd for _, move in moves if isinstance(move, CrowdMove)), None)
    fills = crowd is not None and bool(crowd.pending or crowd.fresh)
    side = _Side(plan, rank, before, after, crowd)
    copies = _distinct(side.copies())
    rounds, near = [], {}
    for step, move in moves if side.takes_part else ():
        assert isinstance(move, CrowdMove)
        made, count = side.rounds(step, move)
        rounds += made
        if count:
            near[step.kind] = near.get(step.kind, 0) + count
    handed = _distinct(side.hand_over())
    if handed:
        rounds.append(Round(side.call(steps[-1]), (), (), handed=handed, talks=False))
    outs = tuple(side.outs(last.after))
    filling = last.after.reduce_op if fills else None
    noted = tuple(sorted(near.items()))
    return Leg(notes(steps), outs, (), copies, noted, tuple(rounds), first.before.reduce_op, filling)


@dataclass(frozen=True)
class _Side:
    """A leg as one process sees it."""

    plan: Plan
    rank: int
    before: Storage
    after: Storage
    crowd: Crowd | None

    @cached_property
    def sources(self) -> list[int]:
        """The rank of each slot of the old mesh."""
        return [device.id for device in self.before.layout.mesh.devices]

    @cached_property
    def targets(self) -> list[int]:
        """The rank of each slot of the new mesh."""
        return [device.id for device in self.after.layout.mesh.devices]

    @property
    def takes_part(self) -> bool:
        return self.rank in self.sources or self.rank in self.targets

    # -- what is here ------------------------------------------------------------------------------

    def copies(self) -> Iterator[Copy]:
        """Yield the copies of what this process has already."""
        if self.crowd is None:  # a local step, on one mesh
            for j in _own(self.after.layout.mesh, self.rank):
                old, new = self.before.box(self.before.index(j)), self.after.box(self.after.index(j))
                common = intersect(clipped(new, self.plan.shape), clipped(old, self.plan.shape))
                if common is not None:
                    yield _part(self.after, j, common), _part(self.before, j, common)
            return
        for i, j, box in (*self.crowd.work.near, *self.crowd.work.far):
            if self.sources[i] == self.targets[j] == self.rank and box_size(box):
                yield _part(self.after, j, box), _part(self.before, i, box)

    def hand_over(self) -> Iterator[Copy]:
        """Yield what slots of this process give each other in the end."""
        for handed in () if self.crowd is None else self.crowd.work.handed:
            if self.targets[handed.target] == self.rank:
                into, source = (_part(self.after, j, handed.box) for j in (handed.target, handed.giver))
                if into != source:
                    yield into, source

    def outs(self, layout: Layout) -> Iterator[Out]:
        """Yield the arrays to make; those that are not surely filled by what comes start as identities."""
        blank = layout.has_halo or (self.crowd is not None and bool(self.crowd.fresh))
        for j in _own(layout.mesh, self.rank):
            if _first(self.after, j) == j:
                shape = self.after.local_shape(self.after.index(j))
                yield Out(j, layout.mesh.device(j), shape, blank)

    # -- what goes and comes -----------------------------------------------------------------------

    def rounds(self, step: Step, move: CrowdMove) -> tuple[list[Round], int]:
        """Return the rounds of a move, and how many elements devices of this process receive from each other."""
        work, spreads = move.crowd.work, move.phase == "spread"
        picks = {"direct": work.far, "spread": work.spread, "reduce": self._contributions(move.crowd)}[move.phase]
        givers, storage = (self.targets, self.after) if spreads else (self.sources, self.before)
        far = [pick for pick in picks if givers[pick.source] != self.targets[pick.target]]
        near = [p for p in picks if givers[p.source] == self.targets[p.target] == self.rank]
        count = sum(box_size(p.box) for p in near if self._apart(move, p))
        handed: list[Copy] = []
        if spreads:
            handed = [(_part(self.after, j, box), _part(self.after, i, box)) for i, j, box in near]
        if not (far or handed or move.reduces):
            return [], count
        out = []
        for chunk in range(step.chunks):
            some = [p._replace(box=box) for p in far if (box := _piece(p.box, step, chunk)) is not None]
            going = [p for p in some if givers[p.source] == self.rank]
            coming = [p for p in some if self.targets[p.target] == self.rank]
            out.append(
                Round(
                    self.call(step),
                    _messages((self.targets[p.target], p, _part(storage, p.source, p.box)) for p in going),
                    _messages((givers[p.source], p, _part(self.after, p.target, p.box)) for p in coming),
                    tuple(self._sums(move.crowd, step, chunk, coming)) if move.reduces else (),
                    spreads,
                    tuple(handed) if chunk == 0 else (),
                    bool(far),
                    on_accelerators=self._on_accelerators,
                )
            )
        return out, count

    def _apart(self, move: CrowdMove, pick: Pick) -> bool:
        giving = move.crowd.dst if move.phase == "spread" else move.crowd.src
        return giving.numbers[pick.source] != move.crowd.dst.numbers[pick.target]

    def _contributions(self, crowd: Crowd) -> list[Pick]:
        return [Pick(i, j, box) for sources, j, box in crowd.work.totals for i in sources]

    def _sums(self, crowd: Crowd, step: Step, chunk: int, coming: Sequence[Pick]) -> Iterator[Sum]:
        # Where in what comes each contribution begins: messages by rank, each in order.
        offsets, at = {}, 0
        for pick in sorted(coming, key=lambda p: (self.sources[p.source], p)):
            offsets[pick] = at
            at += box_size(pick.box)
        for sources, j, whole in crowd.work.totals:
            box = _piece(whole, step, chunk)
            if self.targets[j] != self.rank or box is None:
                continue
            near = (self.sources[i] == self.rank for i in sources)
            terms = [
                _part(self.before, i, box) if here else offsets[Pick(i, j, box)]
                for i, here in zip(sources, near, strict=True)
            ]
            yield Sum(_part(self.after, j, box), tuple(terms))

    @cached_property
    def _on_accelerators(self) -> bool:
        meshes = (self.before.layout.mesh, self.after.layout.mesh)
        return all(isinstance(device, Accelerator) for mesh in meshes for device in mesh.devices)

    def call(self, step: Step) -> Call:
        """Return what all processes must agree about in a step."""
        plan, note = self.plan, notes([step])[0]
        root = next((m.device(0).id for m in (plan.src.mesh, plan.dst.mesh) if m.is_single), None)
        op = plan.src.reduce_op or plan.dst.reduce_op
        return Call(
            step.kind,
            tuple(sorted({*self.sources, *self.targets})),
            plan.shape,
            str(plan.dtype),
            note.before,
            note.after,
            None if op is None else str(op),
            root,
            plan.digest,
            meshes_text(plan.src.mesh, plan.dst.mesh),
        )


def _messages(parts: Iterable[tuple[int, Pick, Part]]) -> tuple[Message, ...]:
    # One message to or from each process, its parts in an order that both ends know.
    found: dict[int, list[Part]] = {}
    for rank, _, part in sorted(parts, key=lambda some: some[:2]):
        found.setdefault(rank, []).append(part)
    return tuple(
        Message(rank, tuple(some), sum(prod(part.shape) for part in some)) for rank, some in sorted(found.items())
    )


def _piece(box: Box, step: Step, chunk: int) -> Box | None:
    if step.grain is None:
        return box
    return next(islice(pieces(box, step.grain), chunk, None), None)
