"""Conversion: whatever describes a layout gives the same layout."""

import re
from typing import Any

import pytest
from hypothesis import given

from shardwise import (
    ArgumentError,
    BindingError,
    ConversionError,
    DeviceMesh,
    DimSpec,
    DistributedTensorType,
    Layout,
    LayoutError,
    MeshError,
    NamedMapping,
    P,
    PlacementMapping,
    Replicated,
    Sharded,
    ShardingSpec,
    TensorLayout,
    as_layout,
    mesh_context,
)
from shardwise.layout.conversion import HasLayout
from tests.layout.strategies import bound_layouts

convert: Any = as_layout  # lets the type checker pass wrong arguments
MESH = DeviceMesh((2, 4), ("dp", "tp"))


@given(bound_layouts())
def test_every_vocabulary_that_can_say_a_layout_gives_it_back(case):
    layout, mesh, rank = case.layout, case.layout.mesh, case.layout.rank
    assert as_layout(layout, rank) is layout
    for vocabulary in (PlacementMapping, NamedMapping, ShardingSpec, P):
        try:
            said = vocabulary.from_layout(layout)
        except ConversionError:
            continue
        assert as_layout(said, rank, mesh) is layout
        with mesh_context(mesh):
            assert as_layout(said, rank) is layout


@given(bound_layouts(plain=True))
def test_vocabularies_convert_into_each_other(case):
    layout, rank = case.layout, case.layout.rank
    request = ShardingSpec.from_layout(NamedMapping.from_layout(layout).to_layout(rank))
    assert NamedMapping.from_layout(request.to_layout()) == NamedMapping.from_layout(layout)


def test_lists_of_placements_and_of_dims():
    expected = Layout(MESH, ["tp", None])
    assert as_layout([Replicated(), Sharded(0)], 2, MESH) is expected
    assert as_layout((Replicated(), Sharded(0)), 2, MESH) is expected
    assert as_layout([DimSpec(["tp"]), DimSpec()], 2, MESH) is expected
    assert as_layout([DimSpec(["tp"])], 2, MESH) is expected
    line = DeviceMesh((4,), ("x",))
    assert convert(Sharded(1), 2, line) is Layout(line, [None, "x"])
    assert as_layout([], 2, DeviceMesh((), ())) is Layout(DeviceMesh((), ()), [None, None])


def test_types_have_a_layout_too():
    layout = Layout(MESH, ["tp", None])
    for value in (
        DistributedTensorType("float32", (8, 2), MESH, layout),
        TensorLayout("float32", (8, 2), layout),
        layout,
    ):
        assert isinstance(value, HasLayout)
        assert as_layout(value, 2) is layout


ERRORS = [
    (lambda: convert(Layout, 2), ArgumentError, "a layout was expected, got <class "),
    (lambda: convert(P("tp"), -1, MESH), BindingError, "a rank is 0 or more, got -1."),
    (lambda: convert(P("tp"), "1", MESH), ArgumentError, "a rank is the number of dims, an int, got '1'."),
    (lambda: convert([Replicated()] * 2, True, MESH), ArgumentError, "a rank is the number of dims, an int, got True."),
    (lambda: convert(Layout(MESH), 0.0), ArgumentError, "a rank is the number of dims, an int, got 0.0."),
    (
        lambda: convert("tp", 1, MESH),
        ArgumentError,
        "a layout was expected, got 'tp'.\n  the axes of each dim are written P('tp').",
    ),
    (lambda: convert(None, 1, MESH), ArgumentError, "a layout was expected, got None."),
    (
        lambda: convert(("tp", None), 2, MESH),
        ArgumentError,
        "a layout was expected, got ('tp', None).\n  the axes of each dim are written P('tp', None).",
    ),
    (
        lambda: convert([DimSpec(), Sharded(0)], 2, MESH),
        ArgumentError,
        "a layout was expected, got [DimSpec(",
    ),
    (lambda: convert(P("tp"), 1), MeshError, "no mesh was given."),
    (lambda: convert([Sharded(0)], 1), MeshError, "no mesh was given."),
    (lambda: convert([], 1, MESH), LayoutError, "a mesh with 2 axes needs 2 placements, got 0: ()."),
    (lambda: convert(Layout(MESH, ["tp"]), 2), BindingError, "the layout [tp] has 1 dims, the tensor has 2."),
    (
        lambda: convert(P("tp", None), 1, MESH),
        BindingError,
        "P('tp', None) has 2 entries, the tensor has 1 dims.",
    ),
]


@pytest.mark.parametrize(("action", "kind", "text"), ERRORS)
def test_errors_say_what_was_got(action, kind, text):
    with pytest.raises(kind) as caught:
        action()
    assert type(caught.value) is kind
    assert str(caught.value).startswith(text)
    if text.startswith("a layout"):
        assert str(caught.value).endswith(
            "\n  give a Layout, P(...), a PlacementMapping, NamedMapping or ShardingSpec, a list of placements "
            "(one per mesh axis) or a list of DimSpecs (one per dim)."
        )


def test_what_people_bring_from_peers_is_refused_in_our_words():
    jax = pytest.importorskip("jax")
    tensor = pytest.importorskip("torch.distributed.tensor")
    spec = jax.sharding.PartitionSpec
    ours = "that is JAX's PartitionSpec; ours is P('dp', ('tp', 'y'), unreduced=('x',))."
    with pytest.raises(ArgumentError, match=re.escape(ours)):
        convert(spec("dp", ("tp", "y"), unreduced={"x"}), 2, MESH)
    with pytest.raises(ArgumentError, match=r"^a layout was expected, got [^\n]*\n  give a Layout"):
        convert(spec(spec.UNCONSTRAINED), 1, MESH)
    ours = "those are torch's placements; ours are [Sharded(1), Replicated(), Partial('prod')]."
    with pytest.raises(ArgumentError, match=re.escape(ours)):
        convert([tensor.Shard(1), tensor.Replicate(), tensor.Partial("product")], 2, MESH)
