"""Rounds: a movement that no collective of the dialect makes, as sends and receives of boxes.

In a round each device sends one box at most and receives one at most. To whom, from whom and which box is worked out
for one group of devices; the others do the same at their own places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import AnyFloat, IntegerType, TensorType, f32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from shardwise.caches import cached_property
from shardwise.engine.arrays import ADDING, identity, is_low
from shardwise.errors import ProgramError
from shardwise.ir.module.groups import group_of, multi_index
from shardwise.ir.module.reductions import BY_OP
from shardwise.ir.module.values import dtype_of
from shardwise.ir.passes.layouts import local_sizes, number
from shardwise.ir.passes.writer import Number, Writer, entry_for_device, formula, split_known
from shardwise.ir.shard import RecvOp, SendOp
from shardwise.ir.shard.attributes import DYNAMIC_INDEX
from shardwise.ir.types import element_type, shape_of
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import ReduceOp
from shardwise.plan.movement import Movement
from shardwise.plan.steps import Step
from shardwise.plan.transfer import Transfer


@dataclass(frozen=True)
class Piece:
    """A box that goes from one place of a group to another, or stays: where it lies in either shard, and its size."""

    source: int
    target: int
    taken: tuple[int, ...]  # offsets in the source's shard
    put: tuple[int, ...]  # offsets in the target's shard
    size: tuple[int, ...]


@dataclass
class PieceRound:
    """Pieces of which no two have a source or a target in common."""

    pieces: list[Piece] = field(default_factory=list[Piece])
    sources: set[int] = field(default_factory=set[int])
    targets: set[int] = field(default_factory=set[int])

    def takes(self, piece: Piece) -> bool:
        """Whether a piece can travel in this round."""
        return piece.source not in self.sources and piece.target not in self.targets

    def add(self, piece: Piece) -> None:
        """Let a piece travel in this round."""
        self.pieces.append(piece)
        self.sources.add(piece.source)
        self.targets.add(piece.target)


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

    def pieces(self, group: Sequence[int]) -> tuple[list[Piece], list[Piece]] | None:
        """Return the pieces that stay and those that travel in a group; None if one comes from outside of it."""
        at = {device: k for k, device in enumerate(group)}
        stay = [transfer for device in group for transfer in self.move.stays(device)]
        travel = [transfer for device in group for transfer in self.move.arrivals(device)]
        if any(transfer.source not in at for transfer in travel):
            return None
        return [self._piece(at, transfer) for transfer in stay], [self._piece(at, transfer) for transfer in travel]

    def _piece(self, at: dict[int, int], transfer: Transfer[int]) -> Piece:
        source, target, box = transfer
        old, new = self.src.held_box(self.shape, source), self.dst.held_box(self.shape, target)
        return Piece(
            at[source],
            at[target],
            tuple(0 if s else a - start for s, (a, _), (start, _) in zip(self.same, box, old, strict=True)),
            tuple(0 if s else a - start for s, (a, _), (start, _) in zip(self.same, box, new, strict=True)),
            tuple(-1 if s else b - a for s, (a, b) in zip(self.same, box, strict=True)),
        )


def rounds(w: Writer, x: SSAValue, step: Step, shape: Shape) -> SSAValue:
    """Return what a device holds after a step, moved by sends and receives."""
    for move in step.moves:
        if move.phase == "direct" and not isinstance(step.after, Layout):
            raise ProgramError(f"the step {step} makes values partial, which no op of the dialect does.")
        x = _move(w, x, ShardMove(step, move, shape))
    return x


def _move(w: Writer, x: SSAValue, movement: ShardMove) -> SSAValue:
    mesh = movement.src.mesh
    axes, stay, travel = _pieces(movement)
    into, combine = _start(w, x, movement)
    element = element_type(x)
    table = _Table(w, mesh, axes, movement)
    for pieces in _group_in_rounds(stay):
        into = table.copy_stay(x, into, pieces, combine)
    for pieces in _group_in_rounds(travel):
        into = table.exchange(x, into, pieces, combine)
    return into if element_type(into) == element else truncate(w, into, element)


def extend(w: Writer, x: SSAValue) -> SSAValue:
    """Return a tensor of small floats in float32."""
    return w.add(arith.ExtFOp(x, TensorType(f32, shape_of(x))))


def truncate(w: Writer, x: SSAValue, element: Attribute) -> SSAValue:
    """Return a tensor rounded to small floats."""
    return w.add(arith.TruncFOp(x, TensorType(element, shape_of(x))))


def is_rounded(op: ReduceOp, element: Attribute) -> bool:
    """Whether a reduction would round floats of few bits at every step."""
    return op in ADDING and isinstance(element, AnyFloat) and is_low(dtype_of(element))


def _pieces(movement: ShardMove) -> tuple[list[int], list[Piece], list[Piece]]:
    mesh = movement.src.mesh
    axes = sorted({number(axis) for axis in movement.step.axes})
    every = list(range(mesh.ndim))
    axes = axes or every  # all of them for a step between two grids
    pieces = movement.pieces(group_of(mesh.mesh_shape, tuple(axes), 0).devices)
    corners = (group_of(mesh.mesh_shape, tuple(axes), device).devices for device in _corners(movement, axes))
    if pieces is None or any(movement.pieces(group) != pieces for group in corners):
        # Groups are not alike, so that there is one of all devices.
        axes = every
        pieces = movement.pieces(tuple(range(mesh.num_devices)))
    assert pieces is not None, "no device is outside of the mesh"
    return axes, *pieces


def _corners(movement: ShardMove, axes: Sequence[int]) -> Iterator[int]:
    # Devices at the ends of the other axes: where shards differ in size, they differ there. Only offsets that are
    # given can differ anywhere.
    mesh = movement.src.mesh
    cuts = [cut for layout in (movement.src, movement.dst) for cut in layout.dims if cut.offsets is not None]
    anywhere = {number(axis) for cut in cuts for axis in cut.axes}
    ends = [
        (0,) if a in axes else range(size) if a in anywhere else sorted({0, size - 1})
        for a, size in enumerate(mesh.mesh_shape)
    ]
    return (mesh.index(place) for place in product(*ends))


def _group_in_rounds(pieces: Sequence[Piece]) -> list[list[Piece]]:
    # First fit, those that go equally far and are equally large together.
    out: list[PieceRound] = []
    for piece in sorted(pieces, key=lambda p: (p.size, p.target - p.source, p.source, p.put)):
        first = next((one for one in out if one.takes(piece)), None)
        if first is None:
            out.append(first := PieceRound())
        first.add(piece)
    return [one.pieces for one in out]


Combine = Callable[[SSAValue, SSAValue], Operation] | None


def _start(w: Writer, x: SSAValue, movement: ShardMove) -> tuple[SSAValue, Combine]:
    # What the pieces are put into, and how they are combined with what is there.
    element, sizes = element_type(x), w.sizes(movement.dst, movement.shape)
    if movement.move.reduces:
        op = movement.src.reduce_op
        assert op is not None
        if op is ReduceOp.AVG:
            raise ProgramError(f"the step {movement.step} takes averages of boxes, which no op of the dialect does.")
        if is_rounded(op, element):  # contributions are added up in float32
            add = combination(op, f32)
            neutral = w.scalar(identity(op, dtype_of(f32)), f32)
            return w.splat(neutral, sizes, f32), lambda into, piece: add(into, extend(w, piece))
        neutral = w.scalar(identity(op, dtype_of(element)), element)
        return w.splat(neutral, sizes, element), combination(op, element)
    if movement.move.spreads:  # shares are handed on: each device has its own already
        return x, None
    if movement.dst.has_halo:  # nobody sends what lies outside of the tensor
        return w.splat(w.scalar(0, element), sizes, element), None
    return w.empty(sizes, element), None


def combination(op: ReduceOp, element: Attribute) -> Callable[[SSAValue, SSAValue], Operation]:
    """Return the op that combines two values of a reduction."""
    combine = BY_OP[op].floats if isinstance(element, AnyFloat) else BY_OP[op].ints
    if combine is None or not isinstance(element, AnyFloat | IntegerType):
        raise ProgramError(f"{op} is not defined for {element}.")
    return cast("Callable[[SSAValue, SSAValue], Operation]", combine)


@dataclass(frozen=True)
class _Table:
    """Writes the pieces of a round: each number as a formula or a table over the positions of a group."""

    w: Writer
    mesh: DeviceMesh
    axes: list[int]
    movement: ShardMove

    @cached_property
    def shape(self) -> Shape:
        """The sizes of the axes of a group."""
        return tuple(self.mesh.mesh_shape[a] for a in self.axes)

    def take(self, x: SSAValue, pieces: Sequence[Piece]) -> SSAValue:
        """Return the piece that this device gives."""
        offsets = [self._number({p.source: p.taken[k] for p in pieces}) for k in range(len(self.movement.shape))]
        return self.w.slice(x, offsets, self._sizes({p.source: p for p in pieces}))

    def put(self, into: SSAValue, piece: SSAValue, pieces: Sequence[Piece], combine: Combine) -> SSAValue:
        """Return a shard with the piece that this device is given."""
        offsets = [self._number({p.target: p.put[k] for p in pieces}) for k in range(len(self.movement.shape))]
        sizes = self._sizes({p.target: p for p in pieces})
        if combine is not None:
            piece = self.w.add(combine(self.w.slice(into, offsets, sizes), piece))
        # A piece of the same static type is all of the shard.
        whole = piece.type == into.type and all(isinstance(n, int) for n in sizes)
        return piece if whole else self.w.insert(piece, into, offsets, sizes)

    def copy_stay(self, x: SSAValue, into: SSAValue, pieces: Sequence[Piece], combine: Combine) -> SSAValue:
        """Return a shard with what each device has of it already."""
        if self._is_whole(pieces) and not self.movement.move.reduces:
            return x  # devices that keep nothing are given all of their shard in the rounds to come
        peers = {p.target: p.target for p in pieces}
        return self._guard(peers, lambda: [self.put(into, self.take(x, pieces), pieces, combine)], [into])[0]

    def _is_whole(self, pieces: Sequence[Piece]) -> bool:
        src, dst, shape = self.movement.src, self.movement.dst, self.movement.shape
        sizes = local_sizes(dst, shape)
        if dst.has_halo or sizes != local_sizes(src, shape) or DYNAMIC_INDEX in sizes:
            return False
        return all(n in (-1, size) for p in pieces for n, size in zip(p.size, sizes, strict=True))

    def exchange(self, x: SSAValue, into: SSAValue, pieces: Sequence[Piece], combine: Combine) -> SSAValue:
        """Return a shard after a round."""
        targets = {p.source: p.target for p in pieces}
        sources = {p.target: p.source for p in pieces}

        def send() -> list[SSAValue]:
            piece = self.take(x, pieces)
            static, dynamic = self._place(targets)
            self.w.add(SendOp(piece.type, self.mesh.name, piece, static, dynamic, grid_axes=self.axes))
            return []

        def receive() -> list[SSAValue]:
            sizes = self._sizes({p.target: p for p in pieces})
            room = self.w.empty(sizes, element_type(x))
            static, dynamic = self._place(sources)
            piece = self.w.add(RecvOp(room.type, self.mesh.name, room, dynamic, grid_axes=self.axes, source=static))
            return [self.put(into, piece, pieces, combine)]

        self._guard(targets, send, [])
        return self._guard(sources, receive, [into])[0]

    def _guard(
        self, peers: dict[int, int], write: Callable[[], list[SSAValue]], otherwise: Sequence[SSAValue]
    ) -> list[SSAValue]:
        # Devices that have nothing to do in a round do nothing.
        if len(peers) == prod(self.shape):
            return write()
        condition = self._elsewhere(peers)
        if condition is None:
            flag = self._entry([0 if k in peers else -1 for k in range(prod(self.shape))])
            condition = self.w.not_negative(self.w.value(flag))
        then, other = Block(), Block()
        with self.w.inside(then):
            results = write()
            then.add_op(scf.YieldOp(*results))
        other.add_op(scf.YieldOp(*otherwise))
        kinds = [x.type for x in results]
        op = scf.IfOp(condition, kinds, Region(then), Region(other) if kinds else Region())
        self.w.block.add_op(op)
        return list(op.results)

    def _elsewhere(self, peers: dict[int, int]) -> SSAValue | None:
        # Whether the peer of a device is another device, if a formula says so.
        if any(k == peer for k, peer in peers.items()):
            return None
        tables = list(zip(*(multi_index(self.shape, peers.get(k, k)) for k in range(prod(self.shape))), strict=True))
        if any(formula(self.shape, table) is None for table in tables):
            return None
        out = None
        for axis, table in zip(self.axes, tables, strict=True):
            own, other = self.w.coordinate(self.mesh, axis), self._entry(table)
            if other is not own:
                out = self.w.either(out, self.w.unequal(own, self.w.value(other)))
        return out

    def _number(self, entries: dict[int, int]) -> Number:
        return self._entry([entries.get(k) for k in range(prod(self.shape))])

    def _entry(self, table: Sequence[int | None]) -> Number:
        return entry_for_device(self.w, self.mesh, self.axes, table)

    def _sizes(self, pieces: dict[int, Piece]) -> list[Number]:
        dst, shape = self.movement.dst, self.movement.shape
        return [
            self.w.size(dst, shape, k) if same else self._number({i: p.size[k] for i, p in pieces.items()})
            for k, same in enumerate(self.movement.same)
        ]

    def _place(self, entries: dict[int, int]) -> tuple[list[int], list[SSAValue]]:
        # Coordinates in the group, those that are not the same for all as values.
        places = {i: multi_index(self.shape, other) for i, other in entries.items()}
        return split_known([self._number({i: place[k] for i, place in places.items()}) for k in range(len(self.shape))])
