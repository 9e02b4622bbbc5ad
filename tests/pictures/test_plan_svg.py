"""Plans as SVG and as text: who sends what to whom is what the transfers say."""

import tracemalloc
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given

from shardwise import Cut, DeviceMesh, Layout, Link, P, Plan, Transfer, picture, plan_reshard
from shardwise.pictures.traffic import MOST_SENDERS, rounds
from tests.pictures.scene import overlaps, read
from tests.plan.cases import Transition, mesh_of, transitions

MESH = DeviceMesh((2, 4), ("dp", "tp"))
BIG = DeviceMesh((64, 64, 256), ("x", "y", "z"))


def plan(src: P, dst: P, shape: tuple[int, ...], mesh: DeviceMesh = MESH, **more) -> Plan:
    return plan_reshard(src.to_layout(len(shape), mesh), dst.to_layout(len(shape), mesh), shape, "float32", **more)


@given(transitions(partial=True))
def test_the_matrices_add_up_to_the_traffic(case: Transition):
    found = plan_reshard(*case, "int16")
    devices = found.search.slots
    if devices.count > MOST_SENDERS:
        return
    scene = read(picture(found).svg)
    assert not list(overlaps(scene))
    slots = {str(devices.name(slot)): slot for slot in range(devices.count)}
    drawn = np.zeros((devices.count, devices.count), dtype=np.int64)
    for flow in scene.of("flow"):
        drawn[slots[flow.data["from"]], slots[flow.data["to"]]] += int(flow.data["bytes"])
        assert flow.title.startswith(f"{flow.data['from']} → {flow.data['to']}: ")
    assert np.array_equal(drawn, found.traffic())


@given(transitions(partial=True))
def test_every_plan_is_drawn_with_its_steps_and_layouts(case: Transition):
    found = plan_reshard(*case, "int16")
    drawn = picture(found)
    words = [word.text for word in read(drawn.svg).words]
    heads = [f"step {k + 1} of {len(found.steps)}: {step}" for k, step in enumerate(found.steps)]
    for head in (f"from {case.src}", *heads, *(f"to {step.after}" for step in found.steps)):
        assert head in " ".join(words)
        assert "".join(head.split()) in "".join(drawn.text.split())


@given(transitions(partial=True, one_mesh=True))
def test_a_group_that_is_drawn_alone_talks_to_nobody_else(case: Transition):
    mesh = case.src.mesh
    larger = DeviceMesh((MOST_SENDERS + 1, *mesh.mesh_shape), ("more", *mesh.axis_names))
    found = plan_reshard(case.src.to_mesh(larger), case.dst.to_mesh(larger), case.shape, "int8")
    for step in found.steps:
        drawn = rounds(step)
        for shown in drawn:
            assert {slot for pair in shown.flows for slot in pair} <= set(shown.slots)
        for slot in drawn[0].slots if drawn else ():
            received = sum(shown.bytes(source, slot) for shown in drawn for source in shown.slots)
            assert received == step.received.of(slot)


def test_one_group_stands_for_all():
    mesh = DeviceMesh((128, 8), ("dp", "tp"))
    found = plan(P("dp", "tp"), P("dp"), (1024, 1024), mesh)
    (shown,) = rounds(found.steps[0])
    assert shown.title == "one group of 8 devices, of 128"
    assert shown.slots == tuple(range(8))
    assert set(shown.flows) == {(a, b) for a in range(8) for b in range(8) if a != b}
    assert all(shown.bytes(*pair) == 8 * 128 * 4 for pair in shown.flows)


TEXT = """
[tp] -> [-]  int16[8] on dp=2, tp=4
step        over  to   receives  sends  staging  chunks   time
all_gather  tp    [-]      12 B   12 B     16 B       1  10 us
receives at most 12 B a device (the least possible), time 10 us

from [tp]
  0:2   2:4   4:6   6:8
┌─────┬─────┬─────┬─────┐
│ 0,4 │ 1,5 │ 2,6 │ 3,7 │
└─────┴─────┴─────┴─────┘

step 1 of 1: all_gather over tp
receives 12 B a device, sends 12 B, staging 16 B, 10 us
all 8 devices: B from row to column
  0 1 2 3 4 5 6 7
0 · 4 4 4 · · · ·
1 4 · 4 4 · · · ·
2 4 4 · 4 · · · ·
3 4 4 4 · · · · ·
4 · · · · · 4 4 4
5 · · · · 4 · 4 4
6 · · · · 4 4 · 4
7 · · · · 4 4 4 ·

to [-]
  0:8
┌─────┐
│ 0-7 │
└─────┘
"""


def test_a_plan_in_text():
    found = plan_reshard(Layout(MESH, ["tp"]), Layout(MESH, [None]), (8,), "int16")
    assert picture(found).text == TEXT.strip()


def test_rounds_of_an_all_reduce_are_told_apart():
    words = [word.text for word in read(picture(plan(P(unreduced=["dp", "tp"]), P(), (64,))).svg).words]
    assert "round 1 of 2, all 8 devices" in words
    assert "B from row to column, added up on arrival" in words
    assert "round 2 of 2, all 8 devices" in words
    assert "B from row to column" in words


def test_shares_are_listed():
    words = [word.text for word in read(picture(plan(P("tp", unreduced=["dp"]), P("dp"), (8, 4))).svg).words]
    assert "device 0: [0:2, 0:4]" in words
    assert "device 2: nothing" in words


def test_local_steps_say_that_nothing_is_sent():
    found = picture(plan(P(), P("dp"), (8,)))
    assert "every device has what it needs; nothing is sent" in {word.text for word in read(found.svg).words}
    assert "nothing to do" in picture(plan(P("dp"), P("dp"), (8,))).svg


def test_slow_and_fast_links_make_several_steps():
    links = {"dp": Link(1e-5, 1e9), "tp": Link(1e-6, 4e11)}
    found = picture(plan(P(unreduced=["dp", "tp"]), P(), (1024, 1024), links=links))
    words = [word.text for word in read(found.svg).words]
    assert [word for word in words if word.startswith("step ")] == [
        "step 1 of 3: reduce_scatter over tp",
        "step 2 of 3: all_reduce over dp",
        "step 3 of 3: all_gather over tp",
    ]


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        (P("z"), P(None, "z")),
        (P("x"), P(None, "z")),
        (P(("x", "y", "z")), P()),
        (P(unreduced=["x", "y", "z"]), P()),
        (P(None, "z"), P(unreduced=["x"])),
        (P(unreduced=["x"]), P("x")),
    ],
    ids=str,
)
def test_a_million_devices_are_summed_up(src, dst):
    found = plan(src, dst, (4096, 4096), BIG)
    asked = []
    for step in found.steps:
        for shown in rounds(step):
            asked.append(len(shown.slots) + len(shown.listed))
            assert "devices" in shown.title
    assert max(asked) <= MOST_SENDERS
    tracemalloc.start()
    try:
        drawn = picture(plan(src, dst, (4096, 4096), BIG))
        assert len(drawn.svg) < 60_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 2**20  # no list of a million devices
    assert len(drawn.text) < 16_000
    assert not list(overlaps(read(drawn.svg)))


def test_some_transfers_of_large_groups_are_listed():
    drawn = picture(plan(P("x"), P(None, "x"), (128, 128), mesh_of(64)))
    words = {word.text for word in read(drawn.svg).words}
    assert "groups of 64 devices, 1 of them" in words
    assert "1 → 0: [2:4, 0:2], 16 B" in words
    assert "1 → 0: [2:4, 0:2], 16 B" in drawn.text


def test_only_so_many_steps_are_drawn(monkeypatch):
    links = {"dp": Link(1e-5, 1e9), "tp": Link(1e-6, 4e11)}
    found = plan(P(unreduced=["dp", "tp"]), P(), (1024, 1024), links=links)
    monkeypatch.setattr("shardwise.pictures.plan_svg.MOST_STEPS", 2)
    monkeypatch.setattr("shardwise.pictures.plan_text.MOST_STEPS", 2)
    assert "… and 1 more steps" in picture(found).svg
    assert dedent(picture(found).text).endswith("... and 1 more steps")


def test_a_transpose_of_many_devices_shows_transfers_though_the_first_device_has_all_it_needs():
    found = plan(P("x", "y"), P("y", "x"), (64, 64), DeviceMesh((8, 8), ("x", "y")))
    ((shown,),) = [rounds(step) for step in found.steps]
    assert shown.listed == (Transfer(8, 1, ((8, 16), (0, 8))),)
    drawn = picture(found)
    for text in (drawn.text, drawn.svg):
        assert "8 → 1: [8:16, 0:8], 256 B" in text


def test_a_group_that_sends_nothing_is_not_the_one_that_is_shown():
    mesh = DeviceMesh((16, 2), ("x", "y"))
    src, dst = Layout(mesh, [Cut("x", offsets=[0, *[1] * 15, 16])]), Layout(mesh, [Cut(("x", "y"))])
    found = plan_reshard(src, dst, (16,), "int8")
    for step in found.steps:
        for shown in rounds(step):
            assert step.received.total == 0 or shown.flows or shown.listed
