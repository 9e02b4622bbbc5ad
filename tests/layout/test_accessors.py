"""What a tensor and its type say of their layout: the same, and what the layout says."""

import numpy as np
import pytest
from hypothesis import given

from shardwise import (
    AbstractEngine,
    ConversionError,
    Cut,
    DeviceMesh,
    DistributedBufferType,
    DistributedTensorType,
    Layout,
    NamedMapping,
    P,
    Partial,
    PlacementMapping,
    Replicated,
    Sharded,
    TensorLayout,
    asarray,
    engine_context,
    shard,
)
from shardwise.layout.accessors import LayoutAccessors
from tests.layout.oracle import held_box
from tests.layout.strategies import bound_layouts
from tests.prim.cases import on_host, spread

MESH = DeviceMesh((2, 3), ("x", "y"))


def said(thing: object, name: str) -> object:
    """What an accessor says, or that it cannot."""
    try:
        found = getattr(thing, name)
        return found() if callable(found) else found
    except ConversionError as error:
        return str(error)


@given(bound_layouts())
def test_a_tensor_and_its_types_agree(case):
    layout, shape = case
    layout, dtype = layout.to_mesh(on_host(layout.mesh)), "int64"
    if layout.reduce_op == "avg":
        dtype = "float64"
    x, _ = spread(layout, shape, dtype)
    kinds = [kind(dtype, shape, layout.mesh, layout) for kind in (DistributedTensorType, DistributedBufferType)]
    for thing in (x, *kinds, TensorLayout(dtype, shape, layout)):
        assert isinstance(thing, LayoutAccessors)
        assert thing.num_shards == layout.mesh.num_devices
        assert thing.is_distributed == (len(layout.mesh.devices) > 1)
        assert thing.rank == len(shape)
        assert thing.is_fully_resolved == (layout.reduce_op is None)
        assert thing.is_fully_replicated == (thing.is_fully_resolved and not any(cut.axes for cut in layout.dims))
        assert said(thing, "placements") == said(x, "placements")
        assert said(thing, "to_named_sharding") == said(x, "to_named_sharding")
    for kind in kinds:
        assert said(kind, "mapping") == said(x, "mapping")
        assert len(kind.local_shards) == len(x.local_shards) == x.num_shards
        for index, (own, local) in enumerate(zip(x.local_shards, kind.local_shards, strict=True)):
            assert (own.dtype, own.shape, own.device) == (local.dtype, local.shape, local.device)
            assert own.shape == tuple(stop - start for start, stop in held_box(layout, shape, index))
            assert np.array_equal(own.numpy(), x.local(index))
    if not isinstance(mapping := said(x, "mapping"), str):
        assert isinstance(mapping, PlacementMapping | NamedMapping)
        assert mapping.to_layout(len(shape)) is layout


def test_what_they_say():
    x = shard(np.arange(6.0), MESH, P("y", unreduced=["x"]))
    assert x.placements == (Partial(), Sharded(0))
    assert x.mapping == PlacementMapping(MESH, [Partial(), Sharded(0)])
    assert x.to_named_sharding() == NamedMapping(MESH, ["y"], unreduced=["x"])
    assert (x.num_shards, x.is_distributed, x.rank, x.is_fully_replicated, x.is_fully_resolved) == (
        6,
        True,
        1,
        False,
        False,
    )
    assert asarray(1.0).placements == (Replicated(),)
    assert not asarray(1.0).is_distributed


def test_what_placements_cannot_say_names_do():
    kind = DistributedTensorType("int8", (6,), MESH, P(("y", "x")))
    assert kind.mapping == NamedMapping(MESH, [("y", "x")])
    with pytest.raises(ConversionError, match="cannot be written as placements"):
        _ = kind.placements
    cut = DistributedTensorType("int8", (12,), MESH, Layout(MESH, [Cut(("y", "x"), split="chunk")]))
    with pytest.raises(ConversionError, match="which a P cannot say"):
        _ = cut.mapping
    assert repr(cut).endswith("placements=Layout(mesh(x=2, y=3), [Cut(('y', 'x'), split='chunk')]))")


def test_types_of_one_layout_are_equal_in_whatever_words():
    one = DistributedTensorType("int8", (6,), MESH, P("x"))
    assert one == DistributedTensorType("int8", (6,), MESH, [Sharded(-1), Replicated()])
    assert repr(one).endswith("placements=(Sharded(0), Replicated()))")


def test_shards_of_a_tensor_without_values_have_a_type():
    with engine_context(AbstractEngine()):
        x = shard(np.zeros((5, 2)), MESH, P("y"))
        assert [y.shape for y in x.local_shards] == [(2, 2), (2, 2), (1, 2)] * 2
