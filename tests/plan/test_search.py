"""The cheapest candidate depends on the links; what it moves does not."""

from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from shardwise import CPU, Cut, DeviceMesh, Layout, Link, Links, P, plan_reshard
from shardwise.layout.placement import reductions_of
from tests.plan import oracle
from tests.plan.cases import all_transitions, mesh_of, sub_axis_layouts, transitions

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


# -- sub-axes that overlap without nesting -----------------------------------------------------------------


def check_transition(src: Layout, dst: Layout, shape: tuple[int, ...]) -> None:
    """Every element gets where it is needed, every contribution counts once, and the bytes are the least."""
    plan = plan_reshard(src, dst, shape, "int32")
    oracle.run(plan)
    for step in plan.steps:
        assert step.is_local or {d for group in step.groups for d in group} == set(range(src.mesh.num_devices))
    if src.partial or dst.partial:
        assert plan.received.total == plan.lower_bound.total == oracle.least_total(plan), (src, dst)
    else:
        lacking = oracle.missing_bytes(plan)
        assert plan.received.each.tolist() == plan.lower_bound.each.tolist() == lacking, (src, dst)


def pairs_of(mesh: DeviceMesh, rank: int, most: int, seed: int = 0) -> list[tuple[Layout, Layout]]:
    found = sub_axis_layouts(mesh, rank)
    rng = Random(seed)
    if len(found) ** 2 <= most:
        return list(product(found, found))
    return [(rng.choice(found), rng.choice(found)) for _ in range(most)]


def test_all_pairs_of_ways_to_see_six_devices():
    for src, dst in pairs_of(mesh_of(6), 1, 289):
        check_transition(src, dst, (12,))


@pytest.mark.parametrize("sizes", [(12,), (24,), (12, 2)], ids=str)
def test_some_pairs_of_ways_to_see_more_devices(sizes):
    for src, dst in pairs_of(mesh_of(*sizes), 1, 12):
        check_transition(src, dst, (13,))


@pytest.mark.long
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("sizes", [(6,), (12,), (24,), (12, 2), (6, 6), (6, 2, 2)], ids=str)
def test_many_pairs_of_ways_to_see_more_devices(sizes, rank):
    for src, dst in pairs_of(mesh_of(*sizes), rank, 1200, seed=1):
        check_transition(src, dst, (12, 5)[:rank])


def test_a_pending_sum_gets_its_elements_from_where_they_are():
    mesh = mesh_of(12, 2)
    plan = plan_reshard(Layout(mesh, ["x:(1)3"]), Layout(mesh, ["x:(2)3"], ["x:(1)2", "x:(6)2", "y"]), (24,), "float32")
    assert plan.received.total == plan.lower_bound.total == 32
    oracle.run(plan)


CARRIED = [("bfloat16", "sum"), ("float16", "avg"), ("float8_e4m3fn", "prod")]


@pytest.mark.parametrize(("dtype", "op"), CARRIED)
def test_what_is_added_up_in_two_hops_is_float32_in_between(dtype, op):
    src, dst = Layout(MESH, [None], ["x", "y"], op), Layout(MESH, [None])
    plan = plan_reshard(src, dst, (SIZE,), dtype, links=MACHINES)
    item = plan.dtype.itemsize
    assert [str(step) for step in plan.steps] == ["reduce_scatter over y", "all_reduce over x", "all_gather over y"]
    assert [step.widths for step in plan.steps] == [(item, 4), (4, item), (item, item)]
    part = SIZE // 8  # of each of 8 devices, of which one in the other machine has the same
    each = [7 * part * item, part // 2 * 4 + part // 2 * item, 7 * part * item]
    assert [step.received.of(3) for step in plan.steps] == each
    assert [step.sent.of(3) for step in plan.steps] == each
    assert [sum(step.estimates) for step in plan.steps] == each
    assert plan.received.total == plan.traffic().sum() == 16 * sum(each)
    assert plan.steps[1].staging_bytes == part // 2 * 4 * 2


def test_the_largest_of_small_floats_are_not_carried_as_float32():
    src, dst = Layout(MESH, [None], ["x", "y"], "max"), Layout(MESH, [None])
    assert {step.widths for step in plan_reshard(src, dst, (SIZE,), "bfloat16", links=MACHINES).steps} == {None}


@given(transitions(partial=True))
def test_without_links_nothing_is_added_up_twice(case):
    ops = {layout.reduce_op for layout in (case.src, case.dst)} - {None}
    dtype = "float16" if ops <= {*reductions_of(np.dtype("float16"))} else "int16"
    if not ops <= {*reductions_of(np.dtype(dtype))}:  # averages of bits
        return
    plan = plan_reshard(case.src, case.dst, case.shape, dtype)
    assert sum(move.reduces for step in plan.steps for move in step.moves) <= 1
    assert {step.widths for step in plan.steps} <= {None}


# -- the steps of named transitions, and what a device is estimated to receive in each -----------------------

GRID = mesh_of(2, 4)
WIDE = Cut("y", halo=(1, 1))
WHOLE = 16 * 16
NAMED: dict[str, tuple[Any, Any, list[tuple[str, list[float]]]]] = {
    # Half of a half: the other half of the columns of its own rows stays.
    "transpose": (["x", None], [None, "x"], [("all_to_all over x", [WHOLE / 2 / 2])]),
    "gather": ([("x", "y"), None], [None, None], [("all_gather over x, y", [WHOLE * 7 / 8])]),
    "slice": ([None, None], ["y", "x"], [("slice over y, x", [])]),
    "other axis": (["x", None], ["y", None], [("exchange over x, y", [WHOLE / 4])]),
    "halo": (["y", None], [WIDE, None], [("halo_exchange over y", [2 * 16])]),
    "from a halo": ([WIDE, None], [None, None], [("exchange over y", [WHOLE * (1 - 6 / 16)])]),
}
PENDING: dict[str, tuple[Any, str, Any, str, list[tuple[str, list[float]]]]] = {
    # Two devices share each element: half of it from the other one, and half handed back.
    "all reduce": ([None, None], "x", [None, None], "", [("all_reduce over x", [WHOLE / 2, WHOLE / 2])]),
    "reduce scatter": ([None, None], "x", ["x", None], "", [("reduce_scatter over x", [WHOLE / 2])]),
    "reduce and slice": (
        [None, None],
        "x",
        ["y", None],
        "",
        [("reduce_scatter over x, y", [WHOLE / 4 / 2]), ("all_gather over x", [WHOLE / 4 / 2])],
    ),
    # A quarter of the elements has a contribution where it is needed; of the others both come from elsewhere.
    "reduce and transpose": (
        ["y", None],
        "x",
        [None, "y"],
        "",
        [("reduce_scatter over x, y", [1.75 * WHOLE / 4 / 2]), ("all_gather over x", [WHOLE / 4 / 2])],
    ),
    "part of it": ([None, None], "xy", ["y", None], "x", [("reduce_scatter over y", [3 * WHOLE / 4])]),
    "become pending": (["x", None], "", [None, None], "x", [("fill over x", [])]),
    "gather and become pending": (
        ["x", None],
        "",
        [None, None],
        "y",
        [("all_gather over x", [WHOLE / 4]), ("fill over y", [])],
    ),
    "turn and become pending": (["y", None], "", ["x", None], "y", [("fill over y", [])]),
}


@pytest.mark.parametrize("itemsize", [1, 4])
@pytest.mark.parametrize("name", [*NAMED, *PENDING])
def test_steps_and_their_estimates(name: str, itemsize: int) -> None:
    if name in NAMED:
        (a, b, want), pending, fresh = NAMED[name], "", ""
    else:
        a, pending, b, fresh, want = PENDING[name]
    plan = plan_reshard(Layout(GRID, a, list(pending)), Layout(GRID, b, list(fresh)), (16, 16), f"int{8 * itemsize}")
    assert [(str(s), [e / itemsize for e in s.estimates]) for s in plan.steps] == want
    for step in plan.steps:
        # A round takes the latency once, and the bytes over links of one bandwidth.
        assert step.time == pytest.approx(sum(1e-5 + e / 25e9 for e in step.estimates))


@pytest.mark.parametrize(
    ("pending", "fresh", "op", "want"),
    [
        ("", "", "sum", [("", "", "")]),
        ("x", "", "sum", [("x", "", ""), ("x", "", "y")]),
        ("xy", "", "sum", [("xy", "", "")]),
        ("", "y", "sum", [("", "y", "")]),
        ("x", "x", "sum", [("", "", "x")]),  # nothing to do but to keep it
        ("x", "y", "sum", [("x", "y", "")]),
        ("xy", "x", "sum", [("y", "", "x"), ("xy", "x", "")]),
        ("x", "xy", "sum", [("", "y", "x"), ("x", "xy", "")]),
        ("", "y", "avg", [("", "", "")]),  # the mean of equal copies is the copy
        ("x", "", "avg", [("x", "", ""), ("x", "", "y")]),
        ("x", "x", "avg", [("", "", "x")]),
    ],
)
def test_the_ways_to_treat_pending_axes(pending: str, fresh: str, op: str, want: list[tuple[str, str, str]]) -> None:
    src, dst = Layout(GRID, [None], list(pending), op), Layout(GRID, [None], list(fresh), op)
    search = plan_reshard(src, dst, (8,), "float32").search
    found = [tuple("".join(map(str, axes)) for axes in (o.pending, o.fresh, o.batch)) for o in search.options(src, dst)]
    assert found == want


def test_different_reductions_keep_nothing() -> None:
    src, dst = Layout(GRID, [None], ["x"], "max"), Layout(GRID, [None], ["x"], "sum")
    first = next(iter(plan_reshard(src, dst, (8,), "float32").search.options(src, dst)))
    assert ([*map(str, first.pending)], [*map(str, first.fresh)], first.batch) == (["x"], ["x"], ())


def test_what_needs_no_moving_has_no_steps() -> None:
    for dims in ([None], ["x"], [("y", "x")], [Cut("y", halo=1)]):
        layout = Layout(GRID, dims)
        assert plan_reshard(layout, layout, (8,), "int8").steps == ()


def test_between_meshes_everything_is_one_exchange() -> None:
    new = mesh_of(16)
    far = plan_reshard(Layout(GRID, ["x"]), Layout(new, ["x"]), (32,), "int8")
    assert [step.kind for step in far.steps] == ["exchange"]
    assert far.steps[0].time == pytest.approx(1e-5 + far.steps[0].estimates[0] / 25e9)
