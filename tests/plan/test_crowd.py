"""Plans between meshes where a device stands in several slots: values, bytes and bounds, element by element."""

from random import Random
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import CPU, DeviceMesh, Layout, P, ReduceOp, asarray, current_engine, plan_reshard, shard
from tests.layout.oracle import held_box
from tests.plan.cases import Move, crowded_moves, mesh_of
from tests.plan.oracle import region
from tests.prim.cases import assert_holds, spread

A = np.arange(24.0).reshape(4, 6)
MESHES = [
    DeviceMesh((2, 2), ("x", "y"), [CPU(0)] * 4),
    DeviceMesh((2, 2), ("x", "y"), [CPU(0), CPU(1)] * 2),
    DeviceMesh((2, 2), ("x", "y"), [CPU(7)] * 4),
]


def union(layout: Layout, shape: tuple[int, ...], device: object) -> np.ndarray:
    """The elements that a device holds in any of its slots."""
    out = np.zeros(shape, bool)
    for slot, own in enumerate(layout.mesh.devices):
        if own == device:
            out[region(held_box(layout, shape, slot))] = True
    return out


def is_simple(mesh: DeviceMesh) -> bool:
    return len(set(mesh.devices)) in (1, mesh.num_devices)


def check(move: Move, seed: int) -> None:
    """Reshard real values, count what is sent, and compare it with the elements that each device lacks."""
    src, dst, shape, dtype = move
    plan, counters = plan_reshard(*move), current_engine().counters
    x, value = spread(src, shape, dtype, seed)
    counters.reset()
    assert_holds(shard(x, dst.mesh, dst), dst, value)
    assert counters.total == plan.received.total == plan.sent.total == plan.traffic().sum()
    assert plan.lower_bound.total <= plan.received.total
    everybody = dict.fromkeys((*src.mesh.devices, *dst.mesh.devices))
    assert [t for d in everybody for t in plan.transfers(d) for t in t if t.source == t.target] == []
    if not src.partial and not dst.partial:
        total = 0
        for device in everybody:
            lacks = int((union(dst, shape, device) & ~union(src, shape, device)).sum()) * dtype.itemsize
            assert plan.received.of(device) == plan.lower_bound.of(device) == lacks
            total += lacks
        assert plan.lower_bound.total == total
    elif src.partial and dst.partial and dst.reduce_op is not ReduceOp.AVG:
        assert plan.lower_bound.total == 0  # what devices may keep is not known
    elif dst.reduce_op is not ReduceOp.AVG and is_simple(src.mesh) and not dst.has_halo:
        assert plan.received.total == plan.lower_bound.total


def test_random_meshes_and_layouts() -> None:
    for seed in range(60):
        check(crowded_moves(Random(seed)), seed)


@pytest.mark.long
def test_many_random_meshes_and_layouts() -> None:
    for seed in range(1000, 5000):
        check(crowded_moves(Random(seed)), seed)


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: repr(mesh.devices))
def test_a_simulated_mesh_meets_every_other(mesh: DeviceMesh) -> None:
    other, t = mesh_of(3), shard(asarray(A), mesh, P("x", "y"))
    whole = DeviceMesh((6,), ("w",), [CPU(1)] * 6)
    for y in (
        t,
        sw.transfer_to(t, CPU(0)),
        sw.transfer_to(t, sharding=Layout(other, [None, "x"])),
        sw.transfer_to(t, sharding=Layout(whole, ["w", None])),
        sw.cpu(t),
        sw.distributed_broadcast(t, other),
        sw.distributed_broadcast(shard(A, other, P("x")), mesh),
    ):
        assert np.array_equal(y.numpy(), A)
    assert np.array_equal((t * asarray(A)).numpy(), A * A)
    assert np.array_equal((asarray(A) + t).numpy(), A + A)
    there = sw.grad(lambda x: (shard(x, other, P("x")) * asarray(A)).sum())
    back = sw.grad(lambda x: (shard(x, mesh, P("y")) * t).sum())
    for found in (there(t), back(asarray(A)), back(shard(A, other, P("x")))):
        assert np.array_equal(found.numpy(), A)


def test_what_is_on_one_device_is_summed_there() -> None:
    src = Layout(MESHES[2], [None, None], ["x", "y"])
    plan = plan_reshard(src, P("x").to_layout(2, mesh_of(3)), (4, 6), "float32")
    assert plan.received.total == plan.lower_bound.total == A.size * 4
    assert plan.steps[0].received.total == 0


def test_what_several_slots_of_a_device_need_comes_once() -> None:
    for dst in (Layout(MESHES[2], [None, None]), Layout(MESHES[2], ["x", "y"])):
        plan = plan_reshard(Layout(mesh_of(3), ["x", None]), dst, (4, 6), "float32")
        assert plan.received.each.tolist() == [0, 0, 0, A.size * 4]


def test_plans_of_crowds_are_drawn_and_explained() -> None:
    for seed in range(12):
        plan = plan_reshard(*crowded_moves(Random(seed)))
        assert "receives at most" in str(plan)
        assert "<svg" in plan._repr_html_() if plan.steps else True
        assert plan.explain().why
        for step in plan.steps:
            assert step.least_staging <= step.staged(1 << 30).staging_bytes
            for device in dict.fromkeys(plan.dst.mesh.devices):
                assert step.kept(device) is None or step.shares is not None


def test_contributions_of_one_device_can_be_sent_as_one() -> None:
    # The plan sends each of the four by itself; the bound says that two messages would do, so no claim is made.
    src = Layout(DeviceMesh((4,), ("x",), [CPU(0), CPU(0), CPU(1), CPU(1)]), [None], ["x"])
    plan = plan_reshard(src, Layout.replicated(DeviceMesh.single(CPU(2)), 1), (6,), "int8")
    assert plan.lower_bound.total == 12
    assert plan.received.total > plan.lower_bound.total
    assert "the least possible" not in str(plan)


def test_the_busiest_device_is_the_one_that_receives_most():
    crowd = DeviceMesh((4,), ("x",), [CPU(0), CPU(0), CPU(1), CPU(2)])
    plan = plan_reshard(Layout(crowd, ["x"]), Layout(mesh_of(3), [None]), (9,), "float32")
    moves: list[Any] = [move for step in plan.steps for move in step.moves]
    assert moves
    for move in moves:
        targets = {t.target for t in move.transfers}
        came = [list(move.incoming(target)) for target in targets]
        assert move.busiest == (max(sum(t.size for t in some) for some in came), max(map(len, came)))
