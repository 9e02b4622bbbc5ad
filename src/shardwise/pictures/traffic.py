"""Traffic as it is drawn: who sends what to whom in one round of a step, for all devices or for some of many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import prod

from shardwise.layout.mesh import walk
from shardwise.layout.tiling import Box, box_size
from shardwise.pictures.binding import span_text
from shardwise.pictures.plan import size_text
from shardwise.plan.moves import Move
from shardwise.plan.steps import Step
from shardwise.plan.transfer import Transfer

MOST_SENDERS = 16  # devices whose traffic is drawn as a matrix
MOST_LISTED = 8  # transfers that are listed where a matrix is too large
MOST_STEPS = 12  # of a plan that are drawn
MOST_ASKED = 4096  # devices in a group that are looked at to find out who sends,
MOST_SHARING = 1 << 14  # and devices that share the reducing of a tile


@dataclass(frozen=True)
class TrafficRound:
    """One round: the boxes from each shown device to each, or for one device what it receives first.

    `slots` are the devices that are shown; `flows` is complete between them. `group` is how many devices talk to each
    other, of which there are `groups` such.
    """

    step: Step
    index: int
    slots: tuple[int, ...]
    flows: dict[tuple[int, int], tuple[Box, ...]]
    group: int
    groups: int
    listed: tuple[Transfer[int], ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every device is shown."""
        return len(self.slots) == self.step.slots.count

    @property
    def reduces(self) -> bool:
        """Whether what arrives is added up."""
        return self._move.reduces

    @property
    def _move(self) -> Move:
        return self.step.moves[:: -1 if self.step.reverses else 1][self.index]

    @property
    def itemsize(self) -> int:
        """The bytes of an element that is sent."""
        return self.step.width(self._move)

    def bytes(self, source: int, target: int) -> int:
        """Return how much one device sends to another."""
        return sum(map(box_size, self.flows.get((source, target), ()))) * self.itemsize

    @property
    def most(self) -> int:
        """The most that one shown device sends to another."""
        return max((self.bytes(*pair) for pair in self.flows), default=0)

    def name(self, slot: int) -> str:
        """Return how a device is called: its index, or the device where two meshes meet."""
        return str(self.step.slots.name(slot))

    @property
    def title(self) -> str:
        """What the round is, in words."""
        count = len(self.step.moves)
        out = f"round {self.index + 1} of {count}, " if count > 1 else ""
        if self.is_whole:
            return f"{out}all {self.step.slots.count} devices"
        if self.slots:
            return f"{out}one group of {self.group} devices, of {self.groups}"
        return f"{out}groups of {self.group} devices, {self.groups} of them"


def rounds(step: Step) -> list[TrafficRound]:
    """Return the rounds of a step as they are drawn; what it costs does not grow with the mesh."""
    return [_round(step, index) for index in range(len(step.moves))]


def _round(step: Step, index: int) -> TrafficRound:
    count = step.slots.count
    move = step.moves[:: -1 if step.reverses else 1][index]
    if count <= MOST_SENDERS:
        slots, group = tuple(range(count)), count
    else:
        group = _group_size(step)
        slots = tuple(_first_group(step)) if group <= MOST_SENDERS and _sharing(move) <= MOST_SHARING else ()
    if slots:
        flows = _flows(step, move, slots)
        if not flows and group < count:  # another group may have something to send
            others = islice(_groups(step), MOST_ASKED // group)
            slots, flows = next(((s, f) for s in others if (f := _flows(step, move, s))), (slots, flows))
        return TrafficRound(step, index, slots, flows, group, count // group)
    listed = ()
    if group <= MOST_ASKED and _sharing(move) <= MOST_SHARING:
        # The first device may have all that it needs, as on the diagonal of a transpose.
        each = (tuple(islice(_incoming(step, move, slot), MOST_LISTED)) for slot in _members(step))
        listed = tuple(Transfer(*transfer) for transfer in next(filter(None, each), ()))
    return TrafficRound(step, index, (), {}, group, count // group, listed)


def _flows(step: Step, move: Move, slots: Sequence[int]) -> dict[tuple[int, int], tuple[Box, ...]]:
    flows: dict[tuple[int, int], tuple[Box, ...]] = {}
    for slot in slots:
        for source, target, box in _incoming(step, move, slot):
            flows[source, target] = (*flows.get((source, target), ()), box)
    return flows


def _incoming(step: Step, move: Move, slot: int) -> Iterator[tuple[int, int, Box]]:
    for source, target, box in move.outgoing(slot) if step.reverses else move.incoming(slot):
        yield (target, source, box) if step.reverses else (source, target, box)


def _sharing(move: Move) -> int:
    # How many devices have to be looked at, tile by tile, to find out who reduces what.
    if move.shares is None:
        return 0
    layouts = (move.shares.src.layout, move.shares.dst.layout)
    return max(prod(a.size for a in layout.mesh.rest(layout.sharded_axes)) for layout in layouts)


def _group_size(step: Step) -> int:
    if isinstance(step.slots.devices, tuple) or not step.axes:
        return step.slots.count
    return prod(axis.size for axis in step.axes)


def _members(step: Step) -> Iterable[int]:
    # All who are looked at: one group, or everybody where groups say nothing.
    return range(step.slots.count) if _group_size(step) == step.slots.count else _first_group(step)


def _first_group(step: Step) -> list[int]:
    return walk(step.mesh, step.axes)


def _groups(step: Step) -> Iterator[tuple[int, ...]]:
    mesh, first = step.mesh, _first_group(step)
    steps = [(mesh.divisor(axis), axis.size) for axis in mesh.rest(step.axes)]
    bases = map(sum, product(*(range(0, size * divisor, divisor) for divisor, size in steps)))
    return (tuple(base + slot for slot in first) for base in bases)


def sentence(round_: TrafficRound, transfer: Transfer[int]) -> str:
    """Return one transfer in words: from, to, the box and its bytes."""
    source, target = (round_.step.slots.name(slot) for slot in transfer[:2])
    size = size_text(transfer.size * round_.itemsize)
    return f"{source} → {target}: [{', '.join(map(span_text, transfer.box))}], {size}"
