"""Surveys: a plan as one process sees it, from which its route follows.

The transfers of a plan are the only description of its movement. A process enumerates those of its own devices,
known by their slots, and no others. What goes from one process to another in a round is one message: its boxes in
the order of (source, target, box), which both ends know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from shardwise.caches import cache
from shardwise.engine.call import Call, meshes_text
from shardwise.engine.execute import Program, groups, made_dtype, notes
from shardwise.engine.routes.crowd_route import crowd_route
from shardwise.engine.routes.handover import handover_route
from shardwise.engine.routes.route import Leg, Message, Out, Part, Round, Route, Sum
from shardwise.engine.routes.swap import SwapMove, rounds_of
from shardwise.engine.storage import Storage, region, storage_of
from shardwise.layout.device import Accelerator, Device
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.placement import ReduceOp
from shardwise.layout.tiling import Box, box_size, intersect
from shardwise.plan.crowd import Crowd
from shardwise.plan.holders import clipped
from shardwise.plan.moves import DirectMove, Move, ReduceMove, Shares, SpreadMove
from shardwise.plan.plan import Plan
from shardwise.plan.steps import Step
from shardwise.plan.transfer import Transfer, pieces

# Steps in which a device sends the same to all, something to few, or contiguous shares: their messages go straight
# from memory to memory. What is cut up and put together again is packed for one library call instead.
STRAIGHT = ("all_gather", "permute", "halo_exchange", "reduce_scatter", "all_reduce")


@cache()
def route_of(program: Program, rank: int) -> Route:
    """Return what the process with a rank does in a program."""
    if program.plan is None:
        return handover_route(program, rank)
    return crowd_route(program.plan, rank) if program.plan.search.is_crowded else _Survey(program.plan, rank).route()


@dataclass
class _Draft:
    """What is known of a leg so far."""

    before: Storage
    after: Storage
    filled: dict[int, int] = field(default_factory=dict)  # elements of each slot's new array that are known
    copies: list[tuple[int, int, Box]] = field(default_factory=list)  # into, from, what
    near: dict[str, int] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)

    def fill(self, slot: int, box: Box) -> None:
        self.filled[slot] = self.filled.get(slot, 0) + box_size(box)

    def copy(self, into: int, source: int, box: Box) -> None:
        if box_size(box):
            self.copies.append((into, source, box))
            self.fill(into, box)


@dataclass(frozen=True)
class _Survey:
    """A plan as one process sees it."""

    plan: Plan
    rank: int

    # -- who is who --------------------------------------------------------------------------------

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The rank of each slot's process."""
        return tuple(self.device(slot).id for slot in range(self.plan.search.ground.count))

    def device(self, slot: int) -> Device:
        name = self.plan.search.ground.name(slot)
        return name if isinstance(name, Device) else self.plan.src.mesh.device(name)

    @cached_property
    def own(self) -> list[int]:
        return [slot for slot, rank in enumerate(self.ranks) if rank == self.rank]

    def index(self, layout: Layout, slot: int) -> int | None:
        """Return the index of a slot in the mesh of a layout, or None if it is not in it."""
        numbers = self.plan.search.numbers
        if numbers is None:
            return slot
        which = numbers[0] if layout.mesh is self.plan.src.mesh else numbers[1]
        return which.index(slot) if slot in which else None

    def box(self, storage: Storage, slot: int) -> Box | None:
        at = self.index(storage.layout, slot)
        return None if at is None else storage.box(storage.index(at))

    def members(self, step: Step) -> list[int]:
        """Return the slots of the group of this process in a step."""
        ground = self.plan.search.ground
        if isinstance(ground.devices, tuple) or len(set(self.ranks)) < ground.count:
            return list(range(ground.count))  # two meshes meet, or processes have several slots
        return list(self.plan.src.mesh.group(self.own[0], step.axes))

    # -- the whole ---------------------------------------------------------------------------------

    def route(self) -> Route:
        plan, src, dst = (
            self.plan,
            storage_of(self.plan.src, self.plan.shape),
            storage_of(self.plan.dst, self.plan.shape),
        )
        starts, ends = [], {}
        for slot in self.own:
            at = self.index(plan.src, slot)
            if at is not None:
                starts.append((slot, src.index(at)))
        for at in range(plan.dst.mesh.num_devices):
            device = plan.dst.mesh.device(at)
            if device.id == self.rank:
                slot = at if plan.search.ground.devices is None else plan.search.ground.slot(device)
                ends.setdefault(dst.index(at), slot)
        legs = tuple(self.leg(steps) for steps in groups(plan.steps))
        return Route(tuple(starts), legs, tuple(ends.items()))

    def leg(self, steps: Sequence[Step]) -> Leg:
        first, last = steps[0], steps[-1]
        assert isinstance(first.before, Layout)
        assert isinstance(last.after, Layout)
        draft = _Draft(storage_of(first.before, self.plan.shape), storage_of(last.after, self.plan.shape))
        shares = next((move.shares for step in steps for move in step.moves if move.shares), last.shares)
        assert not isinstance(shares, Crowd), "a crowd has routes of its own"
        for slot in self.own:
            for box in self._kept(draft, slot, first, shares):
                draft.copy(slot, slot, box)
        for step in steps if self.own else ():
            for move in rounds_of(step):
                self._add_move(draft, step, move)
        return self._finished(draft, steps, first.before.reduce_op, None if shares is None else last.after.reduce_op)

    def _kept(self, draft: _Draft, slot: int, step: Step, shares: Shares | None) -> Iterator[Box]:
        # What a slot has of its new array already.
        if shares is not None and shares.pending:
            return
        before, after = self.box(draft.before, slot), self.box(draft.after, slot)
        if before is None or after is None:
            return
        needs: Iterable[Box] = (clipped(after, self.plan.shape),)
        if shares is not None:
            needs, before = shares.kept(slot), shares.src.held(slot)
        elif step.moves:
            move = step.moves[0]
            assert isinstance(move, DirectMove)
            held = move.dst.held(slot)
            needs, before = () if held is None else (held,), move.src.held(slot)
        for need in needs:
            common = intersect(need, before) if before is not None else None
            if common is not None:
                yield common

    # -- rounds ------------------------------------------------------------------------------------

    def _add_move(self, draft: _Draft, step: Step, move: Move | SwapMove) -> None:
        members = self.members(step)
        coming = [t for slot in self.own for t in move.incoming(slot)]
        going = [t for slot in self.own for t in move.outgoing(slot)]
        far = [t for t in coming if self._rank(t.source) != self.rank]
        spreads, handed = isinstance(move, SpreadMove), []
        for t in coming:
            if self._rank(t.source) == self.rank:
                into, source = self._slot(t.target), self._slot(t.source)
                count = t.size * (step.width(move) // step.itemsize)
                draft.near[step.kind] = draft.near.get(step.kind, 0) + count
                if spreads:
                    draft.fill(into, t.box)
                    handed.append((self._part(draft.after, into, t.box), self._part(draft.after, source, t.box)))
                elif not move.reduces:
                    draft.copy(into, source, t.box)
        for t in far if not move.reduces else ():
            draft.fill(self._slot(t.target), t.box)
        if isinstance(move, ReduceMove | SwapMove):
            for slot in self.own:
                for _, box in move.reduced(slot):
                    draft.fill(slot, box)
        talks = self._talks(move, members)
        if not (talks or move.reduces or handed):
            return
        away = [t for t in going if self._rank(t.target) != self.rank]
        source = draft.after if spreads else draft.before
        for chunk in range(step.chunks):
            sends = self._messages(self._chunk(away, step, chunk), source, outward=True)
            receives = self._messages(self._chunk(far, step, chunk), draft.after, outward=False)
            sums = self._sums(draft, move, step, chunk) if isinstance(move, ReduceMove | SwapMove) else ()
            draft.rounds.append(
                Round(
                    self._call(step, members),
                    sends,
                    receives,
                    sums,
                    spreads,
                    tuple(handed) if chunk == 0 else (),
                    talks,
                    step.kind in STRAIGHT,
                    (step.kind == "all_gather" or spreads) and step.chunks == 1 and self._gathers(move, members),
                    all(isinstance(self.device(slot), Accelerator) for slot in members),
                )
            )

    def _slot(self, slot: object) -> int:
        assert isinstance(slot, int), "moves know devices by slots"
        return slot

    def _rank(self, slot: object) -> int:
        return self.ranks[self._slot(slot)]

    def _talks(self, move: Move | SwapMove, members: Sequence[int]) -> bool:
        # Whether anything at all goes between processes: all of a group must agree about it.
        return any(self._rank(t.source) != self.ranks[slot] for slot in members for t in move.incoming(slot))

    def _gathers(self, move: Move | SwapMove, members: Sequence[int]) -> bool:
        sizes = set()
        for slot in members:
            boxes: dict[object, list[Box]] = {}
            for t in move.outgoing(slot):
                boxes.setdefault(t.target, []).append(t.box)
            same = list(map(sorted, boxes.values()))
            if set(boxes) != set(members) - {slot} or any(other != same[0] for other in same):
                return False
            sizes.add(sum(map(box_size, same[0])))
        return len(sizes) == 1 and len(members) == len({self.ranks[slot] for slot in members})

    def _chunk(self, moved: Sequence[Transfer], step: Step, chunk: int) -> Iterator[Transfer]:
        for t in moved:
            box = self._piece(t.box, step, chunk)
            if box is not None:
                yield t._replace(box=box)

    def _piece(self, box: Box, step: Step, chunk: int) -> Box | None:
        if step.grain is None:
            return box
        return next((piece for i, piece in enumerate(pieces(box, step.grain)) if i == chunk), None)

    def _messages(self, moved: Iterable[Transfer], storage: Storage, outward: bool) -> tuple[Message, ...]:
        found: dict[int, list[Transfer]] = {}
        for t in sorted(moved):
            found.setdefault(self._rank(t.target if outward else t.source), []).append(t)
        out = []
        for rank, some in sorted(found.items()):
            parts = tuple(self._part(storage, self._slot(t.source if outward else t.target), t.box) for t in some)
            # What goes to several is one value, so that it is packed once.
            parts = next((other.parts for other in out if other.parts == parts), parts)
            out.append(Message(rank, parts, sum(t.size for t in some)))
        return tuple(out)

    def _sums(self, draft: _Draft, move: ReduceMove | SwapMove, step: Step, chunk: int) -> tuple[Sum, ...]:
        shares, offsets = move.shares, self._offsets(move, step, chunk)
        out = []
        for slot in self.own:
            for tile, whole in move.reduced(slot):
                box = self._piece(whole, step, chunk)
                if box is None:
                    continue
                terms: list[Part | int] = []
                for source in shares.src.sources(tile, slot, shares.pending):
                    near = self.ranks[source] == self.rank
                    terms.append(self._part(draft.before, source, box) if near else offsets[source, slot, box])
                out.append(Sum(self._part(draft.after, slot, box), tuple(terms)))
        return tuple(out)

    def _offsets(self, move: ReduceMove | SwapMove, step: Step, chunk: int) -> dict[tuple[object, object, Box], int]:
        # Where in what comes each transfer begins: messages by rank, each in order.
        coming = [t for slot in self.own for t in move.incoming(slot) if self._rank(t.source) != self.rank]
        out, at = {}, 0
        for t in sorted(self._chunk(coming, step, chunk), key=lambda t: (self._rank(t.source), t)):
            out[t.source, t.target, t.box] = at
            at += t.size
        return out

    # -- values ------------------------------------------------------------------------------------

    def _part(self, storage: Storage, slot: int, box: Box) -> Part:
        held = self.box(storage, slot)
        assert held is not None, "only arrays that are here are sent, and only those of the target received"
        return Part(slot, () if box == held else region(box, held), _shape(box))

    def _call(self, step: Step, members: Sequence[int]) -> Call:
        plan, note = self.plan, notes([step])[0]
        root = next((m.device(0).id for m in (plan.src.mesh, plan.dst.mesh) if m.is_single), None)
        op = plan.src.reduce_op or plan.dst.reduce_op
        ranks = tuple(sorted({self.ranks[slot] for slot in members}))
        reduction = None if op is None else str(op)
        return Call(
            step.kind,
            ranks,
            plan.shape,
            str(plan.dtype),
            note.before,
            note.after,
            reduction,
            root,
            plan.digest,
            meshes_text(plan.src.mesh, plan.dst.mesh),
        )

    def _finished(self, draft: _Draft, steps: Sequence[Step], op: ReduceOp | None, filling: ReduceOp | None) -> Leg:
        outs, views, viewed = [], [], set()
        for slot in self.own:
            at, box = self.index(draft.after.layout, slot), self.box(draft.after, slot)
            if at is None or box is None:
                continue
            mine = [(source, what) for into, source, what in draft.copies if into == slot]
            if len(mine) == 1 and mine[0][1] == box and not any(r.spreads for r in draft.rounds):
                views.append((slot, self._part(draft.before, mine[0][0], box)))
                viewed.add(slot)
                continue
            blank = draft.filled.get(slot, 0) < box_size(box)
            outs.append(Out(slot, draft.after.layout.mesh.device(at), _shape(box), blank))
        copies = tuple(
            (self._part(draft.after, into, box), self._part(draft.before, source, box))
            for into, source, box in draft.copies
            if into not in viewed
        )
        near = tuple(sorted(draft.near.items()))
        made = made_dtype(steps[-1], self.plan.dtype)
        dtype = None if made == self.plan.dtype else made
        return Leg(notes(steps), tuple(outs), tuple(views), copies, near, tuple(draft.rounds), op, filling, dtype)


def _shape(box: Box) -> Shape:
    return tuple([stop - start for start, stop in box])
