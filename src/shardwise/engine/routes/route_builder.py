"""Route builder: what one process does in a plan.

The moves of a plan are the only description of its movement. A process asks them about its own slots, and no others.
What goes from one process to another in a round is one message: its boxes in the order of (source, target, box), which
both ends know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import TypeVar

from shardwise.caches import cache, cached_property
from shardwise.engine.call import Call, meshes_text
from shardwise.engine.execute import Program, notes
from shardwise.engine.routes.permutation import permutation_route
from shardwise.engine.routes.route import Leg, Message, MessageRound, Out, Part, Route, Sum
from shardwise.engine.routes.swap import rounds_of
from shardwise.engine.storage import Storage, region, storage_of
from shardwise.layout.device import Accelerator, Device
from shardwise.layout.layout import Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.tiling import Box, box_size
from shardwise.plan.movement import Movement, Reduction
from shardwise.plan.plan import Plan
from shardwise.plan.steps import Step
from shardwise.plan.transfer import Transfer, pieces
from shardwise.plan.transition import Transition, transitions

# Steps in which a device sends the same to all, something to few, or contiguous shares: their messages go straight
# from memory to memory. What is cut up and put together again is packed for one library call instead.
STRAIGHT = ("all_gather", "permute", "halo_exchange", "reduce_scatter", "all_reduce")

Copy = tuple[Part, Part]  # into, from


@cache()
def route_of(program: Program, rank: int) -> Route:
    """Return what the process with a rank does in a program."""
    plan = program.plan
    if plan is None:
        return permutation_route(program, rank)
    src, dst = storage_of(plan.src, plan.shape), storage_of(plan.dst, plan.shape)
    starts = {_array_slot(plan, src, i): src.index(i) for i in _own_slots(src, rank)}
    ends: dict[int, int] = {}
    for j in _own_slots(dst, rank):
        ends.setdefault(dst.index(j), _last_slot(plan, dst, j))
    legs = tuple(_LegBuilder(transition, rank).build() for transition in transitions(plan))
    return Route(tuple(starts.items()), legs, tuple(ends.items()))


def _own_slots(storage: Storage, rank: int) -> list[int]:
    return [slot for slot, owner in enumerate(_ranks(storage.layout.mesh)) if owner == rank]


def _ranks(mesh: DeviceMesh) -> list[int]:
    return [device.id for device in mesh.devices]


def _array_slot(plan: Plan, storage: Storage, slot: int) -> int:
    # The slot under which the array of a slot is known. Where a device that stands in several slots receives what they
    # need once, those that hold equal data share one array, that of the first of them.
    if not plan.search.is_crowded:
        return slot
    mesh = storage.layout.mesh
    return next(i for i in storage.holders[storage.index(slot)] if mesh.device(i) == mesh.device(slot))


def _last_slot(plan: Plan, dst: Storage, slot: int) -> int:
    # The target may be on a mesh of its own, which the plan has put into the axes of the source's.
    if plan.search.numbers is not None or plan.search.slots.devices is None:
        return _array_slot(plan, dst, slot)
    return plan.search.slots.find(plan.dst.mesh.device(slot))


@dataclass
class _LegBuilder:
    """Collects what one process does between two layouts."""

    transition: Transition
    rank: int
    filled: dict[int, int] = field(default_factory=dict[int, int])  # elements of each slot's new array that are known
    copies: list[Transfer[int]] = field(default_factory=list[Transfer[int]])
    near: dict[str, int] = field(default_factory=dict[str, int])
    rounds: list[MessageRound] = field(default_factory=list[MessageRound])

    # -- who is who --------------------------------------------------------------------------------

    @cached_property
    def plan(self) -> Plan:
        return self.transition.plan

    @cached_property
    def before(self) -> Storage:
        return storage_of(self.transition.before, self.plan.shape)

    @cached_property
    def after(self) -> Storage:
        return storage_of(self.transition.after, self.plan.shape)

    @cached_property
    def sources(self) -> list[int]:
        """The rank of each slot of the old mesh."""
        return _ranks(self.before.layout.mesh)

    @cached_property
    def targets(self) -> list[int]:
        """The rank of each slot of the new mesh."""
        return _ranks(self.after.layout.mesh)

    @cached_property
    def own(self) -> list[int]:
        """The slots of the new mesh whose devices are in this process."""
        return _own_slots(self.after, self.rank)

    @cached_property
    def outs(self) -> list[int]:
        """The slots whose arrays are made here."""
        return [slot for slot in self.own if _array_slot(self.plan, self.after, slot) == slot]

    def givers(self, move: Movement) -> tuple[Storage, list[int]]:
        """Return the arrays that parts are sent of in a move, and the rank of each slot."""
        return (self.after, self.targets) if move.spreads else (self.before, self.sources)

    def group(self, step: Step) -> Sequence[int] | None:
        """Return the slots that this process talks to in a step; None for all, where axes do not tell groups apart."""
        is_told_apart = self.plan.search.numbers is None and len(set(self.sources)) == len(self.sources)
        return self.before.layout.mesh.group(self.own[0], step.axes) if is_told_apart else None

    def members(self, step: Step) -> list[Device]:
        """Return the devices that take part in a step with this process."""
        old, new, group = self.before.layout.mesh, self.after.layout.mesh, self.group(step)
        return [*old.devices, *new.devices] if group is None else [new.device(slot) for slot in group]

    # -- the whole ---------------------------------------------------------------------------------

    def build(self) -> Leg:
        transition = self.transition
        if self.rank in self.sources or self.rank in self.targets:
            moves = [(step, move) for step in transition.steps for move in rounds_of(step)]
            for step, move in moves or transition.moves:
                self._add_move(step, move)
        outs: list[Out] = []
        views: list[tuple[int, Part]] = []
        for slot in self.outs:
            view = self._view(slot)
            if view is not None:
                views.append((slot, view))
                continue
            box = self.after.box(self.after.index(slot))
            is_blank = self.filled.get(slot, 0) < box_size(box)
            outs.append(Out(slot, self.after.layout.mesh.device(slot), _shape(box), is_blank))
        viewed = {slot for slot, _ in views}
        return Leg(
            notes(transition.steps),
            tuple(outs),
            tuple(views),
            tuple(self._copy(self.before, copy) for copy in self.copies if copy.target not in viewed),
            tuple(sorted(self.near.items())),
            tuple(self.rounds),
            transition.before.reduce_op,
            transition.filling,
            None if transition.dtype == self.plan.dtype else transition.dtype,
        )

    def _view(self, slot: int) -> Part | None:
        # What the new array of a slot is a part of, if it is all in one array of its device and nobody writes to it.
        copies = [copy for copy in self.copies if copy.target == slot]
        if len(copies) != 1 or any(round_.spreads for round_ in self.rounds):
            return None
        (copy,) = copies
        devices = (self.before.layout.mesh.device(copy.source), self.after.layout.mesh.device(slot))
        is_all = copy.box == self.after.box(self.after.index(slot))
        return self._part(self.before, copy.source, copy.box) if is_all and devices[0] == devices[1] else None

    # -- rounds ------------------------------------------------------------------------------------

    def _add_move(self, step: Step, move: Movement) -> None:
        storage, ranks = self.givers(move)
        coming = [t for slot in self.own for t in move.arrivals(slot)]
        near = [t for t in coming if ranks[t.source] == self.rank]
        if near:
            count = sum(box_size(t.box) for t in near) * (step.width(move) // step.itemsize)
            self.near[step.kind] = self.near.get(step.kind, 0) + count
        local_copies: list[Copy] = []
        if move.phase == "direct":
            stays = [t for slot in self.outs for t in move.stays(slot)]
            self._fill(stays)
            self.copies += [t for t in (*stays, *near) if box_size(t.box)]
        elif move.spreads:
            local_copies = [self._copy(storage, t) for t in near]
        self._fill([r for slot in self.own for r in move.reductions(slot)] if move.reduces else coming)
        self._add_rounds(step, move, [t for t in coming if ranks[t.source] != self.rank], local_copies)
        last = [Transfer(*copy[:3]) for slot in self.outs for copy in move.local_copies(slot)]
        self._fill(last)
        local_copies = [copy for t in last if (copy := self._copy(self.after, t))[0] != copy[1]]
        if local_copies:
            self.rounds.append(MessageRound(self._call(step), (), (), local_copies=tuple(local_copies), talks=False))

    def _add_rounds(
        self, step: Step, move: Movement, coming: Sequence[Transfer[int]], local_copies: Sequence[Copy]
    ) -> None:
        storage, ranks = self.givers(move)
        group = self.group(step)
        takers = range(len(self.targets)) if group is None else group
        # All of a group must agree whether anything at all goes between processes.
        talks = any(ranks[t.source] != self.targets[slot] for slot in takers for t in move.arrivals(slot))
        if not (talks or move.reduces or local_copies):
            return
        own = [slot for slot, rank in enumerate(ranks) if rank == self.rank]
        going = [t for slot in own for t in move.departures(slot) if self.targets[t.target] != self.rank]
        call, on_accelerators = self._call(step), all(isinstance(device, Accelerator) for device in self.members(step))
        gathers = (step.kind == "all_gather" or move.spreads) and step.chunks == 1 and self._gathers(step, move)
        for chunk in range(step.chunks):
            sent, received = (list(_chunk(some, step, chunk)) for some in (going, coming))
            self.rounds.append(
                MessageRound(
                    call,
                    _messages((self.targets[t.target], t, self._part(storage, t.source, t.box)) for t in sent),
                    _messages((ranks[t.source], t, self._part(self.after, t.target, t.box)) for t in received),
                    tuple(self._sums(step, move, chunk, received)) if move.reduces else (),
                    move.spreads,
                    tuple(local_copies) if chunk == 0 else (),
                    talks,
                    step.kind in STRAIGHT,
                    gathers,
                    on_accelerators,
                )
            )

    def _gathers(self, step: Step, move: Movement) -> bool:
        # Whether every process sends all others the same, and all as much.
        _, ranks = self.givers(move)
        group, everyone = self.group(step), {device.id for device in self.members(step)}
        sizes: set[int] = set()
        givers = range(len(ranks)) if group is None else group
        for slot in givers:
            boxes: dict[int, list[Box]] = {}
            for t in move.departures(slot):
                boxes.setdefault(t.target, []).append(t.box)
            same = list(map(sorted, boxes.values()))
            takers = sorted(self.targets[target] for target in boxes)
            if takers != sorted(everyone - {ranks[slot]}) or any(other != same[0] for other in same):
                return False
            sizes.add(sum(map(box_size, same[0])))
        return len(sizes) == 1 and len(givers) == len(everyone)

    def _sums(self, step: Step, move: Movement, chunk: int, received: Sequence[Transfer[int]]) -> Iterator[Sum]:
        # Where in what comes each contribution begins: messages by rank, each in order.
        offsets: dict[Transfer[int], int] = {}
        at = 0
        for t in sorted(received, key=lambda t: (self.sources[t.source], t)):
            offsets[t] = at
            at += box_size(t.box)
        for slot in self.own:
            for sources, _, box in _chunk(move.reductions(slot), step, chunk):
                near = (self.sources[source] == self.rank for source in sources)
                terms = [
                    self._part(self.before, source, box) if here else offsets[Transfer(source, slot, box)]
                    for source, here in zip(sources, near, strict=True)
                ]
                yield Sum(self._part(self.after, slot, box), tuple(terms))

    # -- values ------------------------------------------------------------------------------------

    def _fill(self, parts: Iterable[Transfer[int] | Reduction]) -> None:
        for _, slot, box in parts:
            self.filled[slot] = self.filled.get(slot, 0) + box_size(box)

    def _copy(self, storage: Storage, transfer: Transfer[int]) -> Copy:
        source, target, box = transfer
        return self._part(self.after, target, box), self._part(storage, source, box)

    def _part(self, storage: Storage, slot: int, box: Box) -> Part:
        whole = storage.box(storage.index(slot))
        return Part(_array_slot(self.plan, storage, slot), () if box == whole else region(box, whole), _shape(box))

    def _call(self, step: Step) -> Call:
        plan, note = self.plan, notes([step])[0]
        root = next((m.device(0).id for m in (plan.src.mesh, plan.dst.mesh) if m.is_single), None)
        op = plan.src.reduce_op or plan.dst.reduce_op
        return Call(
            step.kind,
            tuple(sorted({device.id for device in self.members(step)})),
            plan.shape,
            str(plan.dtype),
            note.before,
            note.after,
            None if op is None else str(op),
            root,
            plan.digest,
            meshes_text(plan.src.mesh, plan.dst.mesh),
        )


Moved = TypeVar("Moved", Transfer[int], Reduction)


def _chunk(moved: Iterable[Moved], step: Step, chunk: int) -> Iterator[Moved]:
    for one in moved:
        box = one.box if step.grain is None else next(islice(pieces(one.box, step.grain), chunk, None), None)
        if box is not None:
            yield one._replace(box=box)


def _messages(parts: Iterable[tuple[int, Transfer[int], Part]]) -> tuple[Message, ...]:
    by_rank: dict[int, list[tuple[Transfer[int], Part]]] = {}
    for rank, transfer, part in parts:
        by_rank.setdefault(rank, []).append((transfer, part))
    out: list[Message] = []
    for rank, some in sorted(by_rank.items()):
        ordered = tuple(part for _, part in sorted(some, key=lambda pair: pair[0]))
        # What goes to several is one value, so that it is packed once.
        ordered = next((other.parts for other in out if other.parts == ordered), ordered)
        out.append(Message(rank, ordered, sum(prod(part.shape) for part in ordered)))
    return tuple(out)


def _shape(box: Box) -> Shape:
    return tuple([stop - start for start, stop in box])
