"""Grids have axes for all that layouts use, and say where every shard lies as the layout does."""

from hypothesis import given
from hypothesis import strategies as st

from shardwise import Cut, DeviceMesh, Layout
from shardwise.ir.module.shardings import Sharding
from shardwise.ir.tracing.grids import grids_of, split_of

MESH = DeviceMesh((4, 3, 2), ("x", "y", "z"))
AXES = ["x", "y", "z", "x:(1)2", "x:(2)2"]


@st.composite
def layouts(draw):
    names = draw(st.permutations(AXES))
    used = names[: draw(st.integers(0, 4))]
    if "x" in used:
        used = [name for name in used if not name.startswith("x:")]
    dims = [[], []]
    for name in used:
        dims[draw(st.integers(0, 1))].append(name)
    split = draw(st.sampled_from(["balanced", "chunk"]))
    halo = draw(st.integers(0, 2)) if split == "balanced" else 0
    return Layout(
        MESH, [Cut(tuple(d), split=split, halo=(halo, 1 if halo else 0), edge="pad") if d else None for d in dims]
    )


@given(layouts(), st.integers(48, 70), st.integers(48, 70))
def test_a_sharding_holds_what_its_layout_holds(layout, rows, columns):
    shape = (rows, columns)
    grid = grids_of([layout])[MESH]
    split = split_of(layout, shape, grid)
    sharding = Sharding("g", grid.shape, split.axes, split.halos, split.offsets)
    for device in range(MESH.num_devices):
        assert sharding.layout(len(shape)).held_box(shape, device) == layout.held_box(shape, device)


def test_meshes_of_one_name_get_names_of_their_own():
    other = DeviceMesh((2,), ("a",))
    found = grids_of([Layout(MESH, ["x"]), Layout(other, ["a"])])
    assert [grid.name for grid in found.values()] == ["mesh", "mesh1"]
    assert grids_of([Layout(DeviceMesh((1,), ("a",)), [None])]) == {}
