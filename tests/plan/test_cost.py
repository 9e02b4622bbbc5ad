"""Links: what they cost, which of them a group runs over, and what is refused."""

import pytest

from shardwise import ArgumentError, Layout, LayoutError, Link, Links, PlanError, plan_reshard
from shardwise.plan.cost import move_time
from tests.plan.cases import mesh_of

MESH = mesh_of(2, 8)
SLOW, FAST = Link(1e-4, 1e9), Link(1e-6, 1e11)
X, WHOLE = Layout(MESH, ["x"]), Layout(MESH, [None])


def test_a_round_takes_one_latency_and_the_bytes_of_each_link():
    # 16 members: of the 15 others, 8 are across the slow link and 7 within it.
    levels = [(2, SLOW), (8, FAST)]
    assert move_time(levels, 15e9) == pytest.approx(1e-4 + 8.0 + 7 / 100)
    assert move_time([(8, FAST)], 1e11) == pytest.approx(1e-6 + 1)
    assert move_time([], 10) == 0


def test_each_further_message_takes_its_overhead():
    # 15 messages, of which 8 are across the slow link: 14 further ones, spread as the peers are.
    slow, fast = Link(1e-4, 1e9, 3e-5), Link(1e-6, 1e11, 1.5e-6)
    overhead = 14 * (8 * 3e-5 + 7 * 1.5e-6) / 15
    assert move_time([(2, slow), (8, fast)], 0) == pytest.approx(1e-4 + overhead)
    assert move_time([(4, slow)], 1e9) == pytest.approx(1e-4 + 2 * 3e-5 + 1)
    assert move_time([(4, slow)], 1e9, messages=1) == pytest.approx(1e-4 + 1)
    assert move_time([(2, slow)], 1e9) == pytest.approx(1e-4 + 1)


def test_a_step_takes_the_links_of_its_axes():
    links = {"x": SLOW, "y": FAST}
    whole, halves = Layout(MESH, [None]), Layout(MESH, ["x"])
    assert plan_reshard(halves, whole, (16000,), "int8", links=links).time == pytest.approx(1e-4 + 8000 / 1e9)
    eighths = plan_reshard(Layout(MESH, ["y"]), whole, (16000,), "int8", links=links)
    assert eighths.time == pytest.approx(1e-6 + 14000 / 1e11)


def test_links_are_found_slowest_first_and_default_where_none_is_named():
    links = Links({"y:(1)2": SLOW, "y:(2)4": FAST}, default=Link(0, 5e10))
    axes = [MESH.axis("y"), MESH.axis("x")]
    assert links.on(MESH, axes) == [(2, SLOW), (2, Link(0, 5e10)), (4, FAST)]
    assert links.on(MESH, [MESH.axis("y:(2)2")]) == [(2, FAST)]
    assert links.on(MESH, [MESH.axis("y:(1)4")]) == [(2, SLOW), (2, FAST)]


def test_links_are_values():
    assert Links({"x": SLOW, "y": FAST}) == Links({"y": FAST, "x": SLOW})
    assert hash(Links({"x": SLOW, "y": FAST})) == hash(Links({"y": FAST, "x": SLOW}))
    assert Links.of(None) == Links() == Links.of(Link())
    assert Links.of(SLOW).default is SLOW
    assert Links.of({"x": SLOW}) == Links({"x": SLOW})
    assert Links.of(links := Links({"x": SLOW})) is links


BAD = [
    (
        lambda: Link(-1),
        PlanError,
        "a Link needs a latency of 0 or more and a bandwidth above 0, got -1 and 25000000000.0.",
    ),
    (lambda: Link(0, 0), PlanError, "a Link needs a latency of 0 or more and a bandwidth above 0, got 0 and 0."),
    (
        lambda: Link(0, float("nan")),
        PlanError,
        "a Link needs a latency of 0 or more and a bandwidth above 0, got 0 and nan.",
    ),
    (
        lambda: Link("fast"),  # type: ignore[arg-type]
        ArgumentError,
        "a Link is made of two numbers, seconds and bytes per second, got 'fast'.",
    ),
    (lambda: Link(True), ArgumentError, "a Link is made of two numbers, seconds and bytes per second, got True."),
    (
        lambda: Links({"x": 3}),  # type: ignore[dict-item]
        ArgumentError,
        "links map axis names to Link values, got 'x': 3.",
    ),
    (
        lambda: Links({0: SLOW}),  # type: ignore[dict-item]
        ArgumentError,
        "links map axis names to Link values, got 0: Link(latency=0.0001, bandwidth=1000000000.0).",
    ),
    (
        lambda: Links(default=3),  # type: ignore[arg-type]
        ArgumentError,
        "the default of links is a Link, got 3.",
    ),
    (
        lambda: plan_reshard(X, WHOLE, (8,), "int8", links=[SLOW]),  # type: ignore[arg-type]
        ArgumentError,
        "links are a Link, a mapping from axis to Link, or Links, got [Link(latency=0.0001, bandwidth=1000000000.0)].",
    ),
    (
        lambda: plan_reshard(X, WHOLE, (8,), "int8", links={"z": SLOW}),
        LayoutError,
        "unknown mesh axis 'z' in links.\n  mesh axes: x=2, y=8",
    ),
    (
        lambda: Links({"z": SLOW}).on(MESH, [MESH.axis("x")]),
        LayoutError,
        "unknown mesh axis 'z' in links.\n  mesh axes: x=2, y=8",
    ),
    (
        lambda: Links({"y": SLOW, "y:(1)2": FAST}).on(MESH, [MESH.axis("x")]),
        LayoutError,
        "mesh axis 'y' is used beside its own sub-axis in links: y, y:(1)2.",
    ),
    (
        lambda: plan_reshard(WHOLE, X, (8,), "int8", links={"z": SLOW}),
        LayoutError,
        "unknown mesh axis 'z' in links.\n  mesh axes: x=2, y=8",
    ),
    (
        lambda: plan_reshard(X, WHOLE, (8,), "int8", links={"y:(1)4": SLOW, "y:(2)4": FAST}),
        LayoutError,
        "sub-axes y:(1)4 and y:(2)4 overlap in links.\n"
        "  'y' has 8 positions; sub-axes used together must be disjoint factors of it.",
    ),
    (
        lambda: plan_reshard(X, WHOLE, (8,), "int8", links={"y:(1)3": SLOW}),
        LayoutError,
        "sub-axis 'y:(1)3' in links does not divide mesh axis 'y': 1 x 3 is no factor of 8.\n  mesh axes: x=2, y=8",
    ),
    (
        lambda: plan_reshard(X, WHOLE, (8,), "int8", links={"y": SLOW, "y:(1)2": FAST}),
        LayoutError,
        "mesh axis 'y' is used beside its own sub-axis in links: y, y:(1)2.",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), BAD)
def test_bad_links_are_refused_with_the_reason(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(text)


def test_between_two_meshes_axes_of_either_may_be_named():
    other = mesh_of(5).select("x", names=("u",))
    src, dst = Layout(MESH, ["x"]), Layout(other, ["u"])
    plan = plan_reshard(src, dst, (20,), "int8", links=Links({"y": SLOW, "u": FAST}, default=Link(0, 10)))
    assert plan.time == pytest.approx(0.4)  # which link joins two devices is not said by either mesh: the default
    with pytest.raises(LayoutError, match="unknown mesh axis 'w'"):
        plan_reshard(src, dst, (20,), "int8", links={"w": SLOW})


@pytest.mark.parametrize("compute", [True, "fast", None])
def test_compute_must_be_a_number(compute):
    with pytest.raises(ArgumentError, match="compute is a number of multiplications a second, got"):
        Links(compute=compute)


@pytest.mark.parametrize("compute", [0, -1.0, float("nan")])
def test_compute_must_be_above_0(compute):
    with pytest.raises(PlanError, match="above 0, got"):
        Links(compute=compute)
