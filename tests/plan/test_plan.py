"""Plans move the least that can do it, the same in every process, at a cost that does not grow with the mesh."""

import subprocess
import sys
import tracemalloc
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings

from shardwise import (
    CPU,
    ArgumentError,
    BindingError,
    Cut,
    DeviceMesh,
    Layout,
    Link,
    MeshError,
    P,
    PlanError,
    Sharded,
    cache_info,
    clear_caches,
    mesh_context,
    plan_reshard,
)
from shardwise.plan import staging
from tests.function_calls import calls_of
from tests.plan import oracle
from tests.plan.cases import Transition, all_transitions, mesh_of, transitions

MESH = mesh_of(2, 3)
BIG = mesh_of(64, 64, 256)
MORE = 5 * settings().max_examples  # for what the whole library rests on


def check(case: Transition) -> None:
    """Check bytes, bound and values of one transition without partial values."""
    plan = plan_reshard(*case, "int32")
    want, devices = oracle.missing_bytes(plan), oracle.names(plan)
    assert [plan.received.of(d) for d in devices] == want
    assert [plan.lower_bound.of(d) for d in devices] == want
    assert plan.received.each.tolist() == plan.lower_bound.each.tolist() == want
    assert plan.received.total == plan.sent.total == sum(want)
    oracle.run(plan)


# -- the bound, without partial values ---------------------------------------------------------------

SMALL = [
    ((2, 3), (12,)),
    ((2, 3), (7,)),
    ((2, 3), (12, 6)),
    ((2, 3), (5, 7)),
    ((2, 3), (6, 4, 12)),
    ((2, 3), (5, 2, 3)),
]
SMALL += [((2, 2, 2), (16,)), ((2, 2, 2), (7,)), ((2, 2, 2), (8, 16)), ((2, 2, 2), (5, 6))]


@pytest.mark.parametrize(("mesh", "shape"), SMALL)
def test_every_transition_of_a_small_mesh_moves_what_is_missing_and_no_more(mesh, shape):
    for case in all_transitions(mesh_of(*mesh), shape):
        check(case)


@pytest.mark.long
@pytest.mark.parametrize("shape", [(8, 8, 8), (5, 3, 2)])
def test_every_transition_of_three_dims_and_three_axes_moves_what_is_missing_and_no_more(shape):
    for case in all_transitions(mesh_of(2, 2, 2), shape):
        check(case)


@pytest.mark.parametrize("shape", [(8, 8, 8), (5, 3, 2)])
def test_some_transitions_of_three_dims_and_three_axes_move_what_is_missing_and_no_more(shape):
    for case in list(all_transitions(mesh_of(2, 2, 2), shape))[::41]:
        check(case)


@settings(max_examples=MORE)
@given(transitions())
def test_each_device_receives_exactly_what_it_lacks(case: Transition):
    check(case)


@settings(max_examples=MORE)
@given(transitions(one_mesh=True))
def test_each_device_receives_exactly_what_it_lacks_on_one_mesh(case: Transition):
    check(case)


@given(transitions(partial=True))
def test_sent_received_and_traffic_are_the_transfers(case: Transition):
    plan = plan_reshard(*case, "int32")
    devices = oracle.names(plan)
    listed = {d: [t for step in plan.transfers(d) for t in step] for d in devices}
    received = [4 * sum(t.size for t in listed[d] if t.target == d) for d in devices]
    sent = [4 * sum(t.size for t in listed[d] if t.source == d) for d in devices]
    assert received == [plan.received.of(d) for d in devices] == plan.received.each.tolist()
    assert sent == [plan.sent.of(d) for d in devices] == plan.sent.each.tolist()
    traffic = plan.traffic()
    assert traffic.sum(axis=1).tolist() == sent
    assert traffic.sum(axis=0).tolist() == received
    assert not traffic.diagonal().any()
    assert plan.received.max == max(received)
    assert plan.received.mean == pytest.approx(sum(received) / len(devices))


# -- corners -----------------------------------------------------------------------------------------

ONE = DeviceMesh((1, 1), ("x", "y"))
CORNERS = {
    "zero-size": [(MESH, (0,)), (MESH, (0, 6)), (MESH, (4, 0, 3))],
    "0-d": [(MESH, ()), (ONE, ())],
    "more devices than elements": [(MESH, (1,)), (MESH, (2, 1)), (mesh_of(5, 4), (3,))],
    "axes of size 1": [(mesh_of(1, 3), (4, 5)), (mesh_of(3, 1, 2), (4, 5)), (ONE, (4, 5))],
    "no axes": [(DeviceMesh.single(CPU(0)), (3, 4))],
}


@pytest.mark.parametrize("name", CORNERS)
def test_corners_are_cases_like_any_other(name):
    for mesh, shape in CORNERS[name]:
        for case in all_transitions(mesh, shape):
            check(case)
        for case in all_transitions(mesh, shape, partial=True):
            plan = plan_reshard(*case, "int32")
            assert plan.received.total == plan.lower_bound.total == oracle.least_total(plan)
            oracle.run(plan)


def test_an_empty_tensor_goes_through_the_same_layouts_and_moves_nothing():
    plan = plan_reshard(Layout(MESH, ["x", None]), Layout(MESH, [None, "x"]), (0, 6), "int32", memory_limit=0)
    assert [step.kind for step in plan.steps] == ["all_to_all"]
    assert (plan.received.total, plan.staging_bytes, plan.transfers(3)) == (0, 0, [[]])


def test_a_device_of_a_mesh_without_axes_may_take_part():
    one, two = DeviceMesh.single(CPU(0)), DeviceMesh((2,), ("x",))
    check(Transition(Layout(one, [None]), Layout(two, ["x"]), (5,)))
    check(Transition(Layout(two, ["x"]), Layout(one, [None]), (5,)))


# -- two meshes ----------------------------------------------------------------------------------------


def test_between_meshes_devices_are_known_as_devices():
    a, b = DeviceMesh((2,), ("x",), [CPU(0), CPU(1)]), DeviceMesh((2,), ("y",), [CPU(1), CPU(2)])
    plan = plan_reshard(Layout(a, ["x"]), Layout(b, ["y"]), (4,), "int8")
    assert plan.transfers(CPU(1)) == [[(CPU(0), CPU(1), ((0, 2),)), (CPU(1), CPU(2), ((2, 4),))]]
    assert [plan.received.of(CPU(i)) for i in range(3)] == [0, 2, 2]


def test_a_permuted_mesh_is_planned_in_the_axes_of_the_source():
    turned = BIG.transpose("z", "x", "y")
    plan = plan_reshard(Layout(BIG, ["z", None]), Layout(turned, [None, "z"]), (256, 256), "int8")
    assert [str(step) for step in plan.steps] == ["all_to_all over z"]
    assert plan.received.of(CPU(70000)) == 255
    same = plan_reshard(Layout(BIG, ["z", "x"]), Layout(turned, ["z", "x"]), (256, 256), "int8")
    assert same.steps == ()


# -- a plan is a value ---------------------------------------------------------------------------------

DIGESTS = """
from shardwise import CPU, DeviceMesh, Layout, plan_reshard
from tests.plan.cases import all_transitions, mesh_of

cases = [*list(all_transitions(mesh_of(2, 3), (5, 7), partial=True))[::5], *all_transitions(mesh_of(2, 3), (5, 7))]
other = DeviceMesh((3, 2), ("u", "v"), [CPU(i) for i in (4, 0, 9, 2, 7, 5)])
cases += [(Layout(mesh_of(2, 3), ["x", "y"]), Layout(other, ["v", None], ["u"]), (5, 7))]
for case in cases:
    plan = plan_reshard(*case, "int32", links=None)
    devices = case[0].mesh.devices if case[1].mesh is other else range(6)
    print(plan.digest)
    print([plan.transfers(d) for d in devices])
"""


def test_a_plan_is_the_same_in_every_process():
    found = [
        subprocess.run(
            [sys.executable, "-c", DIGESTS],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "77")
    ]
    assert found[0].count("\n") > 300
    assert found[0] == found[1] == found[2]


def test_digests_tell_plans_apart():
    layouts = [Layout(MESH, ["x"]), Layout(MESH, ["y"]), Layout(MESH, [None])]
    cases = [(a, b, (n,), t) for a, b, n, t in product(layouts, layouts, (6, 12), ("int8", "int32"))]
    assert len({plan_reshard(*case).digest for case in cases}) == len(cases)
    limited = plan_reshard(layouts[0], layouts[2], (12,), "int8", memory_limit=2)
    assert limited.digest != plan_reshard(layouts[0], layouts[2], (12,), "int8").digest


def test_a_repeated_plan_is_the_same_object():
    src, dst = Layout(MESH, ["x", "y"]), Layout(MESH, ["y", "x"])
    plan = plan_reshard(src, dst, (6, 6), "int32")
    assert plan_reshard(src, dst, (6, 6), "int32") is plan
    assert plan_reshard(src, dst, [6, 6], np.int32, links={}) is plan
    with mesh_context(MESH):
        assert plan_reshard(P("x", "y"), P("y", "x"), (6, 6), "int32") is plan


def test_the_same_request_in_other_words_is_the_same_plan():
    src, dst = Layout(MESH, ["x", "y"]), Layout(MESH, ["y", "x"])
    plan = plan_reshard(src, dst, (6, 12), "int32")
    shapes: list[Any] = [(6, 12), [6, 12], (np.int64(6), 12), np.array([6, 12]), tuple(np.array([6, 12]))]
    dtypes: list[Any] = ["int32", np.int32, np.dtype("int32"), np.dtype("int32").newbyteorder("="), "i4"]
    for _ in range(2):  # what is found at once the second time means the same
        for shape, dtype, mesh in product(shapes, dtypes, (None, MESH)):
            assert plan_reshard(src, dst, shape, dtype, mesh=mesh) is plan
        for shape in shapes:
            assert plan_reshard(P("x", "y"), P(["y"], "x"), shape, "int32", mesh=MESH) is plan
            assert plan_reshard(src, P("y", ["x"]), shape, "int32", mesh=MESH) is plan
            assert plan_reshard([Sharded(0), Sharded(1)], [Sharded(1), Sharded(0)], shape, "int32", mesh=MESH) is plan


def test_a_layout_of_our_own_may_change_its_mind():
    class Either:
        def __init__(self, layout: Layout) -> None:
            self.layout = layout

        def to_layout(self, rank: int) -> Layout:
            return self.layout

    one, other = Layout(MESH, ["x"]), Layout(MESH, ["y"])
    either = Either(one)
    assert plan_reshard(either, one, (6,), "int8", mesh=MESH).src is one
    either.layout = other
    assert plan_reshard(either, one, (6,), "int8", mesh=MESH).src is other


def test_what_is_cleared_is_planned_again():
    src, dst = Layout(MESH, ["x", "y"]), Layout(MESH, ["y", "x"])
    plan = plan_reshard(src, dst, (6, 6), "int8")
    clear_caches()
    again = plan_reshard(src, dst, (6, 6), "int8")
    assert again is not plan
    assert (again, again.digest) == (plan, plan.digest)


def test_no_more_requests_are_remembered_than_a_cache_has_entries():
    src, dst = Layout(MESH, ["x"]), Layout(MESH, [None])
    clear_caches()
    for n in range(1, 5000):
        plan_reshard(src, dst, (n,), "int8")
    rows = [row for row in cache_info().caches if row.name.startswith("plan.plan.")]
    assert len(rows) == 2
    assert all(row.entries == row.most_entries == 4096 for row in rows)
    clear_caches()
    assert cache_info().entries == 0


def test_a_spec_means_the_mesh_of_its_context():
    for mesh in (mesh_of(2), mesh_of(4)):
        with mesh_context(mesh):
            assert plan_reshard(P("x"), P(), (8,), "int8").src.mesh is mesh


def test_a_spec_means_the_mesh_that_is_given():
    with mesh_context(mesh_of(2)):
        assert plan_reshard(P("x"), P(), (8,), "int8", mesh=mesh_of(4)).src.mesh is mesh_of(4)
    with pytest.raises(ArgumentError, match=r"^a DeviceMesh was expected, got 3\.$"):
        plan_reshard(P("x"), P(), (8,), "int8", mesh=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(MeshError, match=r"pass mesh=DeviceMesh"):
        plan_reshard(P("x"), P(), (8,), "int8")


# -- cost ----------------------------------------------------------------------------------------------

TYPICAL = [
    (["x", None], [None, "x"], ()),
    (["x", None], [None, None], ()),
    ([("x", "y"), None], ["x", "y"], ()),
    (["x", "y"], ["y", "x"], ()),
    (["y", None], [("x", "z"), "y"], ()),
    ([Cut("x", halo=(1, 1)), None], [Cut("x", halo=(1, 2)), "y"], ()),
    ([None, None], [None, None], ("x",)),
    (["y", None], [None, None], ("x",)),
    ([None, None], ["x", None], ("x", "y", "z")),
]


def calls(src: Layout, dst: Layout, shape: tuple[int, ...]) -> tuple[int, int]:
    """How many Python calls a cold plan takes, and how many bytes it leaves allocated at most."""
    plan_reshard(src, dst, tuple(n * 2 for n in shape), "int8")
    tracemalloc.start()
    try:
        count = calls_of(lambda: plan_reshard(src, dst, shape, "int8")) - 1  # this one
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return count, peak


@pytest.mark.parametrize("case", TYPICAL, ids=str)
def test_a_plan_takes_few_calls_and_one_when_it_is_asked_for_again(case):
    dims, new, pending = case
    clear_caches()
    src, dst, shape = Layout(BIG, dims, pending), Layout(BIG, new), tuple(2**20 for _ in dims)
    cold, _ = calls(src, dst, shape)
    again, _ = calls(src, dst, shape)
    is_simple = not pending and not src.has_halo
    assert cold <= (150 if is_simple else 650)
    assert again == 1


def test_nobody_works_out_chunks_that_are_not_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(staging, "_reach_of", lambda *args: asked.append(args) or ((4,), 1))
    for case in all_transitions(mesh_of(2, 2), (64, 64), partial=True):
        plan = plan_reshard(*case, "float64")
        assert plan.rounds + plan.time + plan.estimate + plan.received.total >= 0
    assert not asked
    plan = plan_reshard(X, WHOLE, (6000,), "int8")
    assert (plan.staging_bytes, len(asked)) == (4, 1)
    clear_caches()  # of that plan, which remembers it


@pytest.mark.parametrize("case", TYPICAL, ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_a_million_devices_cost_what_eight_cost(case, turned):
    dims, new, pending = case
    found = []
    for mesh in (mesh_of(2, 2, 2), BIG):
        target = mesh.transpose("z", "x", "y") if turned else mesh
        shape = tuple(mesh.num_devices * 8 for _ in dims)
        found.append(calls(Layout(mesh, dims, pending), Layout(target, new), shape))
    (few, _), (many, peak) = found
    assert many <= 1.5 * few
    assert peak < 2_000_000  # bytes: a list of all devices has 8 MiB, and the table of a cache may grow just now


COLLECTIVES = [
    (["z", None], [None, "z"], ()),
    (["z", None], [None, None], ()),
    ([("x", "z"), None], ["x", "z"], ()),
    (["z", "x"], ["x", "z"], ()),
    (["x", "y"], ["x", "y"], ("z",)),
    (["x", None], [("x", "z"), None], ("z",)),
    ([Cut("x"), None], [Cut("x", halo=(1, 1)), None], ()),
]


@pytest.mark.parametrize("case", COLLECTIVES, ids=str)
def test_one_device_of_a_million_knows_its_transfers(case):
    dims, new, pending = case
    plan = plan_reshard(Layout(BIG, dims, pending), Layout(BIG, new), (16384, 16384), "int8")
    moved = [t for step in plan.transfers(77_777) for t in step]
    assert plan.received.of(77_777) == sum(t.size for t in moved if t.target == 77_777)
    assert plan.sent.of(77_777) == sum(t.size for t in moved if t.source == 77_777)
    assert 2 <= len(moved) <= 1100


# -- bad input -----------------------------------------------------------------------------------------

X, WHOLE = Layout(MESH, ["x"]), Layout(MESH, [None])
BAD = [
    (
        lambda: plan_reshard(Layout(MESH, ["x", None]), WHOLE, (6,), "int8"),
        BindingError,
        "the layout [x|-] has 2 dims, the tensor has 1.",
    ),
    (
        lambda: plan_reshard(Layout(MESH, [Cut("x", offsets=(0, 1, 5))]), WHOLE, (6,), "int8"),
        BindingError,
        "the offsets (0, 1, 5) of dim 0 must end at its size 6, they end at 5.",
    ),
    (
        lambda: plan_reshard(X, Layout(MESH, [Cut("y", halo=3)]), (6,), "int8"),
        BindingError,
        "the low halo of dim 0 is 3 wide, but a neighbour's shard has only 2 of the 6 elements.\n"
        "  use a halo of at most 2, or fewer devices.",
    ),
    (
        lambda: plan_reshard(X, WHOLE, (-1,), "int8"),
        BindingError,
        "the sizes in a shape are 0 or more, got -1 in (-1,).",
    ),
    (
        lambda: plan_reshard(X, WHOLE, (True,), "int8"),
        ArgumentError,
        "the sizes in a shape are ints, got True in (True,).",
    ),
    (lambda: plan_reshard(X, WHOLE, cast("Any", 6), "int8"), ArgumentError, "a shape is a tuple of ints, got 6."),
    (
        lambda: plan_reshard(X, WHOLE, (6,), "int7"),
        ArgumentError,
        "a dtype such as 'float32' was expected, got 'int7'.",
    ),
    (lambda: plan_reshard(X, WHOLE, (6,), None), ArgumentError, "a dtype such as 'float32' was expected, got None."),
    (
        lambda: plan_reshard(Layout(MESH, [None], ["x"], "bxor"), WHOLE, (6,), "float32"),
        BindingError,
        "reduction 'bxor' is not defined for float32.\n  reductions of float32: sum, avg, min, max, prod",
    ),
    (
        lambda: plan_reshard(X, WHOLE, (6,), "int8", memory_limit=True),
        ArgumentError,
        "memory_limit is a number of bytes, got True.",
    ),
    (
        lambda: plan_reshard(X, WHOLE, (6,), "int8", memory_limit=1.5),  # type: ignore[arg-type]
        ArgumentError,
        "memory_limit is a number of bytes, got 1.5.",
    ),
    (
        lambda: plan_reshard(X, WHOLE, (6,), "int8", memory_limit=-1),
        PlanError,
        "memory_limit is 0 bytes or more, got -1.",
    ),
    (
        lambda: plan_reshard("x", WHOLE, (6,), "int8"),  # type: ignore[arg-type]
        ArgumentError,
        "a layout was expected, got 'x'.",
    ),
    (
        lambda: plan_reshard(X, WHOLE, (6,), "int8").received.of(6),
        PlanError,
        "the plan has devices 0 to 5, got 6.",
    ),
    (
        lambda: plan_reshard(X, WHOLE, (6,), "int8").transfers(CPU(0)),
        PlanError,
        "the plan has devices 0 to 5, got CPU(0).",
    ),
    (
        lambda: plan_reshard(X, WHOLE, (6,), "int8").sent.of(True),
        PlanError,
        "the plan has devices 0 to 5, got True.",
    ),
    (
        lambda: plan_reshard(X, Layout(mesh_of(7), ["x"]), (6,), "int8").received.of(0),
        PlanError,
        "this plan goes between two meshes, where a device is given as a Device, got 0.\n"
        "  devices: CPU(0), CPU(1), CPU(2), CPU(3), ...",
    ),
    (
        lambda: plan_reshard(Layout(BIG, ["x"]), Layout(BIG, [None]), (64,), "int8").traffic(),
        PlanError,
        "a traffic matrix of 1048576 devices is too large; ask transfers(device) of some.",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), BAD)
def test_bad_input_is_refused_with_the_reason(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(text)


def test_what_was_planned_once_does_not_let_bad_input_pass():
    plan_reshard(X, X, (1,), "int8", memory_limit=1)
    bad: list[Any] = [((True,), 1), ((1.0,), 1), ((1,), True), ((1,), 1.0)]
    for shape, limit in bad:
        with pytest.raises(ArgumentError):
            plan_reshard(X, X, shape, "int8", memory_limit=limit)
    for shape in [(True,), (1.0,), (np.True_,), (Fraction(1),), [1.0], ([1],), 1]:
        for _ in range(2):
            plan_reshard(X, X, (1,), "int8")
            with pytest.raises(
                ArgumentError, match=r"^(the sizes in a shape are ints|a shape is a tuple of ints), got"
            ):
                plan_reshard(X, X, cast(Any, shape), "int8")
    for dtype in [None, "in8", ["int8"], 8]:
        with pytest.raises(ArgumentError, match=r"^a dtype such as 'float32' was expected, got "):
            plan_reshard(X, X, (1,), dtype)
    for mesh in [[MESH], "x", 1]:
        with pytest.raises(ArgumentError, match=r"^a DeviceMesh was expected, got "):
            plan_reshard(X, X, (1,), "int8", mesh=cast(Any, mesh))


def test_one_link_may_serve_all_axes():
    slow = plan_reshard(X, WHOLE, (600,), "int8", links=Link(0, 100))
    assert slow.time == pytest.approx(3.0)


def test_sums_over_devices_are_exact_beyond_what_numpy_holds() -> None:
    mesh = mesh_of(8)
    plan = plan_reshard(Layout(mesh, [("x",), ()]), Layout(mesh, [(), ()]), (2**30, 2**29), "float32")
    assert plan.received.total == sum(map(plan.received.of, range(8))) == plan.lower_bound.total == 7 * 2**61
    assert all(way.received_total >= 7 * 2**61 for way in plan.explain().alternatives)


def test_a_tensor_beyond_all_memory_is_refused() -> None:
    layout = Layout(mesh_of(2), [("x",), ()])
    text = r"a tensor has at most 2\*\*62 bytes, but \(2147483648, 2147483649\) of int8 has 4611686020574871552\."
    with pytest.raises(PlanError, match=text):
        plan_reshard(layout, layout.resolved(), (2**31, 2**31 + 1), "int8")
