"""What the busiest device receives and sends in reductions, against the transfers of all devices."""

from itertools import product

import pytest

from shardwise import DeviceMesh, Layout, P, plan_reshard
from shardwise.plan.moves import ReduceMove, SpreadMove
from tests.plan.cases import all_layouts, mesh_of


def reductions(sizes: tuple[int, ...], rank: int):
    layouts = all_layouts(mesh_of(*sizes), rank, True)
    return [(src, dst) for src, dst in product(layouts, layouts) if src.partial]


@pytest.mark.parametrize(("sizes", "every"), [((2, 3), 1), ((2, 2, 2), 19), ((4, 2), 1)])
def test_no_device_receives_or_sends_more_than_the_load(sizes: tuple[int, ...], every: int) -> None:
    shape = (24, 24)
    for src, dst in reductions(sizes, 2)[::every]:
        for step in plan_reshard(src, dst, shape, "int8").steps:
            if any(isinstance(move, ReduceMove | SpreadMove) for move in step.moves):
                slots = range(src.mesh.num_devices)
                # Shares are whole elements, so that one may have an element more of each cell.
                for move, received, sent in zip(step.moves, step.estimates, step.sends, strict=True):
                    assert max(sum(t.size for t in move.incoming(slot)) for slot in slots) <= received + 24, (src, dst)
                    if move.spreads:
                        assert max(sum(t.size for t in move.outgoing(slot)) for slot in slots) <= sent + 24, (src, dst)


@pytest.mark.parametrize("sizes", [(2, 3), (2, 2, 2)])
def test_it_is_exact_where_all_devices_reduce_alike(sizes: tuple[int, ...]) -> None:
    mesh = mesh_of(*sizes)
    whole = Layout(mesh, [None, None], mesh.axis_names)
    for dst in all_layouts(mesh, 2):
        for step in plan_reshard(whole, dst, (24, 24), "int8").steps:
            if step.kind in ("all_reduce", "reduce_scatter"):
                assert sum(step.estimates) == step.received.max, dst
                assert sum(step.sends) == step.sent.max, dst


@pytest.mark.parametrize("count", [4, 64, 1024])
def test_no_device_reduces_for_all_the_others(count: int) -> None:
    """Of those that need a row only one contributes to it: it would receive and send everything."""
    mesh = DeviceMesh((count, count), ("a", "b"))
    plan = plan_reshard(P("a", unreduced=["b"]), P("b"), (16 * count, count), "float32", mesh=mesh)
    least = plan.lower_bound.total
    mean = plan.received.total / mesh.num_devices
    busiest = sum(sum(step.loads) for step in plan.steps)
    if count == 4:  # it would take a seventh more bytes to have all of them reduce
        assert plan.received.total == least
        assert busiest > 2 * mean
        assert [step.kind for step in plan.steps] == ["reduce_scatter", "all_gather"]
    else:
        assert least < plan.received.total < 1.01 * least
        assert busiest < 2 * mean
        assert [step.kind for step in plan.steps] == ["reduce_scatter", "exchange"]
    if count <= 64:
        assert max(plan.received.max, plan.sent.max) <= busiest * 1.001


def test_shares_that_do_not_divide_are_left_to_the_few() -> None:
    mesh = DeviceMesh((64, 64), ("a", "b"))
    plan = plan_reshard(P("a", unreduced=["b"]), P("b"), (64, 5), "float32", mesh=mesh)
    assert plan.received.total == plan.lower_bound.total
