"""Swaps: an all-reduce between two devices in one round.

Sharing out the reducing and then handing the shares on takes two rounds. Two devices that both contribute to
everything send each other all of it instead, and both reduce it: as many bytes, and half the messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from shardwise.layout.tiling import Box
from shardwise.plan.holders import Tile
from shardwise.plan.moves import Move, ReduceMove
from shardwise.plan.steps import Step
from shardwise.plan.transfer import Transfer
from shardwise.plan.transfers import Segment, list_segment


@dataclass(frozen=True)
class SwapMove(ReduceMove):
    """Each of two devices receives all that the other contributes."""

    def boxes_to_reduce(self, slot: int) -> Iterator[tuple[Tile, Box]]:
        """Yield the boxes that a slot reduces, each with the source tile it lies in."""
        tile = self.shares.dst.tile(slot)
        return iter(()) if tile is None else self.shares.cells(tile)

    def outgoing(self, slot: int) -> Iterator[Transfer[int]]:
        """Yield the transfers whose source is `slot`."""
        return (Transfer(slot, t.source, t.box) for t in self.incoming(slot))

    def find_outgoing(self, slot: int) -> list[Segment]:
        """Return what `outgoing` yields."""
        return list_segment(slot, False, self.outgoing(slot))


def rounds_of(step: Step) -> tuple[Move, ...]:
    """Return the rounds of messages of a step, as few as its bytes can be sent in.

    >>> from shardwise import DeviceMesh, P, plan_reshard
    >>> mesh = DeviceMesh((2, 3), ("x", "y"))
    >>> for a, b in ("xy", "yx"):
    ...     (step,) = plan_reshard(P(b, unreduced=[a]), P(b), (6,), "int8", mesh=mesh).steps
    ...     print(step, len(rounds_of(step)))
    all_reduce over x 1
    all_reduce over y 2
    """
    # The shares of a chunk are cut so that they fit; all of what two share at once would be twice as much.
    if step.kind != "all_reduce" or step.chunks > 1 or prod(axis.size for axis in step.axes) != 2:
        return step.moves
    if step.widths is not None and step.widths[0] != step.widths[1]:  # what is handed on is rounded, and so smaller
        return step.moves
    shares = step.moves[0].shares
    assert shares is not None, "an all-reduce shares out the reducing"
    return (SwapMove(shares),)
