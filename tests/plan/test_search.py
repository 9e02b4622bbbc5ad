"""The cheapest candidate depends on the links; what it moves does not."""

from typing import Any

import pytest

from shardwise import Cut, Layout, Link, P, plan_reshard
from tests.plan import oracle
from tests.plan.cases import mesh_of

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


def test_the_time_of_a_plan_is_that_of_its_steps():
    plan = plan_reshard(Layout(MESH, [None], ["x", "y"]), Layout(MESH, [None]), (SIZE,), "int8", links=MACHINES)
    assert plan.time == pytest.approx(sum(step.time for step in plan.steps))
    part = SIZE / 8 * 7  # what a device receives over the fast links, each way
    slow = SIZE / 8  # what it receives over the slow link, in two rounds of half each
    assert plan.time == pytest.approx(2 * (1e-6 + part / 4e11) + 2 * 1e-5 + slow / 1e9, rel=1e-6)


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
    # Both contributions of each element may come from elsewhere.
    "reduce and transpose": (
        ["y", None],
        "x",
        [None, "y"],
        "",
        [("reduce_scatter over x, y", [2 * WHOLE / 4 / 2]), ("all_gather over x", [WHOLE / 4 / 2])],
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
