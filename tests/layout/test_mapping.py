"""Mappings: placements per mesh axis and names per dim, to layouts and back."""

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given

from shardwise import (
    ArgumentError,
    BindingError,
    ConversionError,
    Cut,
    DeviceMesh,
    Layout,
    LayoutError,
    NamedMapping,
    P,
    Partial,
    PlacementMapping,
    ReduceOp,
    Replicated,
    Sharded,
    mesh_context,
)
from tests.layout.strategies import bound_layouts

placed: Any = PlacementMapping  # lets the type checker pass wrong arguments
named: Any = NamedMapping
MESH = DeviceMesh((2, 4), ("dp", "tp"))


def sayable(layout: Layout) -> bool:
    """Whether placements can say it: whole axes, in mesh order, and no padding on a whole dim."""
    order = layout.mesh.axis_names.index
    return (
        all(axis.is_whole for axis in (*layout.sharded_axes, *layout.partial))
        and all([order(a.name) for a in c.axes] == sorted(order(a.name) for a in c.axes) for c in layout.dims)
        and all(cut.axes or not any(cut.halo) for cut in layout.dims)
    )


@given(bound_layouts())
def test_placements_come_back_or_say_what_they_cannot(case):
    layout = case.layout
    if not sayable(layout):
        with pytest.raises(ConversionError, match=r"cannot (be written|say)"):
            PlacementMapping.from_layout(layout)
        return
    mapping = PlacementMapping.from_layout(layout)
    assert len(mapping.placements) == layout.mesh.ndim
    assert mapping.to_layout(layout.rank) is layout
    assert PlacementMapping.from_layout(mapping.to_layout(layout.rank)) == mapping
    for other in (copy.copy(mapping), copy.deepcopy(mapping), pickle.loads(pickle.dumps(mapping))):
        assert other == mapping
        assert hash(other) == hash(mapping)


@given(bound_layouts(plain=True))
def test_names_come_back(case):
    layout = case.layout
    mapping = NamedMapping.from_layout(layout)
    assert mapping.to_layout(layout.rank) is layout
    assert mapping.to_named(layout.rank) == mapping
    for other in (copy.copy(mapping), copy.deepcopy(mapping), pickle.loads(pickle.dumps(mapping))):
        assert other == mapping
        assert hash(other) == hash(mapping)
    if sayable(layout):
        by_axis = PlacementMapping(layout.mesh, mapping.to_placements())
        assert by_axis.to_layout(layout.rank) is layout
        assert by_axis.to_named(layout.rank) == mapping


@given(bound_layouts(halo=False))
def test_names_refuse_what_they_cannot_say(case):
    odd = any(cut.split != "balanced" for cut in case.layout.dims)
    if not odd:
        NamedMapping.from_layout(case.layout)
        return
    with pytest.raises(ConversionError, match="cannot say: it has axis names only"):
        NamedMapping.from_layout(case.layout)


REFUSED = [
    (
        Layout(MESH, [("tp", "dp")]),
        "dim 0 is sharded by ('tp', 'dp'), but placements list mesh axes in mesh order (dp, tp),\n"
        "so the order tp-then-dp cannot be written as placements.\n"
        "  keep the NamedMapping, or reshard to ('dp', 'tp') first.",
    ),
    (
        Layout(MESH, [None, "tp:(1)2"]),
        "sub-axis tp:(1)2 cannot be written as a placement: placements name whole mesh axes (dp=2, tp=4).\n"
        "  keep the NamedMapping, or split the mesh axis into two.",
    ),
    (
        Layout(MESH, [], ["tp:(2)2"]),
        "sub-axis tp:(2)2 cannot be written as a placement: placements name whole mesh axes (dp=2, tp=4).\n"
        "  keep the NamedMapping, or split the mesh axis into two.",
    ),
    (
        Layout(MESH, ["dp", Cut(halo=(1, 2), edge="pad")]),
        "dim 1 is padded with halo=(1, 2), edge='pad' but not sharded, which placements cannot say.\n"
        "  keep the Layout.",
    ),
]


@pytest.mark.parametrize(("layout", "text"), REFUSED)
def test_the_refusal_names_what_would_be_lost(layout, text):
    with pytest.raises(ConversionError) as caught:
        PlacementMapping.from_layout(layout)
    assert str(caught.value) == text
    assert isinstance(caught.value, ValueError)


def test_placements_say_every_cut():
    cases = [Cut("tp", split="chunk"), Cut("tp", offsets=(0, 1, 2, 2, 5)), Cut("tp", halo=(1, 0), edge="pad")]
    for cut in cases:
        layout = Layout(MESH, [None, cut], ["dp"], "max")
        mapping = PlacementMapping.from_layout(layout)
        assert mapping.to_layout(2) is layout
        assert mapping.to_placements()[0] == Partial("max")


def test_negative_dims_count_from_the_end():
    mapping = PlacementMapping(MESH, [Sharded(-1), Sharded(-2)])
    assert mapping.to_layout(2) is Layout(MESH, ["tp", "dp"])
    assert mapping.to_layout(3) is Layout(MESH, [None, "tp", "dp"])


def test_one_dim_by_several_axes_is_in_mesh_order():
    assert PlacementMapping(MESH, [Sharded(0), Sharded(0)]).to_layout(1) is Layout(MESH, [("dp", "tp")])


def test_one_placement_is_enough_for_one_axis():
    mesh = DeviceMesh((4,), ("x",))
    assert placed(mesh, Sharded(0)) == placed(mesh, [Sharded(0)]) == placed(mesh, iter([Sharded(0)]))


def test_a_named_mapping_takes_its_spec_in_any_form():
    mapping = NamedMapping(MESH, ("dp", None), unreduced=["tp"])
    same = [
        NamedMapping(MESH, P("dp", None, unreduced=["tp"])),
        NamedMapping(MESH, P("dp", None), unreduced={"tp": ReduceOp.SUM}),
        named(MESH, [["dp"], ()], unreduced="tp"),
        named(MESH, iter(["dp", None]), unreduced={"tp"}),
    ]
    assert all(other == mapping and hash(other) == hash(mapping) for other in same)
    assert repr(mapping) == "NamedMapping(DeviceMesh(dp=2, tp=4), P('dp', None, unreduced=('tp',)))"
    assert NamedMapping(MESH, (), unreduced=["dp", "tp"]) == NamedMapping(MESH, (), unreduced=["tp", "dp"])


def test_mappings_move_to_another_mesh_by_name():
    other = DeviceMesh((4, 3, 2), ("tp", "pp", "dp"))
    by_axis = PlacementMapping(MESH, [Partial("max"), Sharded(0)]).to_mesh(other)
    assert by_axis.placements == (Sharded(0), Replicated(), Partial("max"))
    by_name = NamedMapping(MESH, ("tp",), unreduced={"dp": "max"}).to_mesh(other)
    assert by_name.to_layout(1) is by_axis.to_layout(1) is Layout(other, ["tp"], ["dp"], "max")
    fewer = DeviceMesh((2,), ("dp",))
    assert PlacementMapping(MESH, [Sharded(0), Replicated()]).to_mesh(fewer).placements == (Sharded(0),)
    for lost in (PlacementMapping(MESH, [Replicated(), Sharded(0)]), NamedMapping(MESH, ("tp",))):
        with pytest.raises(LayoutError, match=r"unknown mesh axis 'tp' in .*\n  mesh axes: dp=2"):
            lost.to_mesh(fewer)


def test_the_mesh_of_the_context_is_used():
    with mesh_context(MESH):
        assert placed(None, [Replicated(), Sharded(0)]).mesh is MESH
        assert named(None, ("tp",)).mesh is MESH


def test_reductions_of_axes_of_size_one_do_not_count():
    mesh = DeviceMesh((1, 4), ("one", "tp"))
    mapping = PlacementMapping(mesh, [Partial("max"), Partial("sum")])
    assert mapping.to_layout(1) is Layout(mesh, [None], ["tp"])


AXES = "\n  mesh axes: dp=2, tp=4"
ERRORS = [
    (
        lambda: placed(MESH, [Sharded(0)]),
        LayoutError,
        f"a mesh with 2 axes needs 2 placements, got 1: (Sharded(0),).{AXES}",
    ),
    (
        lambda: placed(MESH, [Replicated()] * 3),
        LayoutError,
        f"a mesh with 2 axes needs 2 placements, got 3: (Replicated(), Replicated(), Replicated()).{AXES}",
    ),
    (
        lambda: placed(MESH, ["dp", None]),
        ArgumentError,
        "a placement is Replicated(), Sharded(dim) or Partial(), got 'dp'.",
    ),
    (lambda: placed(MESH, None), ArgumentError, "placements are a list, one per mesh axis, got None."),
    (lambda: placed(MESH, "dp"), ArgumentError, "placements are a list, one per mesh axis, got 'dp'."),
    (
        lambda: placed(MESH, [Partial("sum"), Partial("max")]),
        LayoutError,
        "two different reductions are pending in (Partial('sum'), Partial('max')).\n"
        "  resolve one before making the other.",
    ),
    (
        lambda: placed(MESH, [Sharded(0), Sharded(2)]).to_layout(2),
        BindingError,
        "Sharded(2) on mesh axis 'tp' is out of range: the tensor has dims -2 to 1.",
    ),
    (
        lambda: placed(MESH, [Sharded(-3), Replicated()]).to_layout(2),
        BindingError,
        "Sharded(-3) on mesh axis 'dp' is out of range: the tensor has dims -2 to 1.",
    ),
    (
        lambda: placed(MESH, [Sharded(0), Replicated()]).to_layout(0),
        BindingError,
        "Sharded(0) on mesh axis 'dp' is out of range: the tensor has no dims.",
    ),
    (
        lambda: placed(MESH, [Sharded(0), Sharded(0, split="chunk")]).to_layout(1),
        LayoutError,
        "dim 0 is cut in two ways, by Cut('dp') and by Sharded(0, split='chunk') on mesh axis 'tp'.\n"
        "  placements that shard one dim must agree on split, offsets, halo and edge.",
    ),
    (
        lambda: placed(MESH, [Replicated()] * 2).to_mesh("m"),
        ArgumentError,
        "a DeviceMesh was expected, got 'm'.",
    ),
    (
        lambda: named(MESH, "dp"),
        ArgumentError,
        "a spec is a tuple with one entry per dim, such as ('x', None), got 'dp'.",
    ),
    (
        lambda: named(MESH, None),
        ArgumentError,
        "a spec is a tuple with one entry per dim, such as ('x', None), got None.",
    ),
    (
        lambda: named(MESH, ("pt", None)),
        LayoutError,
        f"unknown mesh axis 'pt' in P('pt', None).{AXES}\n  did you mean 'tp'?",
    ),
    (
        lambda: named(MESH, ("dp",), unreduced=["dp"]),
        LayoutError,
        "mesh axis 'dp' is used twice in ['dp'] with partial dp (sum).\n"
        "  each mesh axis may split one dim, or be partial, once.",
    ),
    (
        lambda: named(MESH, ("dp", None)).to_layout(1),
        BindingError,
        "P('dp', None) has 2 entries, the tensor has 1 dims.",
    ),
]


@pytest.mark.parametrize(("action", "kind", "text"), ERRORS)
def test_errors_say_what_was_got_and_what_there_is(action, kind, text):
    with pytest.raises(kind) as caught:
        action()
    assert type(caught.value) is kind
    assert str(caught.value) == text
