"""Storage: devices share an array exactly when they hold equal data."""

import numpy as np
import pytest
from hypothesis import given

from shardwise import BindingError, Cut, DeviceMesh, Layout, P
from shardwise.engine.storage import box_of_region, region, storage_of
from tests.layout.oracle import held_box, position
from tests.layout.strategies import Bound, bound_layouts


@given(bound_layouts())
def test_devices_share_an_array_if_they_have_the_same_tile_and_contribution(case: Bound) -> None:
    layout, storage = case.layout, storage_of(*case)
    devices = range(layout.mesh.num_devices)
    keys = [
        (*(position(layout.mesh, cut.axes, d) for cut in layout.dims), position(layout.mesh, layout.partial, d))
        for d in devices
    ]
    assert storage.count == len(set(keys))
    assert len({(storage.index(d), key) for d, key in zip(devices, keys, strict=True)}) == storage.count
    assert [d for holders in storage.holders for d in holders if storage.index(d) < 0] == []


@given(bound_layouts())
def test_the_box_of_an_array_is_what_its_devices_hold(case: Bound) -> None:
    storage = storage_of(*case)
    for device in range(case.layout.mesh.num_devices):
        box = held_box(case.layout, case.shape, device)
        assert storage.boxes[storage.index(device)] == box
        assert storage.shapes[storage.index(device)] == tuple(stop - start for start, stop in box)
        assert device in storage.holders[storage.index(device)]


def test_equal_storages_are_one_object() -> None:
    mesh = DeviceMesh((2, 2), ("x", "y"))
    layout = P("x").to_layout(1, mesh)
    assert storage_of(layout, (4,)) is storage_of(layout, (4,))


def test_a_region_ends_in_an_ellipsis_so_that_scalars_stay_arrays() -> None:
    assert region((), ()) == (...,)
    assert region(((4, 6), (0, 1)), ((3, 9), (0, 1))) == (slice(1, 3), slice(0, 1), ...)


MESH = DeviceMesh((2, 3, 2), ("x", "y", "z"))
LAYOUTS = [
    Layout(MESH, [("z", "x"), None]),
    Layout(MESH, ["y", "x"], ["z"]),
    Layout(MESH, [Cut("y", halo=(1, 1)), None], ["z", "x"]),
    Layout(MESH, [None, None]),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_arrays_are_numbered_by_tile_and_then_by_contribution(layout: Layout) -> None:
    storage = storage_of(layout, (7, 4))
    axes = [axis for cut in layout.dims for axis in cut.axes] + list(layout.partial)
    sizes = [axis.size for axis in axes]
    for device in range(12):
        digits = [device // MESH.divisor(axis) % axis.size for axis in axes]
        assert storage.index(device) == int(np.ravel_multi_index(digits, sizes) if sizes else 0)
        assert storage.index(device) == storage.index(device)
    for index in range(storage.count):
        holders = [device for device in range(12) if storage.index(device) == index]
        assert storage.holders[index] == tuple(holders)
        assert storage.holder(index) == storage.firsts[index] == holders[0]
        assert storage.box(index) == storage.boxes[index] == held_box(layout, (7, 4), holders[0])
        assert storage.local_shape(index) == storage.shapes[index]
        assert storage.shapes[index] == tuple(stop - start for start, stop in storage.boxes[index])
    assert len(storage.holders) == len(storage.boxes) == storage.count


def test_a_region_and_the_box_it_covers_are_inverse() -> None:
    outer = ((3, 9), (0, 4))
    for box in (((3, 9), (0, 4)), ((4, 6), (1, 1)), ((8, 9), (3, 4))):
        assert box_of_region(outer, region(box, outer)) == box
    assert box_of_region(outer, ()) == outer
    assert box_of_region((), (...,)) == ()


def test_other_shapes_are_other_storages() -> None:
    assert storage_of(LAYOUTS[0], (7, 4)) is not storage_of(LAYOUTS[0], (7, 5))
    assert storage_of(LAYOUTS[0], (7, 4)) is not storage_of(LAYOUTS[1], (7, 4))


def test_tensors_whose_bytes_cannot_be_counted_are_refused() -> None:
    layout = Layout(DeviceMesh((1,), ("x",)), [None, None])
    for shape in [((1 << 58) - 1, 1), (1 << 29, (1 << 29) - 1), (0, 1 << 60)]:
        assert storage_of(layout, shape).shape == shape
    for shape in [(1 << 58, 1), (1 << 29, 1 << 29)]:
        with pytest.raises(BindingError, match=r"^a tensor has fewer than 2\*\*58 elements, got shape \(\d+, \d+\)\.$"):
            storage_of(layout, shape)
