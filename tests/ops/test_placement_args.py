"""Where a new tensor lies, and what may be asked of its shape and dtype."""

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import CPU, ArgumentError, DeviceMesh, Layout, LayoutError, P, mesh_context
from shardwise.ops.placement_args import layout_for, number_dtype, sizes_of

MESH = DeviceMesh((2, 3), ("x", "y"))


def test_where_a_tensor_lies_without_a_layout():
    assert sw.zeros(3).device == sw.default_device()
    assert sw.zeros(3, device=CPU(1)).device == CPU(1)
    assert sw.zeros(3, mesh=MESH).layout is Layout.replicated(MESH, 1)
    with mesh_context(MESH):
        assert sw.zeros(3).layout is Layout.replicated(MESH, 1)
        assert str(sw.zeros(3, layout=P("y")).layout) == "[y]"


def test_a_layout_and_a_mesh_must_agree():
    layout = Layout(MESH, ["x"])
    assert layout_for(1, MESH, layout) is layout
    with mesh_context(DeviceMesh((5,), ("z",))):
        assert layout_for(1, None, layout) is layout
    with pytest.raises(LayoutError, match=r"belongs to the mesh \(x=2, y=3\), but mesh is \(z=5\)"):
        layout_for(1, DeviceMesh((5,), ("z",)), layout)
    with pytest.raises(ArgumentError, match="give device, or mesh and layout"):
        layout_for(1, None, layout, CPU(0))
    with pytest.raises(ArgumentError, match="a DeviceMesh was expected, got 'x'"):
        layout_for(1, "x", None)  # type: ignore[arg-type]


def test_shapes_may_be_one_size():
    assert sizes_of(3) == sizes_of(np.int64(3)) == sizes_of([3]) == (3,)  # type: ignore[arg-type]
    assert sizes_of(()) == ()


def test_dtypes_are_those_of_numbers():
    assert number_dtype(None, float, "f") == np.float64
    assert number_dtype("bfloat16", float, "f") == ml_dtypes.bfloat16
    for odd in ("U3", "V8", "M8[s]", "O"):
        with pytest.raises(ArgumentError, match="f: a dtype of numbers or bools was expected"):
            number_dtype(odd, float, "f")
