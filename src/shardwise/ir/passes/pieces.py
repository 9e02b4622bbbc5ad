"""Pieces: the boxes of a movement as parts of shards, and the rounds in which they travel.

In a round each device sends one piece at most and receives one at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from shardwise.caches import cached_property
from shardwise.ir.module.groups import group_of
from shardwise.ir.passes.layouts import number
from shardwise.layout.layout import Layout, Shape
from shardwise.plan.movement import Movement
from shardwise.plan.steps import Step
from shardwise.plan.transfer import Transfer

Numbers = np.ndarray  # of int64


@dataclass(frozen=True, eq=False)
class Pieces:
    """Boxes that go from one place of a group to another, or stay: where each lies in either shard, and its size.

    Each is a row: in `source` and `target` of places, in `taken`, `put` and `size` of numbers per dim.
    """

    source: Numbers
    target: Numbers
    taken: Numbers  # offsets in the source's shard
    put: Numbers  # offsets in the target's shard
    size: Numbers

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, rows: Numbers | slice) -> Pieces:
        return Pieces(self.source[rows], self.target[rows], self.taken[rows], self.put[rows], self.size[rows])

    def is_like(self, other: Pieces) -> bool:
        """Whether other pieces are the same in the same order."""
        return all(np.array_equal(a, b) for a, b in zip(vars(self).values(), vars(other).values(), strict=True))


@dataclass(frozen=True)
class ShardMove:
    """One move as pieces of shards: both layouts, and which dims it leaves as they are."""

    step: Step
    move: Movement
    shape: Shape

    @property
    def src(self) -> Layout:
        """The layout of the shards that pieces are taken of."""
        return self.move.holders[0].layout

    @property
    def dst(self) -> Layout:
        """The layout of the shards that pieces are put into."""
        return self.move.holders[1].layout

    @cached_property
    def same(self) -> list[bool]:
        """Which dims travel whole: those that are cut alike before and after, without halos."""
        if self.src.mesh is not self.dst.mesh or self.move.phase != "direct":
            return [False] * len(self.shape)
        return [o == n and o.halo == (0, 0) for o, n in zip(self.src.dims, self.dst.dims, strict=True)]

    def pieces(self, group: Sequence[int]) -> tuple[Pieces, Pieces] | None:
        """Return the pieces that stay and those that travel in a group; None if one comes from outside of it."""
        at = {device: k for k, device in enumerate(group)}
        travel = [transfer for device in group for transfer in self.move.arrivals(device)]
        if any(transfer.source not in at for transfer in travel):
            return None
        stay = [transfer for device in group for transfer in self.move.stays(device)]
        corners = [
            np.array([[start for start, _ in layout.held_box(self.shape, device)] for device in group], dtype=np.int64)
            for layout in (self.src, self.dst)
        ]
        return self._pieces(at, stay, corners), self._pieces(at, travel, corners)

    def _pieces(self, at: dict[int, int], transfers: Sequence[Transfer[int]], corners: Sequence[Numbers]) -> Pieces:
        source = np.array([at[transfer.source] for transfer in transfers], dtype=np.int64)
        target = np.array([at[transfer.target] for transfer in transfers], dtype=np.int64)
        boxes = np.array([t.box for t in transfers], dtype=np.int64).reshape(len(transfers), len(self.shape), 2)
        start, size = boxes[:, :, 0], boxes[:, :, 1] - boxes[:, :, 0]
        same = np.array(self.same, dtype=bool)
        taken, put = start - corners[0][source], start - corners[1][target]
        return Pieces(source, target, *(np.where(same, n, m) for n, m in ((0, taken), (0, put), (-1, size))))

    @cached_property
    def parts(self) -> tuple[list[int], Pieces, Pieces]:
        """The axes of a group, and the pieces that stay and that travel in one: in all others they are the same."""
        mesh = self.src.mesh
        axes = sorted({number(axis) for axis in self.step.axes})
        every = list(range(mesh.ndim))
        axes = axes or every  # all of them for a step between two grids
        first = group_of(mesh.mesh_shape, tuple(axes), 0).devices
        pieces = self.pieces(first)
        if pieces is None or not all(self._has(group, pieces) for group in self._groups(axes) if group != first):
            # Groups are not alike, so that there is one of all devices.
            axes = every
            pieces = self.pieces(tuple(range(mesh.num_devices)))
        assert pieces is not None, "no device is outside of the mesh"
        return axes, *pieces

    def _has(self, group: Sequence[int], wanted: tuple[Pieces, Pieces]) -> bool:
        own = self.pieces(group)
        return own is not None and all(a.is_like(b) for a, b in zip(own, wanted, strict=True))

    def _groups(self, axes: Sequence[int]) -> Iterator[tuple[int, ...]]:
        # Those of devices at the ends of the other axes: where shards differ in size, they differ there. Only offsets
        # that are given can differ anywhere.
        mesh = self.src.mesh
        cuts = [cut for layout in (self.src, self.dst) for cut in layout.dims if cut.offsets is not None]
        anywhere = {number(axis) for cut in cuts for axis in cut.axes}
        ends = [
            (0,) if a in axes else range(size) if a in anywhere else sorted({0, size - 1})
            for a, size in enumerate(mesh.mesh_shape)
        ]
        return (group_of(mesh.mesh_shape, tuple(axes), mesh.index(place)).devices for place in product(*ends))


# -- rounds ----------------------------------------------------------------------------------------------


def split_rounds(pieces: Pieces, shape: Shape) -> list[Numbers]:
    """Return rounds, each as the rows of its pieces: no two have a source or a target in common.

    First fit, in the better of two orders: those that go equally far around each axis of the group (its sizes are
    `shape`) together, so that a formula says to whom; or those that are equally large and go equally far in all.
    """
    if not len(pieces):
        return []
    places = [np.array(np.unravel_index(ends, shape)) for ends in (pieces.source, pieces.target)]
    around = (places[1] - places[0]) % np.array(shape).reshape(-1, 1)
    put = pieces.put.T[::-1]
    cyclic = _first_fit(pieces, np.lexsort([*put, pieces.source, *around[::-1]]))
    if len(cyclic) == most_of_one(pieces):
        return cyclic
    far = pieces.target - pieces.source
    other = _first_fit(pieces, np.lexsort([*put, pieces.source, far, *pieces.size.T[::-1]]))
    return min(cyclic, other, key=len)


def most_of_one(pieces: Pieces) -> int:
    """Return how many pieces one device sends or receives at most: there cannot be fewer rounds."""
    return max(int(np.bincount(ends).max(initial=0)) for ends in (pieces.source, pieces.target))


def _first_fit(pieces: Pieces, order: Numbers) -> list[Numbers]:
    # The rounds in which a place sends, and those in which it receives, as the bits of a number.
    sends: dict[int, int] = {}
    receives: dict[int, int] = {}
    out: list[list[int]] = []
    for row, source, target in zip(
        order.tolist(), pieces.source[order].tolist(), pieces.target[order].tolist(), strict=True
    ):
        a, b = sends.get(source, 0), receives.get(target, 0)
        free = ~(a | b)
        bit = free & -free
        sends[source], receives[target] = a | bit, b | bit
        first = bit.bit_length() - 1
        if first == len(out):
            out.append([])
        out[first].append(row)
    return [np.array(rows) for rows in out]
