"""A plan beside its alternatives: the bytes and time of each, and why it won."""

import pytest
from hypothesis import given

from shardwise import Layout, Link, P, plan_reshard
from shardwise.plan import explain
from tests.plan.cases import Transition, mesh_of, transitions

MESH = mesh_of(2, 4)


def explained(src: P, dst: P, shape: tuple[int, ...], mesh=MESH):
    return plan_reshard(src.to_layout(len(shape), mesh), dst.to_layout(len(shape), mesh), shape, "int8").explain()


def test_the_alternatives_are_the_obvious_ones():
    found = explained(P("x", "y"), P(None, "x"), (8, 64))
    assert [(way.name, way.steps, way.received_max, way.received_total) for way in found.alternatives] == [
        ("gather, then slice", ("all_gather over x, y", "slice over x"), 448, 8 * 448),
        ("axis by axis", ("all_gather over y", "all_to_all over x"), 192 + 128, 8 * 320),
        ("one direct exchange", ("exchange",), 256, 4 * 192 + 4 * 256),
    ]
    assert found.chosen.steps == ("exchange over x, y",)
    assert found.chosen.received_total == 4 * 192 + 4 * 256
    assert found.why == (
        "gather, then slice would move 2 times the bytes; axis by axis would move 1.43 times the bytes; "
        "one direct exchange comes to the same."
    )


def test_memory_is_both_shards_and_what_is_staged():
    found = explained(P("x", "y"), P(None, "x"), (8, 64))
    assert {way.name: way.memory for way in (found.chosen, *found.alternatives)} == {
        "this plan": 64 + 256 + 256,  # up to eight boxes of 4 x 8
        "gather, then slice": 64 + 512 + 512,  # eight boxes of 4 x 16
        "axis by axis": 256 + 256 + 256,
        "one direct exchange": 64 + 256 + 256,
    }
    limited = plan_reshard(P("x", "y").to_layout(2, MESH), P().to_layout(2, MESH), (8, 64), "int8", memory_limit=64)
    assert limited.explain().chosen.memory == 64 + 512 + 64


def test_a_direct_exchange_of_partial_values_fetches_every_contribution():
    found = explained(P(unreduced=["x", "y"]), P(), (80,))
    direct = found.alternatives[-1]
    assert (direct.name, direct.received_max, direct.received_total) == ("one direct exchange", 7 * 80, 8 * 7 * 80)
    assert found.chosen.received_total == (8 + 8 - 2) * 80


AXIS_BY_AXIS = [
    (P(), P(unreduced=["x", "y"]), ("fill over y", "fill over x")),
    (P(("x", "y")), P(("y", "x")), ("permute over x, y",)),
    (P("x", unreduced=["y"]), P("y"), ("reduce_scatter over y", "exchange over x, y")),
    (P("x"), P("y"), ("slice over y", "exchange over x, y")),
    (P("y"), P("x"), ("all_gather over y", "slice over x")),
]


@pytest.mark.parametrize(("src", "dst", "steps"), AXIS_BY_AXIS)
def test_axis_by_axis_the_last_one_takes_its_new_role_first(src, dst, steps):
    ways = {way.name: way.steps for way in explained(src, dst, (64,)).alternatives}
    assert ways["axis by axis"] == steps


def test_two_reductions_do_not_wait_at_once():
    src, dst = Layout(MESH, [None], ["x"], "sum"), Layout(MESH, [None], ["y"], "max")
    found = plan_reshard(src, dst, (64,), "int8").explain()
    ways = {way.name: way.steps for way in found.alternatives}
    assert ways["axis by axis"] == ("all_reduce over x", "fill over y")
    direct = found.alternatives[-1]
    assert (direct.received_max, direct.memory) == (64, 3 * 64)  # the other contribution, beside both shards


@pytest.mark.parametrize(
    ("src", "dst", "why"),
    [
        (P("x"), P("x"), "Both layouts put the same boxes on the same devices, so there is nothing to do."),
        (P(), P("x"), "Every device already holds what it needs, so nothing is sent."),
    ],
)
def test_what_needs_no_bytes_says_so(src, dst, why):
    assert explained(src, dst, (8,)).why == why


def test_more_steps_or_a_longer_time_are_given_as_the_reason():
    src, dst = P(("x", "y")), P()
    assert "axis by axis would move as much, but take 2 times as long" in explained(src, dst, (8,)).why
    at_once = plan_reshard(src.to_layout(1, MESH), dst.to_layout(1, MESH), (8,), "int8", links=Link(0, 1e9))
    assert at_once.explain().why == (
        "gather, then slice comes to the same; axis by axis would need 2 steps instead of 1; "
        "one direct exchange comes to the same."
    )


@given(transitions(partial=True))
def test_no_alternative_without_halos_moves_less(case: Transition):
    found = plan_reshard(*case, "int8").explain()
    if case.src.has_halo or case.dst.has_halo:
        return
    assert all(way.received_total >= found.chosen.received_total for way in found.alternatives)
    assert found.why.endswith(".")


def test_bytes_are_counted_up_to_a_number_of_devices(monkeypatch):
    # The last of eight devices receives most, the first least: above the limit the cost model speaks for all.
    src, dst = P("x", "y"), P(None, "x")
    counted = explained(src, dst, (8, 64))
    monkeypatch.setattr(explain, "COUNTED", 8)
    assert explained(src, dst, (8, 64)) == counted
    monkeypatch.setattr(explain, "COUNTED", 7)
    assert explained(src, dst, (8, 64)).chosen.received_total == 8 * 256


def test_a_million_devices_are_explained_by_the_cost_model():
    found = explained(P("x", unreduced=["y", "z"]), P("x"), (2**14, 2**14), mesh_of(64, 64, 256))
    names = [way.name for way in found.alternatives]
    assert names == ["gather, then slice", "axis by axis", "one direct exchange"]
    assert found.chosen.received_total == found.chosen.received_max * 2**20


def test_above_the_counted_devices_a_transpose_has_bytes_and_says_that_they_are_estimates():
    found = explained(P("x", "y"), P("y", "x"), (2**14, 2**14), mesh_of(128, 64))
    direct = found.alternatives[-1]
    assert (direct.received_max, direct.received_total) == (found.chosen.received_max, found.chosen.received_total)
    assert direct.received_max == 2**15
    assert all(way.is_estimate for way in (found.chosen, *found.alternatives))
    assert "~32 KiB" in str(found)
    assert "about 8.19e+03 times the bytes" in found.why
    assert "one direct exchange comes to the same" in found.why
    small = explained(P("x", "y"), P("y", "x"), (64, 64), mesh_of(8, 8))
    assert not any(way.is_estimate for way in (small.chosen, *small.alternatives))
    assert "~" not in str(small)


def test_no_alternative_is_free_where_the_plan_is_not():
    sizes = (72, 64)  # more devices than are counted
    for src, dst in ((P("x"), P("y")), (P("x", "y"), P()), (P(unreduced=["x"]), P("x")), (P("x", "y"), P(("y", "x")))):
        found = explained(src, dst, (72 * 64, 72 * 64), mesh_of(*sizes))
        assert found.chosen.received_total > 0
        assert all(way.received_total > 0 for way in found.alternatives), (src, dst)
