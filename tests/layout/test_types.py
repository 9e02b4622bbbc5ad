"""Distributed types: dtype, global shape and mapping of tensors that need not exist."""

import copy
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

from shardwise import (
    ArgumentError,
    BindingError,
    ConversionError,
    Cut,
    DeviceMesh,
    DistributedBufferType,
    DistributedTensorType,
    DistributedType,
    Layout,
    LocalType,
    NamedMapping,
    P,
    Partial,
    Replicated,
    Sharded,
    TensorLayout,
    local_shard_shape_from_global,
    mesh_context,
)
from tests.layout.strategies import bound_layouts

MESH = DeviceMesh((2, 4), ("dp", "tp"))
tensor: Any = DistributedTensorType  # lets the type checker pass wrong arguments
described: Any = TensorLayout


@given(bound_layouts(partial=False))
def test_local_types_have_the_local_shapes(case):
    layout, shape = case
    kind = DistributedTensorType("int16", shape, layout.mesh, layout)
    shapes = local_shard_shape_from_global(shape, None, layout)
    assert [local.shape for local in kind.local_types] == shapes
    assert [local.device for local in kind.local_types] == list(layout.mesh.devices)
    assert {local.dtype for local in kind.local_types} == {np.dtype("int16")}
    assert kind.layout is kind.to_layout() is kind.to_layout(len(shape)) is layout


@pytest.mark.parametrize("kind", [DistributedTensorType, DistributedBufferType, DistributedType])
def test_a_type_is_a_value(kind):
    one = kind("float32", [8, np.int64(4)], MESH, [Sharded(0), Replicated()])
    two = kind(np.float32, (8, 4), MESH, (Sharded(0), Replicated()))
    assert one == two
    for other in (two, copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert other == one
        assert hash(other) == hash(one)
    assert one.shape == (8, 4)
    assert type(one.shape[1]) is int
    assert isinstance(one, DistributedType)


def test_tensors_and_buffers_differ():
    args = ("float32", (8,), MESH, [Sharded(0), Replicated()])
    assert DistributedTensorType(*args) != DistributedBufferType(*args)


def test_named_sizes_and_small_floats():
    kind = tensor("bfloat16", ("batch", 8), MESH, P("dp", "tp"))
    assert kind.dtype == np.dtype(ml_dtypes.bfloat16)
    assert kind.local_types[0] == LocalType(np.dtype(ml_dtypes.bfloat16), ("batch/2", 2), MESH.device(0))
    with mesh_context(MESH):
        assert tensor("bfloat16", ("batch", 8), None, P("dp", "tp")) == kind


@given(bound_layouts(plain=True, partial=False))
def test_a_tensor_layout_knows_its_layout(case):
    layout, shape = case
    found = TensorLayout("float32", shape, NamedMapping.from_layout(layout))
    assert found.layout is found.to_layout() is layout
    assert found.mesh is layout.mesh
    assert found == pickle.loads(pickle.dumps(found))


def test_placements_of_a_tensor_layout():
    found = TensorLayout("float32", (8,), Layout(MESH, ["tp"], ["dp"]))
    assert found.placements == (Partial(), Sharded(0))
    with pytest.raises(ConversionError):
        _ = TensorLayout("float32", (8,), Layout(MESH, [("tp", "dp")])).placements


ERRORS = [
    (
        lambda make: make("float31", (8,), P("tp")),
        ArgumentError,
        "a dtype such as 'float32' was expected, got 'float31'.",
    ),
    (
        lambda make: make(None, (8,), P("tp")),
        ArgumentError,
        "a dtype such as 'float32' was expected, got None.",
    ),
    (lambda make: make("int8", 8, P("tp")), ArgumentError, "a shape is a tuple of ints or names, got 8."),
    (
        lambda make: make("int8", "ab", P("tp")),
        ArgumentError,
        "a shape is a tuple of ints or names, got 'ab'.",
    ),
    (
        lambda make: make("int8", (-8,), P("tp")),
        BindingError,
        "the sizes in a shape are 0 or more, got -8 in (-8,).",
    ),
    (
        lambda make: make("int8", (8.0,), P("tp")),
        ArgumentError,
        "the sizes in a shape are ints, got 8.0 in (8.0,).",
    ),
    (
        lambda make: make("int8", (8,), P("tp", None)),
        BindingError,
        "P('tp', None) has 2 entries, the tensor has 1 dims.",
    ),
    (
        lambda make: make("int32", (8,), P(unreduced={"tp": "avg"})),
        BindingError,
        "reduction 'avg' is not defined for int32.\n  reductions of int32: sum, min, max, prod, band, bor, bxor",
    ),
    (
        lambda make: make("int8", (3,), Layout(MESH, [Cut("tp", halo=1)])),
        BindingError,
        "the high halo of dim 0 is 1 wide, but a neighbour's shard has only 0 of the 3 elements.\n"
        "  use a halo of at most 0, or fewer devices.",
    ),
]


@pytest.mark.parametrize(("action", "kind", "text"), ERRORS)
@pytest.mark.parametrize("make", [lambda d, s, p: tensor(d, s, MESH, p), described], ids=["type", "layout"])
def test_errors_say_what_was_got_and_what_there_is(make, action, kind, text):
    with mesh_context(MESH), pytest.raises(kind) as caught:
        action(make)
    assert type(caught.value) is kind
    assert str(caught.value) == text


def test_a_type_and_its_placements_share_a_mesh():
    with pytest.raises(BindingError) as caught:
        tensor("int8", (8,), DeviceMesh((4,), ("x",)), Layout(MESH, ["tp"]))
    assert str(caught.value) == "the placements belong to the mesh (dp=2, tp=4), the type to (x=4)."
