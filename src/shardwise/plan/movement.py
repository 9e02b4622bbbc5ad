"""Movement: what each device does in one round, which all who run, compile or draw a plan read here.

Transfers are listed in two ways: between devices, by the slots that both meshes share, and between arrays. An array is
known by the index of its device in the mesh that it is on: the old mesh for a source, the new one for a target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from shardwise.layout.axis import Axis
from shardwise.layout.tiling import Box
from shardwise.plan.holders import Holders
from shardwise.plan.transfer import Transfer
from shardwise.plan.transfers import Segment, list_segment

Phase = Literal["direct", "reduce", "spread"]


@dataclass(frozen=True)
class Handover:
    """Who holds a tensor before and after, where contributions over the axes `pending` are combined.

    Along `fresh` axes, which become partial, one position gets the value; along the axes of `batch`, on which both
    layouts are partial, every position works by itself.
    """

    src: Holders
    dst: Holders
    pending: tuple[Axis, ...] = ()
    fresh: tuple[Axis, ...] = ()
    batch: tuple[Axis, ...] = ()

    def __str__(self) -> str:
        return f"shares of {self.dst.layout.resolved()}"


class Reduction(NamedTuple):
    """A box of the array of slot `target` that is the reduction of what the slots `sources` hold, in this order."""

    sources: tuple[int, ...]
    target: int
    box: Box


class LocalCopy(NamedTuple):
    """A box that slot `target` copies at the end from slot `giver` of the same device, which received it.

    `source` is the slot that it came from; None if both slots hold equal data.
    """

    giver: int
    target: int
    box: Box
    source: int | None = None


class Movement:
    """One round: for each slot what stays, arrives and departs, and what is reduced of it.

    In a "direct" round boxes of old arrays go into new ones. In a "reduce" round what stays and what arrives are
    contributions, and `reductions` says what is made of them. In a "spread" round new arrays give each other what
    they have reduced.

    >>> from shardwise import DeviceMesh, P, plan_reshard
    >>> mesh = DeviceMesh((2,), ("x",))
    >>> (step,) = plan_reshard(P(unreduced=["x"]), P("x"), (4,), "int8", mesh=mesh).steps
    >>> (move,) = step.moves
    >>> move.phase, list(move.stays(1)), list(move.arrivals(1))
    ('reduce', [Transfer(source=1, target=1, box=((2, 4),))], [Transfer(source=0, target=1, box=((2, 4),))])
    >>> list(move.departures(1)), list(move.reductions(1)), move.count_far(next(move.reductions(1)))
    ([Transfer(source=1, target=0, box=((0, 2),))], [Reduction(sources=(0, 1), target=1, box=((2, 4),))], 1)
    """

    phase: Phase

    @property
    def holders(self) -> tuple[Holders, Holders]:
        """The holders of what travels, and those who are to hold it."""
        raise NotImplementedError

    @property
    def batch_axes(self) -> tuple[Axis, ...]:
        """The axes along which every position reduces by itself, since both layouts are partial."""
        return ()

    @property
    def reduces(self) -> bool:
        """Whether what arrives is combined with what is there."""
        return self.phase == "reduce"

    @property
    def spreads(self) -> bool:
        """Whether new arrays give each other parts of themselves."""
        return self.phase == "spread"

    @property
    def is_counted(self) -> bool:
        """Whether a formula says how much each device receives, so that nothing has to be listed."""
        return False

    def count_moved(self) -> int | None:
        """Return how many elements travel in all, without listing them, or None where no formula says so."""
        return None

    # -- by device ---------------------------------------------------------------------------------

    def incoming(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield the transfers whose target is `slot`, a number that both meshes share."""
        raise NotImplementedError

    def outgoing(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield the transfers whose source is `slot`, a number that both meshes share."""
        raise NotImplementedError

    def count_received(self, slot: int) -> int:
        """Return how many elements `slot` receives."""
        return sum(segment.size for segment in self.find_incoming(slot))

    def count_sent(self, slot: int) -> int:
        """Return how many elements `slot` sends."""
        return sum(segment.size for segment in self.find_outgoing(slot))

    def find_incoming(self, slot: int) -> list[Segment]:
        """Return what `incoming` yields as segments, which are not listed before they are looked at where axes nest."""
        return list_segment(slot, True, self.incoming(slot))

    def find_outgoing(self, slot: int) -> list[Segment]:
        """Return what `outgoing` yields as segments, which are not listed before they are looked at where axes nest."""
        return list_segment(slot, False, self.outgoing(slot))

    # -- by index in the mesh ----------------------------------------------------------------------

    def stays(self, target: int) -> Iterator[Transfer[int]]:
        """Yield what a slot takes from the array of its own device."""
        src, dst = self.holders
        slot = dst.numbers[target]
        return (Transfer(src.index(slot), target, box) for box in self._own_boxes(slot))

    def _own_boxes(self, slot: int) -> Iterator[Box]:
        return iter(())

    def arrivals(self, target: int) -> Iterator[Transfer[int]]:
        """Yield what a slot receives from other devices."""
        src, dst = self.holders
        if src.is_on_common_mesh:  # numbers are indices
            return self.incoming(target)
        return (Transfer(src.index(t.source), target, t.box) for t in self.incoming(dst.numbers[target]))

    def departures(self, source: int) -> Iterator[Transfer[int]]:
        """Yield what a slot sends to other devices."""
        src, dst = self.holders
        if src.is_on_common_mesh:
            return self.outgoing(source)
        return (Transfer(source, dst.index(t.target), t.box) for t in self.outgoing(src.numbers[source]))

    def reductions(self, target: int) -> Iterator[Reduction]:
        """Yield what a slot reduces."""
        return iter(())

    def local_copies(self, target: int) -> Iterator[LocalCopy]:
        """Yield what a slot copies from other slots of its device, when all has arrived."""
        return iter(())

    def count_far(self, reduction: Reduction) -> int:
        """Return how many contributions to a reduction come from other devices."""
        src, dst = self.holders
        slot = dst.numbers[reduction.target]
        return sum(src.numbers[source] != slot for source in reduction.sources)
