"""A layout said in the axes of another mesh puts the same boxes on the same devices."""

from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise import CPU, Cut, DeviceMesh, Layout
from shardwise.plan.align import align_layout, index_of
from tests.layout.strategies import Bound, bound_layouts, meshes
from tests.plan.cases import mesh_of, mesh_pairs

SIX = mesh_of(3, 2)


@settings(max_examples=5 * settings().max_examples)
@given(st.data())
def test_an_aligned_layout_puts_the_same_boxes_on_the_same_devices(data):
    mesh, other = data.draw(mesh_pairs())
    layout, shape = data.draw(bound_layouts(other))
    found = align_layout(layout, mesh)
    if found is None or found is layout:
        return
    assert set(mesh.devices) == set(other.devices)
    where = {device: i for i, device in enumerate(mesh.devices)}
    for i, device in enumerate(other.devices):
        assert found.held_box(shape, where[device]) == layout.held_box(shape, i)
    assert found.reduce_op is layout.reduce_op
    for group in other.groups([str(a) for a in layout.partial]):
        first = where[other.devices[group[0]]]
        assert {where[other.devices[i]] for i in group} == set(mesh.group(first, found.partial))


@given(meshes(max_axes=3, max_devices=24).flatmap(lambda mesh: bound_layouts(mesh)))
def test_a_layout_on_its_own_mesh_is_aligned_already(case: Bound):
    assert align_layout(case.layout, case.layout.mesh) is case.layout


def test_meshes_that_differ_by_their_axes_are_aligned():
    flat = mesh_of(3, 2).flatten(name="f")
    assert align_layout(Layout(flat, ["f"]), SIX) == Layout(SIX, [("x", "y")])
    assert align_layout(Layout(flat, ["f:(1)3"], ["f:(3)2"]), SIX) == Layout(SIX, ["x"], ["y"])
    turned = SIX.transpose(names=("u", "v"))
    assert align_layout(Layout(turned, [Cut(("u", "v"), split="chunk")]), SIX) == Layout(
        SIX, [Cut(("y", "x"), split="chunk")]
    )


def test_a_sub_axis_that_cuts_across_the_axes_of_the_other_mesh_is_not_aligned():
    flat = SIX.flatten(name="f")
    assert align_layout(Layout(flat, ["f:(1)2", "f:(2)3"]), SIX) is None
    assert align_layout(Layout(flat, [None], ["f:(1)2"]), SIX) is None


def test_other_devices_are_not_aligned():
    moved = DeviceMesh((3, 2), ("x", "y"), [CPU(i + 1) for i in range(6)])
    shuffled = DeviceMesh((3, 2), ("x", "y"), [CPU(i) for i in (0, 2, 1, 3, 5, 4)])
    for other in (moved, shuffled, mesh_of(3), mesh_of(3, 4), DeviceMesh((3, 2), ("x", "y"), [CPU(0)] * 6)):
        assert align_layout(Layout(other, ["x"]), SIX) is None


@given(meshes(max_axes=3, max_devices=40))
def test_devices_in_a_regular_order_are_found_without_a_list(mesh):
    if isinstance(mesh.order, tuple) or any(stride <= 0 for axis in mesh.order.axes for _, stride in axis):
        return
    assert [index_of(mesh, device) for device in mesh.devices] == list(range(mesh.num_devices))
    last = max(mesh.devices, key=lambda device: device.id)
    assert index_of(mesh, type(last)(last.id + 1)) is None
