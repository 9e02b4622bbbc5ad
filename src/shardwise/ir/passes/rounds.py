"""Rounds: a movement that no collective of the dialect makes, as sends and receives of boxes.

In a round each device sends one box at most and receives one at most. To whom, from whom and which box is worked out
for one group of devices; the others do the same at their own places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, cast

import numpy as np
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import AnyFloat, IntegerType, TensorType, f32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from shardwise.engine.arrays import ADDING, identity, is_low
from shardwise.errors import ProgramError
from shardwise.ir.module.reductions import BY_OP
from shardwise.ir.module.values import dtype_of
from shardwise.ir.passes.layouts import local_sizes
from shardwise.ir.passes.peers import Peers, PlaceGroup
from shardwise.ir.passes.pieces import Numbers, Pieces, ShardMove, split_rounds
from shardwise.ir.passes.writer import Number, Writer, split_known
from shardwise.ir.shard import RecvOp, SendOp
from shardwise.ir.shard.attributes import DYNAMIC_INDEX
from shardwise.ir.types import element_type, shape_of
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.placement import ReduceOp
from shardwise.plan.steps import Step


def rounds(w: Writer, x: SSAValue, step: Step, shape: Shape) -> SSAValue:
    """Return what a device holds after a step, moved by sends and receives."""
    for move in step.moves:
        if move.phase == "direct" and not isinstance(step.after, Layout):
            raise ProgramError(f"the step {step} makes values partial, which no op of the dialect does.")
        x = _move(w, x, ShardMove(step, move, shape))
    return x


def has_more_rounds(step: Step, shape: Shape, most: int) -> bool:
    """Whether a step takes more than so many rounds of sends and receives."""
    moves = [ShardMove(step, move, shape) for move in step.moves]
    ends = (0, step.mesh.num_devices - 1)
    # What one device receives needs as many rounds, and is told sooner.
    if any(len(list(islice(one.move.arrivals(device), most + 1))) > most for one in moves for device in ends):
        return True
    total = 0
    for one in moves:
        axes, _, travel = one.parts
        total += len(split_rounds(travel, tuple(one.src.mesh.mesh_shape[a] for a in axes)))
    return total > most


def _move(w: Writer, x: SSAValue, movement: ShardMove) -> SSAValue:
    axes, stay, travel = movement.parts
    into, combine = _start(w, x, movement)
    element, group = element_type(x), PlaceGroup(w, movement.src.mesh, axes)
    writing = _Writing(w, movement, combine)
    for one in _rounds(w, movement, group, stay):
        into = writing.copy_stay(x, into, one)
    for one in _rounds(w, movement, group, travel):
        into = writing.exchange(x, into, one)
    return into if element_type(into) == element else truncate(w, into, element)


def _rounds(w: Writer, movement: ShardMove, group: PlaceGroup, pieces: Pieces) -> list[_Round]:
    shared = _Shared(pieces)
    return [_Round(w, movement, group, shared, pieces[rows]) for rows in split_rounds(pieces, group.shape)]


def extend(w: Writer, x: SSAValue) -> SSAValue:
    """Return a tensor of small floats in float32."""
    return w.add(arith.ExtFOp(x, TensorType(f32, shape_of(x))))


def truncate(w: Writer, x: SSAValue, element: Attribute) -> SSAValue:
    """Return a tensor rounded to small floats."""
    return w.add(arith.TruncFOp(x, TensorType(element, shape_of(x))))


def is_rounded(op: ReduceOp, element: Attribute) -> bool:
    """Whether a reduction would round floats of few bits at every step."""
    return op in ADDING and isinstance(element, AnyFloat) and is_low(dtype_of(element))


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


Side = Literal["source", "target"]


@dataclass(frozen=True, eq=False)
class _Round:
    """The pieces of a round, and what a device computes of those that it sends and receives."""

    w: Writer
    movement: ShardMove
    group: PlaceGroup
    shared: _Shared
    pieces: Pieces

    def peers(self, side: Side) -> Peers:
        """Return with whom a device on this side of pieces exchanges them."""
        return self.group.peers(*self._ends(side))

    def has_peer(self, side: Side) -> SSAValue:
        """Return whether this device is on this side of a piece."""
        return self.group.has_peer(*self._ends(side))

    def _ends(self, side: Side) -> tuple[Numbers, Numbers]:
        source, target = self.pieces.source, self.pieces.target
        return (source, target) if side == "source" else (target, source)

    def offsets(self, side: Side) -> list[Number]:
        """Return where the piece of this device begins in its shard."""
        columns = self.pieces.taken if side == "source" else self.pieces.put
        return [self._number(side, "taken" if side == "source" else "put", k) for k in range(columns.shape[1])]

    def sizes(self, side: Side) -> list[Number]:
        """Return how large the piece of this device is."""
        dst, shape = self.movement.dst, self.movement.shape
        return [
            self.w.size(dst, shape, k) if same else self._number(side, "size", k)
            for k, same in enumerate(self.movement.same)
        ]

    def _number(self, side: Side, name: Column, dim: int) -> Number:
        places, values = self._ends(side)[0], getattr(self.pieces, name)[:, dim]
        number = self.group.fit(places, values)
        if number is None:
            number = self._shared_number(side, name, dim)
        return self.group.look_up(places, values) if number is None else number

    def _shared_number(self, side: Side, name: Column, dim: int) -> Number | None:
        # One table for all rounds, where the number depends on one of both devices alone.
        other: Side = "target" if side == "source" else "source"
        own_table, table = self.shared.table(side, name, dim), self.shared.table(other, name, dim)
        if own_table is not None:
            return self.group.look_up(*own_table)
        return None if table is None else self.peers(side).number(*table)


Column = Literal["taken", "put", "size"]


@dataclass(frozen=True, eq=False)
class _Shared:
    """Numbers that depend on one end of a piece alone, whatever the round."""

    pieces: Pieces
    known: dict[tuple[Side, Column, int], tuple[Numbers, Numbers] | None] = field(
        default_factory=dict[tuple[Side, Column, int], tuple[Numbers, Numbers] | None]
    )

    def table(self, side: Side, name: Column, dim: int) -> tuple[Numbers, Numbers] | None:
        """Return places and the number of each, if it is the same in all pieces that begin or end there."""
        key = side, name, dim
        if key not in self.known:
            ends, values = getattr(self.pieces, side), getattr(self.pieces, name)[:, dim]
            places, first = np.unique(ends, return_index=True)
            table = np.zeros(int(ends.max()) + 1, dtype=np.int64)
            table[places] = values[first]
            self.known[key] = (places, values[first]) if (table[ends] == values).all() else None
        return self.known[key]


@dataclass(frozen=True, eq=False)
class _Writing:
    """Writes rounds."""

    w: Writer
    movement: ShardMove
    combine: Combine

    def take(self, x: SSAValue, one: _Round) -> SSAValue:
        """Return the piece that this device gives."""
        return self.w.slice(x, one.offsets("source"), one.sizes("source"))

    def put(self, into: SSAValue, piece: SSAValue, one: _Round) -> SSAValue:
        """Return a shard with the piece that this device is given."""
        offsets, sizes = one.offsets("target"), one.sizes("target")
        if self.combine is not None:
            piece = self.w.add(self.combine(self.w.slice(into, offsets, sizes), piece))
        # A piece of the same static type is all of the shard.
        whole = piece.type == into.type and all(isinstance(n, int) for n in sizes)
        return piece if whole else self.w.insert(piece, into, offsets, sizes)

    def copy_stay(self, x: SSAValue, into: SSAValue, one: _Round) -> SSAValue:
        """Return a shard with what each device has of it already."""
        if self._is_whole(one.pieces) and not self.movement.move.reduces:
            return x  # devices that keep nothing are given all of their shard in the rounds to come
        return self._guard(one, "target", lambda: [self.put(into, self.take(x, one), one)], [into])[0]

    def _is_whole(self, pieces: Pieces) -> bool:
        src, dst, shape = self.movement.src, self.movement.dst, self.movement.shape
        sizes = local_sizes(dst, shape)
        if dst.has_halo or sizes != local_sizes(src, shape) or DYNAMIC_INDEX in sizes:
            return False
        return bool(((pieces.size == -1) | (pieces.size == np.array(sizes))).all())

    def exchange(self, x: SSAValue, into: SSAValue, one: _Round) -> SSAValue:
        """Return a shard after a round."""
        mesh, axes = one.group.mesh, one.group.axes

        def send() -> list[SSAValue]:
            piece = self.take(x, one)
            static, dynamic = split_known(one.peers("source").coordinates)
            self.w.add(SendOp(piece.type, mesh.name, piece, static, dynamic, grid_axes=axes))
            return []

        def receive() -> list[SSAValue]:
            room = self.w.empty(one.sizes("target"), element_type(x))
            static, dynamic = split_known(one.peers("target").coordinates)
            piece = self.w.add(RecvOp(room.type, mesh.name, room, dynamic, grid_axes=axes, source=static))
            return [self.put(into, piece, one)]

        self._guard(one, "source", send, [])
        return self._guard(one, "target", receive, [into])[0]

    def _guard(
        self, one: _Round, side: Side, write: Callable[[], list[SSAValue]], otherwise: Sequence[SSAValue]
    ) -> list[SSAValue]:
        # Devices that have nothing to do in a round do nothing.
        if len(one.pieces) == one.group.size:
            return write()
        condition = one.has_peer(side)
        then, other = Block(), Block()
        with self.w.inside(then):
            results = write()
            then.add_op(scf.YieldOp(*results))
        other.add_op(scf.YieldOp(*otherwise))
        kinds = [x.type for x in results]
        op = scf.IfOp(condition, kinds, Region(then), Region(other) if kinds else Region())
        self.w.block.add_op(op)
        return list(op.results)
