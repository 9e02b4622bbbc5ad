"""Permutes: shards that change places whole, each device's partner worked out from its own position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import scf
from xdsl.ir import Block, Region, SSAValue

from shardwise.ir.passes.layouts import number, numbers
from shardwise.ir.passes.rounds import rounds
from shardwise.ir.passes.writer import Writer
from shardwise.ir.shard import RecvOp, SendOp
from shardwise.ir.shard.attributes import DYNAMIC_INDEX
from shardwise.ir.types import element_type
from shardwise.layout.layout import Layout, Shape
from shardwise.plan.steps import Step


def is_one_message(step: Step) -> bool:
    """Whether a step is a permute in which each shard goes to one device, all of it."""
    src, dst = step.before, step.after
    if step.kind != "permute" or not isinstance(src, Layout) or not isinstance(dst, Layout):
        return False
    return sorted(src.sharded_axes) == sorted(dst.sharded_axes)


def permute_shard(w: Writer, x: SSAValue, step: Step, shape: Shape) -> SSAValue:
    """Return the shard that a device has after a permute: one message each, to whom and from whom by a formula."""
    if not is_one_message(step):
        return rounds(w, x, step, shape)  # copies are made, and replicas share the sending
    src, dst = step.before, step.after
    assert isinstance(src, Layout)
    assert isinstance(dst, Layout)
    axes = sorted(
        {number(axis) for old, new in zip(src.dims, dst.dims, strict=True) if old != new for axis in old.axes}
    )
    target, source = _partner(w, src, dst), _partner(w, dst, src)
    then, unknown = Block(), [DYNAMIC_INDEX] * len(axes)
    with w.inside(then):
        w.add(SendOp(x.type, src.mesh.name, x, unknown, [target[axis] for axis in axes], grid_axes=axes))
        then.add_op(scf.YieldOp())
    w.block.add_op(scf.IfOp(_moves(w, src, axes, target), [], Region(then), Region()))
    then, other = Block(), Block()
    with w.inside(then):
        room = w.empty(w.sizes(dst, shape), element_type(x))
        senders = [source[axis] for axis in axes]
        then.add_op(scf.YieldOp(w.add(RecvOp(room.type, src.mesh.name, room, senders, grid_axes=axes, source=unknown))))
    other.add_op(scf.YieldOp(x))
    received = scf.IfOp(_moves(w, src, axes, source), [x.type], Region(then), Region(other))
    return w.add(received)


def _partner(w: Writer, own: Layout, theirs: Layout) -> dict[int, SSAValue]:
    # Per grid axis, the coordinate of the device whose part under `theirs` is this device's part under `own`.
    out: dict[int, SSAValue] = {}
    for old, new in zip(own.dims, theirs.dims, strict=True):
        if old == new:
            continue
        if [a.size for a in old.axes] == [a.size for a in new.axes]:  # digit by digit
            out |= {number(b): w.coordinate(own.mesh, number(a)) for a, b in zip(old.axes, new.axes, strict=True)}
            continue
        rest = w.position(own.mesh, numbers(old.axes))
        for axis in reversed(new.axes):
            out[number(axis)] = w.remainder(rest, axis.size)
            rest = w.quotient(rest, axis.size)
    return out


def _moves(w: Writer, layout: Layout, axes: Sequence[int], partner: Mapping[int, SSAValue]) -> SSAValue:
    # Whether the partner is another device.
    out = None
    for axis in axes:
        out = w.either(out, w.unequal(w.coordinate(layout.mesh, axis), partner[axis]))
    assert out is not None, "a permute is over some axes"
    return out
