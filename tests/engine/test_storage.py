"""Storage: devices share an array exactly when they hold equal data."""

from hypothesis import given

from shardwise import DeviceMesh, P
from shardwise.engine.storage import region, storage_of
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
