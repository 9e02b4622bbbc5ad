"""Layouts: which box each device owns and holds, the canonical form, identity, and errors."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import (
    ArgumentError,
    BindingError,
    Cut,
    DeviceMesh,
    Layout,
    LayoutError,
    MeshError,
    P,
    ReduceOp,
    mesh_context,
)
from shardwise.layout.axis import Axis, merge
from shardwise.layout.layout import check_shape
from tests.layout.oracle import held_box, owned_box, position, slices
from tests.layout.strategies import bound_layouts, factors, layouts, meshes

make: Any = Layout  # lets the type checker pass wrong arguments
MESH = DeviceMesh((2, 4), ("dp", "tp"))


# -- geometry ----------------------------------------------------------------------------------------


@given(bound_layouts())
def test_owned_boxes_of_the_distinct_tiles_tile_the_tensor(case):
    count = np.zeros(case.shape, dtype=int)
    seen = []
    for box, devices in case.layout.tiles(case.shape):
        count[slices(box)] += 1
        seen += devices
    assert (count == 1).all()
    assert sorted(seen) == list(range(case.layout.mesh.num_devices))


@given(bound_layouts())
def test_boxes_agree_with_brute_force(case):
    layout, shape = case
    for device in range(layout.mesh.num_devices):
        assert layout.box(shape, device) == owned_box(layout, shape, device)
        held = held_box(layout, shape, device)
        assert layout.held_box(shape, device) == held
        assert layout.local_shape(shape, device) == tuple(stop - start for start, stop in held)


@given(bound_layouts())
def test_the_largest_shard_is_per_dim_the_largest(case):
    layout, shape = case
    shapes = [layout.local_shape(shape, device) for device in range(layout.mesh.num_devices)]
    assert layout.max_local_bytes(shape, "float16") == 2 * prod(map(max, zip(*shapes, strict=True)))


@given(bound_layouts())
def test_holders_of_a_tile_are_the_devices_that_have_it(case):
    layout = case.layout
    by_tile: dict[tuple[int, ...], list[int]] = {}
    for device in range(layout.mesh.num_devices):
        tile = tuple(position(layout.mesh, cut.axes, device) for cut in layout.dims)
        assert layout.tile_of(device) == tile
        by_tile.setdefault(tile, []).append(device)
    for tile, devices in by_tile.items():
        assert layout.holders(tile) == tuple(devices)
        assert layout.first_holder(tile) == devices[0]
    assert len(by_tile) == prod(layout.parts(dim) for dim in range(layout.rank))


@pytest.mark.parametrize(
    ("dims", "sizes"),
    [
        ([("x", "y")], [3, 3, 2, 2]),
        ([Cut(("x", "y"), split="chunk")], [3, 3, 3, 1]),
        ([Cut(("x", "y"), offsets=(0, 1, 1, 4, 10))], [1, 0, 3, 6]),
        ([("y", "x")], [3, 2, 3, 2]),
        ([Cut(("x", "y"), halo=(2, 1))], [4, 6, 5, 4]),
        ([Cut(("x", "y"), halo=(2, 1), edge="pad")], [6, 6, 5, 5]),
    ],
)
def test_ten_elements_over_four_devices(dims, sizes):
    layout = Layout(DeviceMesh((2, 2), ("x", "y")), dims)
    assert [layout.local_shape((10,), device)[0] for device in range(4)] == sizes


def test_ten_elements_over_one_axis_of_four():
    layout = Layout(DeviceMesh((4,), ("x",)), ["x"])
    assert [layout.box((10,), device) for device in range(4)] == [((0, 3),), ((3, 6),), ((6, 8),), ((8, 10),)]


def test_a_scalar_and_an_empty_tensor():
    scalar = Layout(MESH)
    assert scalar.box((), 5) == scalar.held_box((), 5) == scalar.local_shape((), 5) == ()
    assert list(scalar.tiles(())) == [((), tuple(range(8)))]
    assert scalar.max_local_bytes((), "float64") == 8
    empty = Layout(MESH, ["tp", None])
    assert {empty.local_shape((0, 3), device) for device in range(8)} == {(0, 3)}
    assert empty.max_local_bytes((0, 3), "float64") == 0


def test_a_mesh_without_axes():
    layout = Layout(DeviceMesh((), ()), [None, ()])
    assert layout.is_replicated
    assert layout.box((3, 4), 0) == ((0, 3), (0, 4))
    assert repr(layout) == "Layout(mesh(), [None, None])"


def test_shapes_and_indices_of_any_kind():
    layout: Any = Layout(MESH, ["dp", "tp"])
    expected = layout.box((10, 8), 5)
    for shape in ([10, 8], np.array([10, 8]), (np.int64(10), 8), iter([10, 8])):
        found = layout.box(shape, np.int64(5))
        assert found == expected
        assert {type(end) for interval in found for end in interval} == {int}


# -- canonical form ----------------------------------------------------------------------------------


@given(st.data())
def test_every_spelling_of_a_layout_is_one_object(data):
    mesh = data.draw(meshes())
    layout = data.draw(layouts(mesh, data.draw(st.integers(0, 3))))
    as_text = [
        Cut([str(a) for a in c.axes], split=c.split, offsets=c.offsets, halo=c.halo, edge=c.edge) for c in layout.dims
    ]
    ones = [n for n, size in zip(mesh.axis_names, mesh.mesh_shape, strict=True) if size == 1]
    partial = [str(a) for a in data.draw(st.permutations(layout.partial))]
    assert Layout(mesh, as_text, partial + ones, layout.reduce_op or "max") is layout
    assert Layout(mesh, layout.dims, set(layout.partial), layout.reduce_op or "max") is layout
    assert Layout(mesh, layout.dims, dict.fromkeys(layout.partial, layout.reduce_op or "max")) is layout


@given(st.data())
def test_sub_axes_cut_finer_say_the_same(data):
    mesh = data.draw(meshes())
    axes = data.draw(factors(mesh))
    finer = [
        Axis(a.name, pre, size, a.of)
        for a in axes
        if a.size > 1
        for pre, size in ((a.pre, smallest(a.size)), (a.pre * smallest(a.size), a.size // smallest(a.size)))
    ]
    assert Layout(mesh, [finer]) is Layout(mesh, [axes])
    assert Layout(mesh, [], finer) is Layout(mesh, [], axes)
    assert Layout(mesh, [axes]).dims[0].axes == merge(axes)


def smallest(size: int) -> int:
    """The smallest factor above one."""
    return next((d for d in range(2, size + 1) if size % d == 0), 1)


def test_axes_of_size_one_vanish_and_sub_axes_merge():
    mesh = DeviceMesh((1, 8, 1), ("a", "b", "c"))
    assert Layout(mesh, [("a", "b:(1)2", "c", "b:(2)4")]) is Layout(mesh, ["b"])
    assert Layout(mesh, ["a", Cut("c", split="chunk")]) is Layout(mesh, [None, None])
    assert Layout(mesh, [None], ["a", "c"], "max") is Layout(mesh, [None])
    assert Layout(mesh, [None], {"a": "max", "b": "sum"}) is Layout(mesh, [None], ["b"])
    assert Layout(mesh, [], ["b:(2)4", "b:(1)2"]) is Layout(mesh, [], ["b"])
    assert Layout(mesh, [("b:(2)4", "b:(1)2")]).dims[0].axes == (Axis("b", 2, 4, 8), Axis("b", 1, 2, 8))


def test_one_partial_axis_needs_no_list():
    want = Layout(MESH, [None], ["dp"], "max")
    assert Layout(MESH, [None], "dp", "max") is want
    one: Any = MESH.axis("dp")
    assert Layout(MESH, [None], one, "max") is want
    assert Layout(MESH, [None], {"dp": "max"}) is want


def test_what_a_dim_in_one_piece_keeps():
    assert Layout(MESH, [Cut(halo=1)]) is Layout(MESH, [None])
    assert Layout(MESH, [Cut(halo=1, edge="pad")]).dims[0].halo == (1, 1)
    assert Layout(MESH, [Cut("dp", edge="pad")]) is Layout(MESH, ["dp"])


@given(bound_layouts())
def test_axes_of_a_layout_make_up_the_mesh(case):
    layout = case.layout
    every = [*layout.sharded_axes, *layout.partial, *layout.replicated_axes]
    assert prod(axis.size for axis in every) == layout.mesh.num_devices
    assert layout.is_replicated == (not layout.sharded_axes and not layout.partial)
    assert (layout.reduce_op is None) == (not layout.partial)
    assert layout.resolved().partial == ()
    assert layout.resolved().dims == layout.dims
    assert layout.has_halo == any(any(cut.halo) for cut in layout.dims)
    assert not layout.without_halo().has_halo
    assert layout.without_halo().sharded_axes == layout.sharded_axes


# -- the value ---------------------------------------------------------------------------------------


@given(bound_layouts())
def test_copies_are_the_same_object(case):
    layout = case.layout
    for copied in (copy.copy(layout), copy.deepcopy(layout), pickle.loads(pickle.dumps(layout))):
        assert copied is layout
    assert hash(layout) == hash(pickle.loads(pickle.dumps(layout)))
    assert pickle.loads(pickle.dumps(layout.dims)) == layout.dims


@given(st.data())
def test_equality_is_sameness_of_all_parts(data):
    mesh = data.draw(meshes(max_axes=2))
    a, b = data.draw(layouts(mesh, 2)), data.draw(layouts(mesh, 2))
    same = (a.dims, a.partial, a.reduce_op) == (b.dims, b.partial, b.reduce_op)
    assert (a == b) == (a is b) == same
    if same:
        assert hash(a) == hash(b)


def test_threads_get_one_object():
    def build(_: int) -> Layout:
        return Layout(DeviceMesh((2, 3), ("thread_x", "thread_y")), [Cut("thread_y", halo=1), "thread_x"])

    with ThreadPoolExecutor(16) as pool:
        assert len({id(layout) for layout in list(pool.map(build, range(400)))}) == 1


def test_a_layout_does_not_change():
    layout: Any = Layout(MESH, ["dp"])
    with pytest.raises(AttributeError) as caught:
        layout.dims = ()
    assert str(caught.value) == "a Layout does not change; make a new one instead of setting 'dims'."


def test_texts():
    layout = Layout(MESH, [Cut("tp:(2)2", split="chunk", halo=(1, 0)), None, "dp"], ["tp:(1)2"], "max")
    assert str(layout) == "[tp:(2)2/chunk±(1,0)|-|dp] max(tp:(1)2)"
    assert repr(layout) == (
        "Layout(mesh(dp=2, tp=4), [Cut('tp:(2)2', split='chunk', halo=(1, 0)), None, 'dp'], "
        "partial=['tp:(1)2'], reduce_op='max')"
    )
    assert repr(Layout(MESH, [("tp", "dp")], [])) == "Layout(mesh(dp=2, tp=4), [('tp', 'dp')])"


def test_a_layout_moves_to_another_mesh_by_name():
    other = DeviceMesh((3, 2, 2), ("tp", "pp", "dp"))
    layout = Layout(MESH, [Cut("tp", split="chunk"), None], ["dp"], "max")
    assert layout.to_mesh(other) is Layout(other, [Cut("tp", split="chunk"), None], ["dp"], "max")
    assert layout.to_mesh(MESH) is layout
    with pytest.raises(LayoutError, match="unknown mesh axis 'tp'"):
        layout.to_mesh(DeviceMesh((2,), ("dp",)))
    with pytest.raises(LayoutError, match="5 offsets for 3 shards"):
        Layout(MESH, [Cut("tp", offsets=(0, 1, 2, 3, 4))]).to_mesh(other)


def test_the_mesh_of_the_context_is_used():
    with mesh_context(MESH):
        assert Layout(None, ["dp"]) is Layout(MESH, ["dp"])


# -- errors ------------------------------------------------------------------------------------------

TWICE = "\n  each mesh axis may split one dim, or be partial, once."
AXES = "\n  mesh axes: dp=2, tp=4"
OPS = "\n  reductions: sum, avg, min, max, prod, band, bor, bxor"
ENTRY = "an entry of a Layout is None, an axis, several axes or a Cut, got "
ERRORS = [
    (lambda: make(MESH, ["tp", "tp"]), LayoutError, f"mesh axis 'tp' is used twice in ['tp', 'tp'].{TWICE}"),
    (
        lambda: make(MESH, [("tp", "tp")]),
        LayoutError,
        f"mesh axis 'tp' is used twice in [('tp', 'tp')].{TWICE}",
    ),
    (
        lambda: make(MESH, ["tp"], ["tp"]),
        LayoutError,
        f"mesh axis 'tp' is used twice in ['tp'] with partial tp (sum).{TWICE}",
    ),
    (
        lambda: make(MESH, [], ["tp", "tp:(1)4"]),
        LayoutError,
        f"mesh axis 'tp' is used twice in [] with partial tp (sum), tp:(1)4 (sum).{TWICE}",
    ),
    (
        lambda: make(DeviceMesh((1,), ("x",)), ["x", "x"]),
        LayoutError,
        f"mesh axis 'x' is used twice in ['x', 'x'].{TWICE}",
    ),
    (
        lambda: make(MESH, ["tp", "tp:(1)2"]),
        LayoutError,
        "mesh axis 'tp' is used beside its own sub-axis in ['tp', 'tp:(1)2']: tp, tp:(1)2.",
    ),
    (
        lambda: make(DeviceMesh((8,), ("x",)), ["x:(1)4", "x:(2)2"]),
        LayoutError,
        "sub-axes x:(1)4 and x:(2)2 overlap in ['x:(1)4', 'x:(2)2'].\n"
        "  'x' has 8 positions; sub-axes used together must be disjoint factors of it.",
    ),
    (
        lambda: make(MESH, ["pt", None]),
        LayoutError,
        f"unknown mesh axis 'pt' in ['pt', None].{AXES}\n  did you mean 'tp'?",
    ),
    (
        lambda: make(MESH, [None], ["pt"]),
        LayoutError,
        f"unknown mesh axis 'pt' in [None] with partial pt (sum).{AXES}\n  did you mean 'tp'?",
    ),
    (
        lambda: make(MESH, ["tp:(1)3"]),
        LayoutError,
        f"sub-axis 'tp:(1)3' in ['tp:(1)3'] does not divide mesh axis 'tp': 1 x 3 is no factor of 4.{AXES}",
    ),
    (
        lambda: make(MESH, [Cut("dp", offsets=(0, 1, 2, 3))]),
        LayoutError,
        "4 offsets for 2 shards in [Cut('dp', offsets=(0, 1, 2, 3))]: 2 shards have 3 boundaries.",
    ),
    (
        lambda: make(MESH, [None], {"dp": "sum", "tp": "max"}),
        LayoutError,
        "two different reductions are pending in [None] with partial dp (sum), tp (max).\n"
        "  resolve one before making the other.",
    ),
    (
        lambda: make(MESH, [None], ["tp"], "sun"),
        LayoutError,
        f"unknown reduction 'sun'.{OPS}\n  did you mean 'sum'?",
    ),
    (lambda: make(MESH, [None], [], "zzz"), LayoutError, f"unknown reduction 'zzz'.{OPS}"),
    (lambda: make(MESH, [None], [], 3), ArgumentError, f"a reduction is a ReduceOp or its name, got 3.{OPS}"),
    (
        lambda: make(None, ["x"]),
        MeshError,
        "no mesh was given.\n  pass mesh=DeviceMesh(...), or work inside `with mesh_context(mesh):`.",
    ),
    (lambda: make("mesh", ["x"]), ArgumentError, "a DeviceMesh was expected, got 'mesh'."),
    (
        lambda: make(MESH, "tp"),
        ArgumentError,
        "a Layout needs one entry per dim in a list, got 'tp'; write ['tp'].",
    ),
    (lambda: make(MESH, 3), ArgumentError, "a Layout needs one entry per dim in a list, got 3."),
    (lambda: make(MESH, {"tp"}), ArgumentError, "a Layout needs one entry per dim in a list, got {'tp'}."),
    (
        lambda: make(MESH, P("tp", unreduced=["dp"])),
        ArgumentError,
        "a Layout needs a list of entries, got P('tp', unreduced=('dp',)); use as_layout to convert it.",
    ),
    (lambda: make(MESH, [3]), ArgumentError, f"{ENTRY}3."),
    (lambda: make.replicated(MESH, -1), BindingError, "a rank is 0 or more, got -1."),
    (lambda: make(MESH, [("tp", None)]), ArgumentError, f"{ENTRY}('tp', None)."),
    (lambda: make(MESH, [{"tp"}]), ArgumentError, f"{ENTRY}{{'tp'}}."),
    (
        lambda: make(MESH, [None], 3),
        ArgumentError,
        "partial is a list of axes, or a dict from axes to reductions, got 3.",
    ),
    (
        lambda: make(MESH, [MESH.axis("tp"), None]).to_layout(3),
        BindingError,
        "the layout [tp|-] has 2 dims, the tensor has 3.",
    ),
    (
        lambda: make(MESH, [Axis("tp", 1, 8, 8)]),
        LayoutError,
        f"axis tp of 8 positions in ['tp'] belongs to another mesh.{AXES}",
    ),
]


@pytest.mark.parametrize(("action", "kind", "text"), ERRORS)
def test_errors_say_what_was_got_and_what_there_is(action, kind, text):
    with pytest.raises(kind) as caught:
        action()
    assert type(caught.value) is kind
    assert str(caught.value) == text


BINDING = [
    (["tp"], (2, 3), BindingError, "the layout [tp] has 1 dims, the shape (2, 3) has 2."),
    (["tp"], (-1,), BindingError, "the sizes in a shape are 0 or more, got -1 in (-1,)."),
    (["tp"], 4, ArgumentError, "a shape is a tuple of ints, got 4."),
    (["tp"], "4", ArgumentError, "a shape is a tuple of ints, got '4'."),
    (["tp"], (4.0,), ArgumentError, "the sizes in a shape are ints, got 4.0 in (4.0,)."),
    (["tp"], (True,), ArgumentError, "the sizes in a shape are ints, got True in (True,)."),
    (["tp"], ([4],), ArgumentError, "the sizes in a shape are ints, got [4] in ([4],)."),
    (
        [None, Cut("dp", offsets=(0, 3, 9))],
        (1, 10),
        BindingError,
        "the offsets (0, 3, 9) of dim 1 must end at its size 10, they end at 9.",
    ),
    (
        [Cut("tp", halo=(3, 0))],
        (10,),
        BindingError,
        "the low halo of dim 0 is 3 wide, but a neighbour's shard has only 2 of the 10 elements.\n"
        "  use a halo of at most 2, or fewer devices.",
    ),
    (
        [Cut("tp", split="chunk", halo=(3, 2), edge="pad")],
        (10,),
        BindingError,
        "the high halo of dim 0 is 2 wide, but a neighbour's shard has only 1 of the 10 elements.\n"
        "  use a halo of at most 1, or fewer devices.",
    ),
    (
        [Cut("tp", halo=1)],
        (3,),
        BindingError,
        "the high halo of dim 0 is 1 wide, but a neighbour's shard has only 0 of the 3 elements.\n"
        "  use a halo of at most 0, or fewer devices.",
    ),
]


@pytest.mark.parametrize(("dims", "shape", "kind", "text"), BINDING)
def test_a_layout_that_does_not_fit_says_why(dims, shape: Any, kind, text):
    layout = Layout(MESH, dims)
    for ask in (layout.tiling, lambda shape: layout.box(shape, 0), layout.picture):
        with pytest.raises(kind) as caught:
            ask(shape)
        assert type(caught.value) is kind
        assert str(caught.value) == text


def test_a_refused_shape_stays_refused():
    layout: Any = Layout(MESH, ["dp"])
    layout.box((1,), 0)
    with pytest.raises(ArgumentError):
        layout.box((True,), 0)
    with pytest.raises(ArgumentError):
        layout.box((1.0,), 0)


def test_dtypes_are_checked():
    layout: Any = Layout(MESH, [None], ["dp"], ReduceOp.BXOR)
    layout.check_dtype("int8")
    with pytest.raises(BindingError) as caught:
        layout.check_dtype("float32")
    assert str(caught.value) == (
        "reduction 'bxor' is not defined for float32.\n  reductions of float32: sum, avg, min, max, prod"
    )
    for wrong in ("float31", None, 3):
        with pytest.raises(ArgumentError, match="a dtype such as 'float32' was expected"):
            layout.max_local_bytes((4,), wrong)
    with pytest.raises(MeshError, match="device 8 is outside the mesh"):
        layout.box((4,), 8)


def test_shapes_are_tuples_of_ints():
    sizes: list[Any] = [np.int64(2), 0]
    assert check_shape(sizes) == (2, 0)
    assert check_shape(()) == ()
