"""Meshes: coordinates, groups and derived meshes against NumPy, identity, cost, and errors."""

import copy
import pickle
import random
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import (
    CPU,
    Accelerator,
    ArgumentError,
    Cut,
    Device,
    DeviceMesh,
    Layout,
    LayoutError,
    MeshError,
    P,
    Partial,
    PlacementMapping,
    Replicated,
    Sharded,
    clear_caches,
    current_mesh,
    mesh_context,
)
from shardwise.layout.axis import Axis
from shardwise.layout.mesh import offset, walk
from tests.function_calls import calls_of
from tests.layout.oracle import digit, grouped, unfolded
from tests.layout.strategies import axis_lists, factors, meshes

make: Any = DeviceMesh  # lets the type checker pass wrong arguments
BIG = (64, 64, 256)


# -- coordinates and groups --------------------------------------------------------------------------


@given(meshes())
def test_coordinates_are_those_of_a_row_major_array(mesh):
    slots = np.arange(mesh.num_devices).reshape(mesh.mesh_shape)
    for coords, index in np.ndenumerate(slots):
        assert mesh.coords(int(index)) == coords
        assert mesh.index(coords) == index
        assert mesh.device(int(index)) == mesh.devices[index]
    assert mesh.ndim == slots.ndim
    assert mesh.num_devices == slots.size == len(mesh.devices)
    assert mesh.strides == dict(zip(mesh.axis_names, (s // 8 for s in slots.strides), strict=True))


@given(st.data())
def test_positions_along_axes_and_sub_axes(data):
    mesh = data.draw(meshes())
    for axis in data.draw(factors(mesh)):
        found = [mesh.device_coord(i, str(axis)) for i in range(mesh.num_devices)]
        assert found == [digit(mesh, axis, i) for i in range(mesh.num_devices)]
        assert mesh.axis_size(str(axis)) == axis.size
    for number, name in enumerate(mesh.axis_names):
        assert mesh.axis(number) == mesh.axis(name) == mesh.axis(number - mesh.ndim)
        assert mesh.axis(mesh.axis(name)) == mesh.axis(name)


@given(st.data())
def test_groups_are_the_rows_of_a_transpose(data):
    mesh = data.draw(meshes())
    axes = data.draw(axis_lists(mesh))
    rows = [tuple(row) for row in grouped(mesh, axes, range(mesh.num_devices)).tolist()]
    names = [str(axis) for axis in axes]
    assert mesh.groups(names) == rows
    for row in rows:
        for device in row:
            assert mesh.group(device, names) == row


def test_the_order_of_members_follows_the_order_of_axes():
    mesh = DeviceMesh((2, 4), ("x", "y"))
    assert mesh.groups(("x", "y")) == [(0, 1, 2, 3, 4, 5, 6, 7)]
    assert mesh.groups(("y", "x")) == [(0, 4, 1, 5, 2, 6, 3, 7)]
    assert mesh.groups("y:(1)2") == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert mesh.groups(1) == mesh.groups("y") == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert mesh.groups(()) == [(i,) for i in range(8)]
    assert mesh.group(6, ("y:(2)2", "x")) == (2, 6, 3, 7)


def test_a_sub_axis_of_size_one_changes_no_group():
    mesh = DeviceMesh((8,), ("x",))
    assert mesh.groups(("x:(2)4", "x:(4)1")) == mesh.groups("x:(2)4")


# -- derived meshes ----------------------------------------------------------------------------------


@given(st.data())
def test_select_takes_axes_at_position_zero_of_the_others(data):
    mesh = data.draw(meshes())
    axes = data.draw(axis_lists(mesh))
    names = [f"n{i}" for i in range(len(axes))]
    chosen = mesh.select(*map(str, axes), names=names)
    assert chosen.axis_names == tuple(names)
    assert chosen.mesh_shape == tuple(axis.size for axis in axes)
    assert list(chosen.devices) == grouped(mesh, axes, mesh.devices)[0].tolist()


@given(st.data())
def test_transpose_is_a_transpose(data):
    mesh = data.draw(meshes())
    axes = data.draw(factors(mesh))
    names = [f"n{i}" for i in range(len(axes))]
    turned = mesh.transpose(*map(str, axes), names=names)
    assert list(turned.devices) == grouped(mesh, axes, mesh.devices).ravel().tolist()
    assert mesh.transpose().transpose() is mesh
    assert mesh.transpose().axis_names == mesh.axis_names[::-1]


@given(st.data())
def test_fix_takes_positions(data):
    mesh = data.draw(meshes())
    axes = data.draw(axis_lists(mesh))
    at = {str(axis): data.draw(st.integers(0, axis.size - 1)) for axis in axes}
    fixed = mesh.fix(at)
    array, order = unfolded(mesh, axes, mesh.devices)
    index: list[Any] = [slice(None)] * array.ndim
    for dim, axis in zip(order, [a for a in axes if a.size > 1], strict=True):
        index[dim] = at[str(axis)]
    left = array[tuple(index)]
    assert list(fixed.devices) == (left.ravel().tolist() if isinstance(left, np.ndarray) else [left])
    whole = {axis.name for axis in axes if axis.is_whole}
    assert fixed.axis_names == tuple(n for n in mesh.axis_names if n not in whole)


@given(st.data())
def test_flatten_makes_several_axes_one(data):
    mesh = data.draw(meshes())
    names = data.draw(st.permutations(mesh.axis_names))[: data.draw(st.integers(1, mesh.ndim))]
    flat = mesh.flatten(*names, name="flat")
    first = mesh.axis_names.index(names[0])
    expected = ["flat" if i == first else n for i, n in enumerate(mesh.axis_names) if i == first or n not in names]
    assert list(flat.axis_names) == expected
    assert flat.num_devices == mesh.num_devices
    order = [mesh.axis_names.index(n) for own in expected for n in (names if own == "flat" else [own])]
    array = np.empty(mesh.num_devices, dtype=object)
    array[:] = mesh.devices
    assert list(flat.devices) == array.reshape(mesh.mesh_shape).transpose(order).ravel().tolist()
    assert mesh.flatten(name="flat").devices == mesh.devices


@given(st.data())
def test_a_derived_mesh_is_the_mesh_of_its_devices(data):
    mesh = data.draw(meshes())
    axes = data.draw(factors(mesh))
    names = [f"n{i}" for i in range(len(axes))]
    derived = [
        mesh.transpose(*map(str, axes), names=names),
        mesh.select(*map(str, axes[:1])),
        mesh.fix({str(axes[0]): 0}),
        mesh.flatten(name="flat"),
        mesh.transpose().flatten(name="flat").fix({}),
    ]
    for found in derived:
        assert DeviceMesh(found.mesh_shape, found.axis_names, list(found.devices)) is found


@given(st.data())
def test_derived_meshes_of_derived_meshes(data):
    # A flattened axis of several strides, cut anew: its sub-axes need not nest with the order of devices.
    mesh = data.draw(meshes(max_axes=3))
    flat = mesh.transpose(*data.draw(st.permutations(mesh.axis_names))).flatten(name="flat")
    axes = data.draw(axis_lists(flat))
    at = {str(axis): data.draw(st.integers(0, axis.size - 1)) for axis in axes}
    listed = DeviceMesh(flat.mesh_shape, ("flat",), [Device(d.id) for d in flat.devices])
    same = [d.id for d in flat.fix(at).devices]
    assert same == [d.id for d in listed.fix(at).devices]
    names = [f"n{i}" for i in range(len(axes))]
    same = [d.id for d in flat.select(*map(str, axes), names=names).devices]
    assert same == [d.id for d in listed.select(*map(str, axes), names=names).devices]


def test_a_sub_axis_that_cuts_across_the_order_is_still_right():
    flat = DeviceMesh((6, 2), ("x", "y")).flatten("y", "x")
    assert [d.id for d in flat.devices] == [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]
    assert [d.id for d in flat.fix({"y_x:(1)3": 1}).devices] == [8, 10, 1, 3]
    assert [d.id for d in flat.select("y_x:(1)4").devices] == [0, 6, 1, 7]


def test_names_and_places_of_derived_meshes():
    mesh = DeviceMesh((2, 3, 4), ("a", "b", "c"), name="pod")
    assert repr(mesh.flatten("c", "a")).startswith("DeviceMesh(b=3, c_a=8, devices=[CPU(0), CPU(12), ...")
    assert repr(mesh.flatten("b", "c", name="bc")) == "DeviceMesh(a=2, bc=12, name='pod')"
    assert repr(mesh.select("b", "a")) == (
        "DeviceMesh(b=3, a=2, devices=[CPU(0), CPU(12), CPU(4), CPU(16), CPU(8), CPU(20)], name='pod')"
    )
    assert repr(mesh.fix(a=1, c=2)) == "DeviceMesh(b=3, devices=[CPU(14), CPU(18), CPU(22)], name='pod')"
    assert mesh.fix({"c:(1)2": 1}).devices[:4] == (CPU(2), CPU(3), CPU(6), CPU(7))
    assert mesh.fix() is mesh
    assert mesh.select("a", "b", "c") is mesh
    assert mesh.select().devices == (CPU(0),)


# -- the value ---------------------------------------------------------------------------------------


@given(meshes())
def test_equal_meshes_are_one_object(mesh):
    other = DeviceMesh(list(mesh.mesh_shape), list(mesh.axis_names), list(mesh.devices))
    assert other is mesh
    assert hash(other) == hash(mesh)
    assert len({other, mesh}) == 1
    for copied in (copy.copy(mesh), copy.deepcopy(mesh), pickle.loads(pickle.dumps(mesh))):
        assert copied is mesh
    renamed = DeviceMesh(mesh.mesh_shape, mesh.axis_names, mesh.devices, name="other")
    assert renamed is not mesh
    assert renamed != mesh


def test_threads_get_one_object():
    def build(_: int) -> DeviceMesh:
        return DeviceMesh((2, 3, 5), ("thread_a", "thread_b", "thread_c"))

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(build, range(400)))
    assert len({id(mesh) for mesh in found}) == 1


def test_numbers_and_lists_of_any_kind_make_the_same_mesh():
    mesh = DeviceMesh((2, 4), ("dp", "tp"))
    assert make(np.array([2, 4]), ["dp", "tp"]) is mesh
    assert make((np.int32(2), np.uint8(4)), ("dp", "tp")) is mesh
    assert make((size for size in (2, 4)), (name for name in ("dp", "tp"))) is mesh
    index: Any = np.int64(6)
    assert mesh.coords(index) == (1, 2)
    assert [type(c) for c in mesh.coords(index)] == [int, int]
    assert mesh.device(index) == CPU(6)
    assert type(mesh.index(tuple(np.array([1, 2])))) is int
    assert make((2, 4), ("dp", "tp")).axis(np.int64(1)) == mesh.axis("tp")
    assert make((2, 4), ("dp", "tp")).groups(np.int64(1)) == mesh.groups("tp")


def test_very_long_names():
    name = "n" * 10_000
    assert DeviceMesh((2,), (name,)).axis(f"{name}:(1)2").name == name


def test_a_mesh_does_not_change():
    mesh: Any = DeviceMesh((2,), ("x",))
    with pytest.raises(AttributeError) as caught:
        mesh.mesh_shape = (3,)
    assert str(caught.value) == "a DeviceMesh does not change; make a new one instead of setting 'mesh_shape'."


def test_a_mesh_without_axes_has_one_device():
    mesh = DeviceMesh((), ())
    assert (mesh.ndim, mesh.num_devices, mesh.devices) == (0, 1, (CPU(0),))
    assert mesh.is_single
    assert not mesh.is_simulated
    assert (mesh.coords(0), mesh.index(())) == ((), 0)
    assert mesh.groups(()) == [(0,)]
    assert mesh.group(0, ()) == (0,)
    assert mesh.transpose() is mesh.flatten() is mesh.select() is mesh.fix() is mesh
    assert repr(mesh) == "DeviceMesh()"


def test_a_single_device():
    mesh = DeviceMesh.single(Accelerator(3))
    assert mesh.devices == (Accelerator(3),)
    assert mesh.is_single
    assert not mesh.is_simulated
    assert mesh is DeviceMesh((1,), ("_",), [Accelerator(3)])
    assert (repr(mesh), str(mesh)) == ("DeviceMesh(_=1, devices=[Accelerator(3)])", "_=1")
    assert (mesh.ndim, mesh.num_devices, mesh.axis_size("_")) == (1, 1, 1)
    for placement in (Replicated(), Sharded(0), Partial()):  # whose axis has one position
        assert PlacementMapping(mesh, [placement]).to_layout(1) is Layout.replicated(mesh, 1)
    assert P("_", unreduced=()).to_layout(2, mesh) is Layout.replicated(mesh, 2)
    assert DeviceMesh((1, 1), ("x", "y")).is_single


def test_a_mesh_is_simulated_when_its_slots_are_one_device():
    assert DeviceMesh((2, 2), ("x", "y"), [CPU(0)] * 4).is_simulated
    assert DeviceMesh((2,), ("x",), [Device(0)] * 2).is_simulated
    assert not DeviceMesh((2, 2), ("x", "y"), [CPU(0), CPU(1)] * 2).is_simulated
    assert not DeviceMesh((2,), ("x",)).is_simulated
    assert not DeviceMesh((1,), ("x",)).is_simulated


# -- a million devices -------------------------------------------------------------------------------


def ask(mesh: DeviceMesh) -> None:
    a, b, c = mesh.axis_names
    bind(Layout(mesh, [Cut((c, a), halo=(1, 1)), None], partial=[b]))


def ask_about_sub_axes(mesh: DeviceMesh) -> None:
    a, b, c = mesh.axis_names
    rest = mesh.axis_size(b) // 2
    bind(Layout(mesh, [(f"{b}:(2){rest}", c), Cut(f"{b}:(1)2", split="chunk")], partial=[f"{a}:(1)2"]))


def bind(layout: Layout) -> None:
    shape, last = (64 * 64 * 256, 130), layout.mesh.num_devices - 1
    layout.box(shape, last)
    layout.held_box(shape, last)
    layout.local_shape(shape, last)
    layout.max_local_bytes(shape, "float32")
    layout.first_holder(layout.tile_of(last))


def derive(mesh: DeviceMesh) -> list[DeviceMesh]:
    a, b, c = mesh.axis_names
    return [
        mesh.transpose(),
        mesh.select(c, a),
        mesh.fix({b: 1}),
        mesh.flatten(c, a),
        mesh.transpose(b, c, a).flatten(),
    ]


def derive_from_sub_axes(mesh: DeviceMesh) -> list[DeviceMesh]:
    a, b, c = mesh.axis_names
    return [
        mesh.select(f"{c}:(2)2", a),
        mesh.fix({b: 1, f"{c}:(1)2": 1}),
        mesh.flatten(f"{c}:(1)2", b),
        mesh.flatten(c, a).fix({f"{c}_{a}:(1)2": 1}),
    ]


def mesh_of(shape: tuple[int, ...], mark: str) -> DeviceMesh:
    return DeviceMesh(shape, [f"{mark}{i}" for i in range(len(shape))])


def test_a_million_devices_take_no_more_memory_than_eight():
    actions = [ask, ask_about_sub_axes, derive, derive_from_sub_axes]
    for action in actions:
        action(mesh_of((4, 4, 4), "warm"))
    for action in actions:
        tracemalloc.start()
        try:
            mesh = mesh_of(BIG, "memory")
            kept = action(mesh)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 64 * 1024
        assert not any("devices" in vars(found) for found in (mesh, *(kept or ())))


@pytest.mark.parametrize(
    ("action", "few"),
    [(ask, 2), (derive, 2), (ask_about_sub_axes, 4), (derive_from_sub_axes, 4)],
)
def test_a_million_devices_take_exactly_the_calls_of_a_few(action, few):
    clear_caches()  # which hold meshes that other tests have asked before
    action(mesh_of((few, few, few), "first"))
    small = calls_of(lambda: action(mesh_of((few, few, few), "small")))
    large = calls_of(lambda: action(mesh_of(BIG, "large")))
    assert small == large


def test_derived_meshes_of_a_million_devices_agree_with_numpy():
    mesh = mesh_of(BIG, "big")
    slots = np.arange(mesh.num_devices, dtype=np.int32).reshape(BIG)
    halves = slots.reshape(64, 64, 2, 128)
    expected = [
        slots.transpose(2, 1, 0),
        slots[:, 0, :].transpose(1, 0),
        slots[:, 1, :],
        slots.transpose(1, 2, 0).reshape(64, -1),
        slots.transpose(1, 2, 0).reshape(-1),
        slots.reshape(64, 64, 2, 2, 64)[:, 0, 0, :, 0].transpose(1, 0),
        halves[:, 1, 1, :],
        halves.transpose(0, 2, 1, 3).reshape(64, 128, 128),
        halves[:, :, 1, :].transpose(1, 2, 0).reshape(64, -1),
    ]
    chance = random.Random(0)
    for found, ids in zip([*derive(mesh), *derive_from_sub_axes(mesh)], expected, strict=True):
        assert found.mesh_shape == ids.shape
        for _ in range(200):
            index = chance.randrange(ids.size)
            assert found.device(index) == CPU(int(ids.flat[index]))
            assert found.coords(index) == np.unravel_index(index, ids.shape)


def test_a_list_of_a_derived_order_is_the_derived_mesh():
    mesh = DeviceMesh((4, 6, 8), ("a", "b", "c"))
    for found in (mesh.transpose(), mesh.flatten("c", "a"), mesh.fix(b=2), mesh.select("c:(2)2", "a")):
        listed = [found.device(i) for i in range(found.num_devices)]
        assert DeviceMesh(found.mesh_shape, found.axis_names, listed) is found


# -- the surrounding mesh ----------------------------------------------------------------------------


def test_mesh_contexts_nest_and_are_restored_after_errors():
    outer, inner = DeviceMesh((2,), ("x",)), DeviceMesh((3,), ("y",))
    with mesh_context(outer) as given_back:
        assert given_back is current_mesh() is outer
        with mesh_context(inner):
            assert current_mesh() is inner
        assert current_mesh() is outer
        with pytest.raises(RuntimeError, match="inside"), mesh_context(inner):
            raise RuntimeError("inside")
        assert current_mesh() is outer
        assert current_mesh(inner) is inner
        assert Layout(None, ["x"]).mesh is outer
    with pytest.raises(MeshError):
        current_mesh()


# -- errors ------------------------------------------------------------------------------------------

MESH: Any = DeviceMesh((2, 4), ("dp", "tp"))
AXES = "\n  mesh axes: dp=2, tp=4"
NONE_GIVEN = "no mesh was given.\n  pass mesh=DeviceMesh(...), or work inside `with mesh_context(mesh):`."
ERRORS = [
    (lambda: make(4, ("x",)), ArgumentError, "mesh_shape is a tuple of sizes such as (2, 4), got 4."),
    (lambda: make("24", ("x",)), ArgumentError, "mesh_shape is a tuple of sizes such as (2, 4), got '24'."),
    (lambda: make((2.0,), ("x",)), ArgumentError, "the sizes of a mesh are ints, got 2.0 in (2.0,)."),
    (lambda: make((True,), ("x",)), ArgumentError, "the sizes of a mesh are ints, got True in (True,)."),
    (lambda: make((2, 0), "xy"), MeshError, "the sizes of a mesh are 1 or more, got 0 in (2, 0)."),
    (lambda: make((-2,), ("x",)), MeshError, "the sizes of a mesh are 1 or more, got -2 in (-2,)."),
    (lambda: make((2,), "x"), ArgumentError, "axis_names is a tuple of names such as ('x', 'y'), got 'x'."),
    (
        lambda: make((2,), {"x"}),
        ArgumentError,
        "axis_names is a tuple of names such as ('x', 'y'), got {'x'}.",
    ),
    (lambda: make((2,), (1,)), ArgumentError, "the names of mesh axes are strings, got 1."),
    (
        lambda: make((2,), ("a b",)),
        MeshError,
        "'a b' cannot name a mesh axis: a name has no spaces, commas, colons or brackets.",
    ),
    (
        lambda: make((2,), ("x[0]",)),
        MeshError,
        "'x[0]' cannot name a mesh axis: a name has no spaces, commas, colons or brackets.",
    ),
    (
        lambda: make((2,), ("",)),
        MeshError,
        "'' cannot name a mesh axis: a name has no spaces, commas, colons or brackets.",
    ),
    (
        lambda: make((2, 2), ("x", "x")),
        MeshError,
        "mesh axis names must differ, got 'x' twice in ('x', 'x').",
    ),
    (
        lambda: make((2, 2), ("x",)),
        MeshError,
        "a mesh needs one name per axis, got 2 sizes (2, 2) and 1 names ('x',).",
    ),
    (lambda: make((2,), ("x",), name=3), ArgumentError, "the name of a mesh is a string, got 3."),
    (
        lambda: make((2,), ("x",), [CPU(0)] * 3),
        MeshError,
        "a mesh of shape (2,) needs 2 devices, got 3.",
    ),
    (
        lambda: make((2,), ("x",), [0, 1]),
        ArgumentError,
        "a mesh is made of Device values such as CPU(0), got 0.",
    ),
    (
        lambda: make((2,), ("x",), CPU(0)),
        ArgumentError,
        "devices is a list of Device values such as [CPU(0), CPU(1)], got CPU(0).",
    ),
    (lambda: MESH.axis("pt"), LayoutError, f"unknown mesh axis 'pt'.{AXES}\n  did you mean 'tp'?"),
    (lambda: MESH.axis("zebra"), LayoutError, f"unknown mesh axis 'zebra'.{AXES}"),
    (
        lambda: MESH.axis("tp:2"),
        LayoutError,
        f"unknown mesh axis 'tp:2'.{AXES}\n  a sub-axis is written 'name:(pre)size'\n  did you mean 'tp'?",
    ),
    (
        lambda: MESH.axis("pt:(1)2", "P('pt:(1)2')"),
        LayoutError,
        f"unknown mesh axis 'pt:(1)2' in P('pt:(1)2').{AXES}\n  did you mean 'tp'?",
    ),
    (lambda: make((), ()).axis("x"), LayoutError, "unknown mesh axis 'x'.\n  mesh axes: none"),
    (
        lambda: MESH.axis("tp:(1)3"),
        LayoutError,
        f"sub-axis 'tp:(1)3' does not divide mesh axis 'tp': 1 x 3 is no factor of 4.{AXES}",
    ),
    (
        lambda: MESH.axis("tp:(2)4"),
        LayoutError,
        f"sub-axis 'tp:(2)4' does not divide mesh axis 'tp': 2 x 4 is no factor of 4.{AXES}",
    ),
    (
        lambda: MESH.axis("tp:(0)2"),
        LayoutError,
        f"sub-axis 'tp:(0)2' does not divide mesh axis 'tp': 0 x 2 is no factor of 4.{AXES}",
    ),
    (lambda: MESH.axis(2), MeshError, f"mesh axis 2 does not exist: the mesh has 2 axes.{AXES}"),
    (lambda: MESH.axis(-3), MeshError, f"mesh axis -3 does not exist: the mesh has 2 axes.{AXES}"),
    (lambda: MESH.axis(True), ArgumentError, f"a mesh axis is given by name or index, got True.{AXES}"),
    (lambda: MESH.axis(1.0), ArgumentError, f"a mesh axis is given by name or index, got 1.0.{AXES}"),
    (lambda: MESH.axis(["tp"]), ArgumentError, f"a mesh axis is given by name or index, got ['tp'].{AXES}"),
    (lambda: MESH.axis(None), ArgumentError, f"a mesh axis is given by name or index, got None.{AXES}"),
    (
        lambda: MESH.axis(Axis("tp", 1, 8, 8)),
        LayoutError,
        f"axis tp of 8 positions belongs to another mesh.{AXES}",
    ),
    (
        lambda: MESH.device(8),
        MeshError,
        "device 8 is outside the mesh (dp=2, tp=4), which has devices 0 to 7.",
    ),
    (
        lambda: MESH.coords(-1),
        MeshError,
        "device -1 is outside the mesh (dp=2, tp=4), which has devices 0 to 7.",
    ),
    (lambda: MESH.coords("1"), ArgumentError, "a device of a mesh is given by its index, an int, got '1'."),
    (lambda: MESH.coords(True), ArgumentError, "a device of a mesh is given by its index, an int, got True."),
    (lambda: MESH.index((1,)), MeshError, "coordinates need one position per axis (dp=2, tp=4), got (1,)."),
    (lambda: MESH.index((1, 4)), MeshError, "position 4 is outside axis 'tp', which has positions 0 to 3."),
    (lambda: MESH.index((0.5, 1)), ArgumentError, "a position along axis 'dp' is an int, got 0.5."),
    (
        lambda: MESH.index(1),
        ArgumentError,
        "coordinates are a tuple with one position per axis (dp=2, tp=4), got 1.",
    ),
    (lambda: MESH.groups(None), ArgumentError, "groups needs one axis or a tuple of axes, got None."),
    (
        lambda: MESH.groups(("tp", "tp")),
        LayoutError,
        "mesh axis 'tp' is used twice in groups.\n  each mesh axis may split one dim, or be partial, once.",
    ),
    (
        lambda: MESH.groups(("tp", "tp:(1)2")),
        LayoutError,
        "mesh axis 'tp' is used beside its own sub-axis in groups: tp, tp:(1)2.",
    ),
    (lambda: MESH.fix(tp=4), MeshError, "position 4 is outside axis 'tp', which has positions 0 to 3."),
    (lambda: MESH.fix(tp=True), ArgumentError, "a position along axis 'tp' is an int, got True."),
    (lambda: MESH.fix("tp"), ArgumentError, "fix needs positions by axis, such as fix(x=0), got 'tp'."),
    (
        lambda: MESH.fix({"tp": 0, "tp:(1)4": 1}),
        LayoutError,
        "mesh axis 'tp' is used twice in fix.\n  each mesh axis may split one dim, or be partial, once.",
    ),
    (lambda: MESH.fix(ddp=0), LayoutError, f"unknown mesh axis 'ddp' in fix.{AXES}\n  did you mean 'dp'?"),
    (
        lambda: MESH.transpose("tp"),
        MeshError,
        "transpose needs every axis of the mesh (dp=2, tp=4); missing: dp.",
    ),
    (
        lambda: make((2, 1), ("x", "y")).transpose("x"),
        MeshError,
        "transpose needs every axis of the mesh (x=2, y=1); missing: y.",
    ),
    (
        lambda: MESH.select("tp:(1)2", "tp:(2)2"),
        MeshError,
        "mesh axis names must differ, got 'tp' twice in ('tp', 'tp').",
    ),
    (
        lambda: MESH.select("tp", names=("a", "b")),
        MeshError,
        "a mesh needs one name per axis, got 1 axes and names ('a', 'b').",
    ),
    (current_mesh, MeshError, NONE_GIVEN),
    (lambda: make(None, None), ArgumentError, "mesh_shape is a tuple of sizes such as (2, 4), got None."),
    (lambda: any_context("mesh").__enter__(), ArgumentError, "mesh_context needs a DeviceMesh, got 'mesh'."),
    (lambda: any_current("mesh"), ArgumentError, "a DeviceMesh was expected, got 'mesh'."),
]
any_context: Any = mesh_context
any_current: Any = current_mesh


@pytest.mark.parametrize(("action", "kind", "text"), ERRORS)
def test_errors_say_what_was_got_and_what_there_is(action, kind, text):
    with pytest.raises(kind) as caught:
        action()
    assert type(caught.value) is kind
    assert str(caught.value) == text


@pytest.mark.parametrize("digits", ["9" * 30, "9" * 5000])
def test_a_huge_sub_axis_is_unknown(digits):
    with pytest.raises(LayoutError, match="unknown mesh axis"):
        MESH.axis(f"tp:({digits})2")


def test_the_sizes_make_the_number_of_devices():
    assert DeviceMesh((10**6, 10**6), ("x", "y")).num_devices == prod((10**6, 10**6))


ORDER = "a DeviceMesh is made of its shape, its axis names, and then its devices, in this order, got "


@pytest.mark.parametrize(
    "arguments",
    [
        ([CPU(0), CPU(1)], (2,), ("x",)),
        (CPU(0), ("x",)),
        ([CPU(0)], ("x",)),
        ("pod", (2,), ("x",)),
        (("x", "y"), (2, 4)),
        (("x",), [CPU(0)]),
        (2, 4),
        (2, 4, ("x", "y")),
    ],
    ids=repr,
)
def test_whoever_begins_with_something_else_is_told_the_order(arguments):
    with pytest.raises(ArgumentError) as caught:
        DeviceMesh(*arguments)
    assert str(caught.value).startswith(ORDER)
    assert "write DeviceMesh((2, 4), ('x', 'y'))" in str(caught.value)


def test_offset_and_walk_are_arithmetic_of_device_indices() -> None:
    mesh = DeviceMesh((2, 4, 3), ("x", "y", "z"))
    x, y, sub = map(mesh.axis, ("x", "y", "y:(2)2"))
    assert [offset(mesh, [y], d) for d in (0, 2, 3, 11, 12, 23)] == [0, 0, 3, 9, 0, 9]
    assert offset(mesh, [y, x], 22) == 21
    assert offset(mesh, [], 22) == 0
    assert walk(mesh, [y], 1) == [1, 4, 7, 10]
    assert walk(mesh, [x, sub]) == [0, 3, 12, 15]
    assert walk(mesh, [sub, x]) == [0, 12, 3, 15]
    assert walk(mesh, [], 5) == [5]


def test_names_that_would_control_a_terminal_are_shown_escaped() -> None:
    name = "a\x1bc\u202e\x9b"
    mesh = DeviceMesh((2,), (name,), name="m\x1b]0")
    layout = P(name).to_layout(1, mesh)
    partial = Layout(mesh, [None], [name])
    cut = Layout(mesh, [Cut(name, halo=1)])
    for value in (mesh, mesh.axis(name), layout, partial, cut):
        for text in (repr(value), *[str(value)] * (value is not mesh.axis(name))):
            assert text.isprintable(), ascii(text)
            assert "a\\x1bc\\u202e\\x9b" in text
    assert mesh.axis(str(mesh.axis(name))) is mesh.axis(name)
    assert repr(layout).startswith("Layout(m\\x1b]0(a")
