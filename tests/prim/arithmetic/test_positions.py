"""Positions of elements, made where they are needed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardwise import AbstractEngine, DeviceMesh, P, current_engine
from shardwise.prim.arithmetic.positions import iota
from tests.layout.oracle import held_box, slices
from tests.ops.cases import sent
from tests.prim.cases import SHAPES, assert_holds, host_meshes, layouts_for


@given(st.data(), host_meshes(), SHAPES)
def test_every_device_makes_the_positions_of_its_own_elements(data, mesh, shape):
    layout = data.draw(layouts_for(mesh, shape, halo=False))
    made, size = sent(lambda: iota(layout, shape))
    want = np.arange(int(np.prod(shape))).reshape(shape)
    assert_holds(made, layout, want)
    assert size == 0
    for device in range(mesh.num_devices):
        assert np.array_equal(made.local(device), want[slices(held_box(layout, shape, device))])


def test_positions_on_another_engine_and_beyond_32_bits():
    mesh, engine = DeviceMesh((1 << 20,), ("x",)), AbstractEngine()
    made = iota(P("x").to_layout(2, mesh), (1 << 20, 1 << 20), engine)
    assert made.engine is engine
    assert made.engine is not current_engine()
    assert (made.shape, made.dtype) == ((1 << 20, 1 << 20), np.dtype("int64"))
