"""The cheapest candidate depends on the links; what it moves does not."""

import pytest

from shardwise import CPU, Cut, DeviceMesh, Layout, Link, Links, P, plan_reshard
from tests.plan import oracle
from tests.plan.cases import all_transitions, mesh_of

MESH = mesh_of(2, 8)
SLOW, FAST = Link(1e-5, 1e9), Link(1e-6, 4e11)
EVEN = {"x": FAST, "y": FAST}
MACHINES = {"x": SLOW, "y": FAST}  # 2 machines of 8
SIZE = 2**20


def kinds(src: P, dst: P, links=None, mesh=MESH, shape=(SIZE,)) -> list[str]:
    a, b = src.to_layout(len(shape), mesh), dst.to_layout(len(shape), mesh)
    plan = plan_reshard(a, b, shape, "float32", links=links)
    assert plan.received.total == plan.lower_bound.total
    return [str(step) for step in plan.steps]


def test_an_all_reduce_is_done_level_by_level_where_one_link_is_slow():
    src, dst = P(unreduced=["x", "y"]), P()
    assert kinds(src, dst) == ["all_reduce over x, y"]
    assert kinds(src, dst, EVEN) == ["all_reduce over x, y"]
    assert kinds(src, dst, MACHINES) == ["reduce_scatter over y", "all_reduce over x", "all_gather over y"]


def test_a_gather_is_done_level_by_level_where_one_link_is_slow():
    src, dst = P(("y", "x")), P()
    assert kinds(src, dst) == ["all_gather over y, x"]
    assert kinds(src, dst, MACHINES) == ["all_gather over x", "all_gather over y"]


def test_a_small_tensor_takes_the_fewest_rounds_over_any_links():
    assert kinds(P(unreduced=["x", "y"]), P(), MACHINES, shape=(16,)) == ["all_reduce over x, y"]
    assert kinds(P(("y", "x")), P(), MACHINES, shape=(16,)) == ["all_gather over y, x"]


def test_an_axis_that_spans_machines_has_links_for_its_sub_axes():
    mesh = mesh_of(16)
    links = {"x:(1)2": SLOW, "x:(2)8": FAST}
    assert kinds(P(unreduced=["x"]), P(), links, mesh) == [
        "reduce_scatter over x:(2)8",
        "all_reduce over x:(1)2",
        "all_gather over x:(2)8",
    ]


MIDDLE = Link(1e-6, 2e10)
THREE, SPANNING = mesh_of(4, 2, 2), mesh_of(16)
ASCENDING = {"x": SLOW, "y": MIDDLE, "z": FAST}
DESCENDING = {"x": FAST, "y": MIDDLE, "z": SLOW}
INNER_SLOW = {"x:(1)8": FAST, "x:(8)2": SLOW}
SUM = P(unreduced=["x", "y", "z"])
LEVELS = [
    # a sum: scattered over all but the slowest links, in the order of the mesh
    (SUM, P(), ASCENDING, THREE, (SIZE,), "reduce_scatter over y, z; all_reduce over x; all_gather over y, z"),
    (SUM, P(), DESCENDING, THREE, (SIZE,), "reduce_scatter over x, y; all_reduce over z; all_gather over x, y"),
    # and along the longest dim of a shard that divides
    (
        P(None, "x", unreduced=["y", "z"]),
        P(None, "x"),
        DESCENDING,
        THREE,
        (64, 65536),
        "reduce_scatter over y -> [-|x y] sum(z); all_reduce over z -> [-|x y]; all_gather over y -> [-|x]",
    ),
    (
        P(None, "x", unreduced=["y", "z"]),
        P(None, "x"),
        DESCENDING,
        THREE,
        (1024, 2048),
        "reduce_scatter over y -> [y|x] sum(z); all_reduce over z -> [y|x]; all_gather over y -> [-|x]",
    ),
    (
        SUM,
        P(),
        DESCENDING,
        THREE,
        (1024, 2049),
        "reduce_scatter over x, y -> [x y|-] sum(z); all_reduce over z -> [x y|-]; all_gather over x, y -> [-|-]",
    ),
    # a gather: over the slowest links first, while there is little to send, if these are minor
    (P(("x", "y", "z")), P(), DESCENDING, THREE, (SIZE,), "all_gather over z; all_gather over y; all_gather over x"),
    (P(("x", "y", "z")), P(), ASCENDING, THREE, (SIZE,), "all_gather over x, y, z"),
    (
        P("x", "y", "z"),
        P(),
        ASCENDING,
        THREE,
        (64, 128, 256),
        "all_gather over x; all_gather over y; all_gather over z",
    ),
    (P("x", "y", "z"), P("x"), DESCENDING, THREE, (64, 128, 256), "all_gather over z; all_gather over y"),
    # one axis over two kinds of links
    (P("x"), P(), INNER_SLOW, SPANNING, (SIZE,), "all_gather over x:(8)2; all_gather over x:(1)8"),
    (P("x"), P("x:(1)2"), INNER_SLOW, SPANNING, (SIZE,), "all_gather over x:(8)2; all_gather over x:(2)4"),
    (
        P("x", "y"),
        P(),
        {**INNER_SLOW, "y": MIDDLE},
        mesh_of(16, 4),
        (1024, 1024),
        "all_gather over x:(8)2; all_gather over y; all_gather over x:(1)8",
    ),
    (P("x"), P(), {"x:(1)2": SLOW, "x:(2)8": FAST}, SPANNING, (SIZE,), "all_gather over x"),
    (P("x", None), P(None, "x"), INNER_SLOW, SPANNING, (1024, 1024), "all_to_all over x"),
]


@pytest.mark.parametrize(("src", "dst", "links", "mesh", "shape", "want"), LEVELS)
def test_levels_of_links_are_crossed_one_by_one_where_that_is_faster(src, dst, links, mesh, shape, want):
    a, b = src.to_layout(len(shape), mesh), dst.to_layout(len(shape), mesh)
    plan = plan_reshard(a, b, shape, "float32", links=links)
    texts = [f"{step} -> {step.after}" if "->" in want else str(step) for step in plan.steps]
    assert "; ".join(texts) == want
    assert plan.received.total == plan.lower_bound.total
    one = plan_reshard(a, b, shape, "float32", links=dict.fromkeys(links, SLOW))
    assert plan.time < one.time


def test_of_equal_bandwidths_the_longer_latency_is_the_slower_link():
    late = {"x": Link(1e-6, 1e9), "y": Link(1e-3, 1e9)}
    src, dst = Layout(MESH, [("x", "y")]), Layout(MESH, [None])
    assert Links(late).on(MESH, [MESH.axis("x"), MESH.axis("y")]) == [(8, late["y"]), (2, late["x"])]
    assert [str(s) for s in plan_reshard(src, dst, (64,), "int8", links=late).steps] == ["all_gather over x, y"]


def test_a_shape_that_does_not_divide_keeps_the_single_collective():
    assert kinds(P(unreduced=["x", "y"]), P(), MACHINES, shape=(SIZE + 1,)) == ["all_reduce over x, y"]


@pytest.mark.parametrize("links", [None, EVEN, MACHINES], ids=["default", "even", "machines"])
def test_every_choice_gives_the_right_values_and_the_same_total(links):
    small = {n: Link(0, link.bandwidth) for n, link in links.items()} if links else None  # so that bytes decide
    for src, dst in ((P(unreduced=["x", "y"]), P()), (P(("y", "x")), P()), (P("y", unreduced=["x"]), P())):
        a, b = src.to_layout(1, MESH), dst.to_layout(1, MESH)
        plan = plan_reshard(a, b, (32,), "int32", links=small)
        assert plan.received.total == plan_reshard(a, b, (32,), "int32").received.total
        oracle.run(plan)


@pytest.mark.parametrize(("partial", "shape"), [(False, (8, 12)), (False, (9, 5)), (True, (8, 12))])
def test_no_links_are_worth_a_byte_more(partial, shape):
    # Whatever the links, the bytes are the least; a detour is taken only where it moves no more.
    links = [{n: Link(0, link.bandwidth) for n, link in found.items()} for found in (ASCENDING, DESCENDING)]
    for case in list(all_transitions(mesh_of(2, 2, 2), shape, partial))[:: 193 if partial else 83]:
        for found in links:
            plan = plan_reshard(*case, "int8", links=found)
            assert plan.received.total == (oracle.least_total(plan) if partial else sum(oracle.missing_bytes(plan)))
            assert plan.time <= plan_reshard(*case, "int8", links=SLOW).time
            oracle.run(plan)


SIX = mesh_of(2, 3)
FOUR = DeviceMesh((4,), ("u",), [CPU(i) for i in (1, 3, 7, 9)])
HALO = Cut("y", halo=1)
AROUND = [
    (Layout(SIX, [None], ["x"]), Layout(SIX, [HALO]), "reduce_scatter; all_gather; halo_exchange"),
    (Layout(SIX, ["y"], ["x"]), Layout(SIX, [HALO]), "all_reduce; halo_exchange"),
    (Layout(SIX, ["y"], ["x"]), Layout(SIX, [Cut("y", halo=(1, 0), edge="pad")]), "all_reduce; halo_exchange"),
    (Layout(SIX, [HALO], ["x"]), Layout(SIX, ["x"]), "slice; reduce_scatter; all_gather"),
    (Layout(SIX, [HALO]), Layout(SIX, [None], ["x"]), "slice; all_gather; fill"),
    (Layout(SIX, ["y"], ["x"]), Layout(FOUR, [Cut("u", halo=1)]), "reduce_scatter; halo_exchange"),
    (Layout(SIX, ["y"]), Layout(FOUR, [Cut("u:(1)2", halo=1)], ["u:(2)2"]), "exchange; fill; halo_exchange"),
]


@pytest.mark.parametrize(("src", "dst", "want"), AROUND)
def test_halos_are_dropped_before_a_reduction_and_made_after_it(src, dst, want):
    plan = plan_reshard(src, dst, (12,), "int8")
    assert "; ".join(step.kind for step in plan.steps) == want
    oracle.run(plan)


@pytest.mark.parametrize("edge", ["clip", "pad"])
def test_levels_of_links_do_not_disturb_a_halo(edge):
    mesh = mesh_of(2, 3, 2)
    src = Layout(mesh, [Cut("y", halo=1, edge=edge), None], ["x", "z"])
    dst = Layout(mesh, [Cut("y", halo=1, edge=edge), None])
    plan = plan_reshard(src, dst, (12, 32), "int8", links={"x": Link(0, 1e9), "z": Link(0, 4e11)})
    assert plan.received.total == plan_reshard(src, dst, (12, 32), "int8").received.total
    oracle.run(plan)


def test_an_uneven_gather_is_not_cut_into_levels():
    # Of 9 rows the halves of a half are no quarters: what is gathered first would not be what is needed.
    mesh, links = mesh_of(2, 2, 2), {"x": Link(0, 4e11), "y": Link(0, 2e10), "z": Link(0, 1e9)}
    for dims in ([("x", "y", "z")], [("x", "z", "y")], [("z", "y")]):
        for size in range(1, 18):
            src, dst = Layout(mesh, dims), Layout(mesh, [None])
            plan = plan_reshard(src, dst, (size,), "int8", links=links)
            assert plan.received.each.tolist() == oracle.missing_bytes(plan)
            if len(plan.steps) > 1:
                assert {step.kind for step in plan.steps} == {"all_gather"}
            oracle.run(plan)


def test_the_time_of_a_plan_is_that_of_its_steps():
    plan = plan_reshard(Layout(MESH, [None], ["x", "y"]), Layout(MESH, [None]), (SIZE,), "int8", links=MACHINES)
    assert plan.time == pytest.approx(sum(step.time for step in plan.steps))
    part = SIZE / 8 * 7  # what a device receives over the fast links, each way
    slow = SIZE / 8  # what it receives over the slow link, in two rounds of half each
    assert plan.time == pytest.approx(2 * (1e-6 + part / 4e11) + 2 * 1e-5 + slow / 1e9, rel=1e-6)
