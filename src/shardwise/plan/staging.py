"""Staging: how a step is cut into chunks, so that a device needs little memory beside its shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from shardwise.caches import cached_property
from shardwise.layout.axis import Axis, without
from shardwise.layout.tiling import DimTiling
from shardwise.plan.crowd import CrowdMove
from shardwise.plan.kinds import Kind
from shardwise.plan.moves import MANY, Move
from shardwise.plan.transfer import grain_of, portion


@dataclass(frozen=True, init=False)
class Staging:
    """The chunks of a step such that no device takes in more than `limit` bytes at once.

    They are worked out when somebody asks: most plans are made to be compared, and few of them are run.

    >>> from shardwise import DeviceMesh, P, plan_reshard
    >>> mesh = DeviceMesh((4,), ("x",))
    >>> (step,) = plan_reshard(P("x", None), P(None, "x"), (8, 8), "int8", mesh=mesh, memory_limit=8).steps
    >>> step.staging.bytes, step.staging.grain, step.staging.chunks, step.staging.least
    (8, (1, 2), 2, 4)
    """

    kind: Kind
    axes: tuple[Axis, ...]
    moves: tuple[Move, ...]
    width: int
    limit: int

    def __init__(self, kind: Kind, axes: tuple[Axis, ...], moves: tuple[Move, ...], width: int, limit: int) -> None:
        """Take the kind, axes and moves of a step, and the bytes of the widest element that travels in it."""
        vars(self).update(kind=kind, axes=axes, moves=moves, width=width, limit=limit)

    @property
    def least(self) -> int:
        """The smallest limit that would do: one element from everyone that a device hears at once."""
        largest, peers = self._reach
        return peers * self.width if self.moves and prod(largest) else 0

    @property
    def bytes(self) -> int:
        """The bytes that a device takes in at once, at most."""
        largest, peers = self._reach
        return prod(self.grain or largest) * peers * self.width

    @cached_property
    def grain(self) -> tuple[int, ...] | None:
        """How long a box of a chunk is at most in each dim; None where all fits into one chunk."""
        largest, peers = self._reach
        if prod(largest) * peers * self.width <= self.limit:
            return None
        return grain_of(largest, self.limit // (peers * self.width))

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        if self.grain is None:
            return 1
        return prod(-(-length // most) for length, most in zip(self._reach[0], self.grain, strict=True))

    @cached_property
    def _reach(self) -> tuple[tuple[int, ...], int]:
        return _reach_of(self.kind, self.axes, self.moves)


def _reach_of(kind: Kind, axes: Sequence[Axis], moves: Sequence[Move]) -> tuple[tuple[int, ...], int]:
    # The largest box that travels, and the most boxes that one device takes in, as bounds per dim.
    largest, peers = (), 1
    for move in moves:
        if isinstance(move, CrowdMove):
            largest, peers = tuple(map(max, largest or move.largest, move.largest)), max(peers, move.busiest[1])
            continue
        shares = move.shares
        src, dst = move.holders if shares is None else (shares.src, shares.dst)
        sizes = tuple(map(min, src.tiling.largest, dst.tiling.largest, src.shape))
        if kind == "all_reduce":  # every member of the group has its share
            box = portion(tuple((0, size) for size in sizes), prod(a.size for a in axes), 0)
            sizes = tuple(stop for _, stop in box)[: len(sizes)]
        tiles = prod(_most_parts(s, d) for s, d in zip(src.tiling.dims, dst.tiling.dims, strict=True))
        if shares is None:
            most = tiles * (2 * max(1, len(sizes)) if src.layout.has_halo else 1)
        else:
            reducers = prod(a.size for a in without(dst.layout.mesh.rest(dst.layout.sharded_axes), shares.batch))
            are_few = tiles * reducers <= MANY
            if move.reduces:
                most = (tiles if are_few else -(-tiles // reducers) + 1) * prod(a.size for a in shares.pending)
            else:
                most = tiles * reducers if are_few else tiles + reducers
        largest = tuple(map(max, largest or sizes, sizes))
        peers = max(peers, most)
    return largest, peers


def most_staging(count: int, rank: int) -> int:
    """Return a bound on how many boxes one device takes in at once, whatever the step, on a mesh of `count` devices.

    >>> most_staging(8, 2), most_staging(4096, 2)
    (1024, 16384)
    """
    return max(MANY, max(4, 2 * rank) * count)


def _most_parts(src: DimTiling, dst: DimTiling) -> int:
    # The most source parts that one target part meets.
    length, width = dst.largest, src.size // src.parts
    if src.parts == 1 or not width or src.offsets is not None:  # offsets may put all boundaries close together
        return src.parts
    if src.is_even and dst.is_even and dst.halo == (0, 0) and length and not max(length, width) % min(length, width):
        return max(1, length // width)
    return min(src.parts, -(-length // width) + 1)
