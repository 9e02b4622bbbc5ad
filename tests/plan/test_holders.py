"""Sides: who holds which tile, by brute force over all devices."""

from collections.abc import Sequence
from functools import cache
from itertools import permutations

import pytest

from shardwise import CPU, Cut, DeviceMesh, Layout
from shardwise.layout.axis import Axis
from shardwise.plan.holders import Holders, clip
from tests.layout.oracle import digit, held_box, owned_box, position

MESH = DeviceMesh((2, 4, 3), ("x", "y", "z"))
SUB = MESH.axis("y:(2)2")
LAYOUTS = [
    Layout(MESH, [("z", "x"), None]),
    Layout(MESH, ["y", "x"]),
    Layout(MESH, [Cut("z", halo=(1, 1)), SUB], ["x"]),
    Layout(MESH, [None, Cut(("y",), halo=(0, 1), edge="pad")], ["z"]),
    Layout(MESH, [None, None]),
]
SHAPE = (9, 7)
DEVICES = range(MESH.num_devices)


@cache
def tile(layout: Layout, device: int) -> tuple[int, ...]:
    return tuple(position(layout.mesh, cut.axes, device) for cut in layout.dims)


@cache
def place(axis: Axis, device: int) -> int:
    return digit(MESH, axis, device)


def at(axes: Sequence[Axis], device: int) -> tuple[int, ...]:
    return tuple(place(axis, device) for axis in axes)


def inside(box: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    return tuple((max(0, a), max(0, min(b, n))) for (a, b), n in zip(box, SHAPE, strict=True))


def free(layout: Layout) -> list[Axis]:
    """Axes that split no dim."""
    return list(MESH.rest(layout.sharded_axes))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_slot_has_the_tile_and_the_box_of_its_positions(layout: Layout) -> None:
    side = Holders(layout, SHAPE)
    assert side.tiling == layout.tiling(SHAPE)
    for device in DEVICES:
        assert side.tile(device) == tile(layout, device)
        assert side.box(device) == inside(held_box(layout, SHAPE, device))
        assert side.tiling.tile_box(tile(layout, device)) == owned_box(layout, SHAPE, device)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_slots_of_a_tile_are_those_that_have_it_at_a_position(layout: Layout) -> None:
    side = Holders(layout, SHAPE)
    for batch in ([], free(layout)[:1], free(layout)[-1:], free(layout)):
        for like in (0, 5, 13, 23):
            for which in side.tiling.tiles():
                want = [d for d in DEVICES if tile(layout, d) == which and at(batch, d) == at(batch, like)]
                assert sorted(side.slots(which, batch, like)) == want


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_contributions_come_from_the_slots_that_stand_like_the_target_elsewhere(layout: Layout) -> None:
    side, left = Holders(layout, SHAPE), free(layout)
    for pending in ([], left[:1], left[::-1], left):
        others = [axis for axis in left if axis not in pending]
        for slot in DEVICES[::5]:
            for which in side.tiling.tiles():
                found = side.sources(which, slot, pending)
                want = [d for d in DEVICES if tile(layout, d) == which and at(others, d) == at(others, slot)]
                assert sorted(found) == want
                assert found == sorted(found, key=lambda d: at(pending, d))  # major to minor as they are given


def test_a_slot_is_the_nearest_to_itself() -> None:
    for layout in LAYOUTS:
        side = Holders(layout, SHAPE)
        assert all(side.sources(tile(layout, d), d, ()) == [d] for d in DEVICES)


def test_positions_are_told_apart_by_a_number() -> None:
    side = Holders(LAYOUTS[-1], SHAPE)
    for axes in ([], [MESH.axis("x")], [SUB], [MESH.axis("z"), MESH.axis("y:(1)2")]):
        numbers = {(at(axes, d), side.position(d, axes)) for d in DEVICES}
        assert len({p for p, _ in numbers}) == len({n for _, n in numbers}) == len(numbers)
        assert (at(axes, 0), 0) in numbers


def test_a_held_box_is_clipped_to_the_tensor() -> None:
    assert clip(((-1, 3), (2, 5)), (4, 4)) == ((0, 3), (2, 4))
    assert clip(((-2, 0),), (4,)) == ((0, 0),)
    assert clip(((-3, -1),), (4,)) == ((0, 0),)
    assert clip((), ()) == ()
    with pytest.raises(ValueError, match="zip"):
        clip(((0, 1),), (1, 1))


NUMBERS = tuple(100 + 2 * i for i in range(24))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_listed_side_is_a_mesh_side_by_other_numbers(layout: Layout) -> None:
    plain, side = Holders(layout, SHAPE), Holders(layout, SHAPE, NUMBERS)
    assert side.tiling == plain.tiling
    batch = free(layout)[:1]
    for device, slot in list(enumerate(NUMBERS))[::3]:
        assert side.index(slot) == device
        assert side.tile(slot) == plain.tile(device)
        assert side.box(slot) == plain.box(device)
        assert side.position(slot, batch) == plain.position(device, batch)
        for which in plain.tiling.tiles():
            assert side.slots(which, batch, slot) == [NUMBERS[i] for i in plain.slots(which, batch, device)]
            assert side.sources(which, slot, batch) == [NUMBERS[i] for i in plain.sources(which, device, batch)]


def test_an_outsider_holds_nothing_and_stands_somewhere() -> None:
    mesh = DeviceMesh((3,), ("x",), [CPU(i) for i in (4, 5, 6)])
    side = Holders(Layout(mesh, [None]), (6,), (4, 5, 6))
    for slot in (0, 1, 2, 3, 7):
        assert side.tile(slot) is None
        assert side.box(slot) is None
        assert side.index(slot) == slot % 3
        assert side.sources((0,), slot, ()) == [(4, 5, 6)[slot % 3]]
    assert side.index(4) == 0


def test_the_order_of_pending_axes_is_the_order_of_the_sources() -> None:
    side = Holders(LAYOUTS[-1], SHAPE)
    for pending in permutations(MESH.axis(n) for n in "xyz"):
        found = side.sources((0, 0), 7, pending)
        assert [position(MESH, pending, d) for d in found] == list(range(24))
