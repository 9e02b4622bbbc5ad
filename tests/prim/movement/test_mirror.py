"""Mirroring, in its own layout or another, with each element that changes device moved once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardwise import CPU, DeviceMesh, P, shard
from shardwise.prim.movement.mirror import mirror, mirror_layout
from tests.ops.cases import agrees, lacking, sent, tensors, transposed
from tests.prim.cases import layouts_for

RANKED = st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple)


@given(st.data(), tensors(RANKED))
def test_a_mirror_image_in_its_own_layout(data, x):
    dims = tuple(sorted(data.draw(st.sets(st.integers(0, x.ndim - 1), min_size=1))))
    made = agrees(lambda x: mirror(x, dims=dims), lambda v: np.flip(v, dims), x)
    assert made.layout is x.layout.without_halo()


@given(st.data(), tensors(RANKED, ["float64"]))
def test_a_mirror_image_in_another_layout(data, x):
    dims = tuple(sorted(data.draw(st.sets(st.integers(0, x.ndim - 1), min_size=1))))
    layout = data.draw(layouts_for(x.mesh, x.shape, halo=False))
    made = agrees(lambda x: mirror(x, dims=dims, layout=layout), lambda v: np.flip(v, dims), x)
    assert made.layout is layout
    transposed(lambda x: mirror(x, dims=dims, layout=layout), x)
    transposed(lambda x: mirror(x, dims=dims), x)


@given(st.data(), tensors(RANKED, ["float32"], partial=False, halo=False))
def test_each_element_that_changes_device_moves_once(data, x):
    dims = tuple(sorted(data.draw(st.sets(st.integers(0, x.ndim - 1), min_size=1))))
    layout = data.draw(layouts_for(x.mesh, x.shape, halo=False))
    numbers = np.flip(np.arange(x.size).reshape(x.shape), dims)
    for target in (layout, x.layout):
        _, size = sent(lambda target=target: mirror(x, dims=dims, layout=target))
        assert size == lacking([numbers], [x.layout], [x.shape], target) * 4


def test_the_middle_of_an_odd_number_of_devices_keeps_what_it_has():
    mesh = DeviceMesh((3,), ("x",))
    x = shard(np.arange(9.0), mesh, P("x"))
    made, size = sent(lambda: mirror(x, dims=(0,)))
    assert size == 6 * 8
    assert made.local(1).tolist() == [5.0, 4.0, 3.0]


def test_devices_that_are_one_and_the_same_are_told_apart():
    mesh = DeviceMesh((2,), ("x",), [CPU(0)] * 2)
    layout = P("x").to_layout(1, mesh)
    source, target, opposite = mirror_layout(layout, layout, (5,), (0,))
    assert len(set(source.mesh.devices)) == len(set(target.mesh.devices)) == 2
    assert opposite == (1, 0)
    assert mirror(shard(np.arange(5.0), mesh, P("x")), dims=(0,)).numpy().tolist() == [4.0, 3.0, 2.0, 1.0, 0.0]
