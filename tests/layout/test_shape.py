"""Shapes: from the global shape to the shards' and back, with numbers and with names."""

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
    P,
    Replicated,
    Sharded,
    global_shape_from_local,
    local_shard_shape_from_global,
    shard_shape,
)
from tests.layout.oracle import held_box
from tests.layout.strategies import bound_layouts, meshes

MESH = DeviceMesh((2, 4), ("dp", "tp"))
LINE = DeviceMesh((4,), ("x",))
shards: Any = shard_shape  # lets the type checker pass wrong arguments
whole: Any = global_shape_from_local
pieces: Any = local_shard_shape_from_global


@given(bound_layouts())
def test_local_shapes_are_those_of_the_held_boxes(case):
    layout, shape = case
    expected = [
        tuple(stop - start for start, stop in held_box(layout, shape, device))
        for device in range(layout.mesh.num_devices)
    ]
    assert local_shard_shape_from_global(shape, None, layout) == expected
    assert shard_shape(shape, layout) == tuple(map(max, zip(*expected, strict=True)))


@given(bound_layouts())
def test_all_local_shapes_give_the_global_shape_back(case):
    layout, shape = case
    found = local_shard_shape_from_global(shape, layout.mesh, layout)
    assert global_shape_from_local(found, layout.mesh, layout) == shape


@given(bound_layouts())
def test_one_local_shape_gives_the_global_shape_back_where_all_are_equal(case):
    layout, shape = case
    found = set(local_shard_shape_from_global(shape, None, layout))
    if len(found) == 1:
        assert global_shape_from_local(found.pop(), None, layout) == shape
        return
    # The largest may fit another global size exactly; if so, that one has equal shards.
    try:
        other = global_shape_from_local(shard_shape(shape, layout), None, layout)
    except BindingError:
        return
    assert set(local_shard_shape_from_global(other, None, layout)) == {shard_shape(shape, layout)}


@given(bound_layouts(plain=True, even=True))
def test_a_shard_of_an_even_layout_inverts(case):
    layout, shape = case
    assert global_shape_from_local(shard_shape(shape, layout), None, layout) == shape


def test_ten_over_four():
    for mesh, placements in (
        (LINE, [Sharded(0)]),
        (DeviceMesh((2, 2), ("x", "y")), [Sharded(0), Sharded(0)]),
    ):
        assert pieces((10,), mesh, placements) == [(3,), (3,), (2,), (2,)]
        assert shard_shape((10,), placements, mesh) == (3,)
        assert whole([(3,), (3,), (2,), (2,)], mesh, placements) == (10,)
    chunk = [Sharded(0, split="chunk")]
    assert pieces((10,), LINE, chunk) == [(3,), (3,), (3,), (1,)]
    assert shard_shape((10,), chunk, LINE) == (3,)
    assert whole([(3,), (3,), (3,), (1,)], LINE, chunk) == (10,)


def test_halos_and_offsets_invert():
    padded = Layout(LINE, [Cut("x", halo=(1, 2), edge="pad")])
    assert whole((7,), None, padded) == (16,)
    clipped = Layout(DeviceMesh((2,), ("x",)), [Cut("x", halo=(1, 1))])
    assert whole((5,), None, clipped) == (8,)
    one_sided = Layout(DeviceMesh((3,), ("x",)), [Cut("x", halo=(1, 0))])
    assert pieces((10,), None, one_sided) == [(4,), (4,), (4,)]
    assert whole((4,), None, one_sided) == (10,)
    listed = Layout(LINE, [Cut("x", offsets=(0, 2, 4, 6, 8))])
    assert whole((2,), None, listed) == (8,)
    assert whole((3,), None, Layout(LINE, [Cut(halo=1, edge="pad")])) == (1,)


@given(st.data())
def test_names_divide_and_multiply(data):
    mesh = data.draw(meshes(max_axes=2))
    layout = Layout(mesh, [mesh.axis_names, None])
    found = shard_shape(("batch", "seq"), layout)
    n = mesh.num_devices
    assert found == ("batch" if n == 1 else f"batch/{n}", "seq")
    assert global_shape_from_local(found, None, layout) == ("batch", "seq")
    assert local_shard_shape_from_global(("batch", "seq"), None, layout) == [found] * n
    assert global_shape_from_local([found] * n, None, layout) == ("batch", "seq")


@pytest.mark.parametrize(
    ("size", "placements", "expected"),
    [
        ("batch", [Replicated()], "batch"),
        ("batch", [Sharded(0)], "batch/4"),
        ("batch", [Sharded(0, split="chunk")], "batch/4"),
        ("batch/2", [Sharded(0)], "batch/8"),
        ("8*batch", [Sharded(0)], "2*batch"),
        ("2*batch/3", [Sharded(0)], "batch/6"),
        ("n_1", [Sharded(0)], "n_1/4"),
    ],
)
def test_named_sizes(size, placements, expected):
    assert shard_shape((size, 3), placements, LINE) == (expected, 3)
    assert global_shape_from_local((expected, 3), LINE, placements) == (size, 3)


def test_scalars_and_empty_tensors():
    assert shard_shape((), P(), MESH) == ()
    assert pieces((), MESH, P()) == [()] * 8
    assert whole((), MESH, P()) == ()
    assert whole([()] * 8, MESH, P()) == ()
    assert shard_shape((0, 4), P("tp"), MESH) == (0, 4)
    assert whole((0, 4), MESH, P("tp")) == (0, 4)
    assert pieces((2,), LINE, P("x")) == [(1,), (1,), (0,), (0,)]
    assert whole([(1,), (1,), (0,), (0,)], LINE, P("x")) == (2,)


def test_shapes_of_any_kind():
    for shape in ([8, 2], np.array([8, 2]), (np.int64(8), 2), iter([8, 2])):
        found = shards(shape, P("x"), LINE)
        assert found == (2, 2)
        assert {type(size) for size in found} == {int}
    assert pieces(iter([8, "n"]), LINE, P("x")) == [(2, "n")] * 4
    assert whole(iter([2, 2]), LINE, P("x")) == (8, 2)
    assert whole([(np.int64(3),), (3,), [2], (np.int8(2),)], LINE, P("x")) == (10,)


ERRORS = [
    (
        lambda: shards("batch", P("x"), LINE),
        ArgumentError,
        "a shape is a tuple of ints or names, got 'batch'.",
    ),
    (lambda: shards(4, P("x"), LINE), ArgumentError, "a shape is a tuple of ints or names, got 4."),
    (
        lambda: shards((-1,), P("x"), LINE),
        BindingError,
        "the sizes in a shape are 0 or more, got -1 in (-1,).",
    ),
    (
        lambda: shards((1.5,), P("x"), LINE),
        ArgumentError,
        "the sizes in a shape are ints, got 1.5 in (1.5,).",
    ),
    (
        lambda: shards((True,), P("x"), LINE),
        ArgumentError,
        "the sizes in a shape are ints, got True in (True,).",
    ),
    (
        lambda: shards(("2batch",), P("x"), LINE),
        BindingError,
        "a named dim is a name such as 'batch', or a quotient such as 'batch/4', got '2batch'.",
    ),
    (
        lambda: shards(("batch/0",), P("x"), LINE),
        BindingError,
        "a named dim is a name such as 'batch', or a quotient such as 'batch/4', got 'batch/0'.",
    ),
    (
        lambda: shards(("batch",), [Sharded(0, halo=1)], LINE),
        BindingError,
        "the named dim 'batch' has no known size, so it cannot be cut with halo=(1, 1).",
    ),
    (
        lambda: pieces(("batch",), LINE, [Sharded(0, offsets=(0, 1, 2, 3, 4))]),
        BindingError,
        "the named dim 'batch' has no known size, so it cannot be cut with offsets=(0, 1, 2, 3, 4).",
    ),
    (
        lambda: shards((3,), [Sharded(0, halo=1)], LINE),
        BindingError,
        "the high halo of dim 0 is 1 wide, but a neighbour's shard has only 0 of the 3 elements.\n"
        "  use a halo of at most 0, or fewer devices.",
    ),
    (
        lambda: whole((3,), LINE, [Sharded(0, offsets=(0, 1, 2, 3, 4))]),
        BindingError,
        "dim 0 of one local shape does not give the global size: "
        "not all shards of [x/offsets] can have 3 elements.\n  pass the list of all devices' shapes.",
    ),
    (
        lambda: whole((5,), LINE, [Sharded(0, halo=1)]),
        BindingError,
        "dim 0 of one local shape does not give the global size: "
        "not all shards of [x±(1,1)] can have 5 elements.\n  pass the list of all devices' shapes.",
    ),
    (
        lambda: whole([(3,), (3,)], LINE, P("x")),
        BindingError,
        "the mesh (x=4) has 4 devices, got 2 local shapes.",
    ),
    (
        lambda: whole([(3,), (3,), (3,), (3, 1)], LINE, P("x")),
        BindingError,
        "local shapes must have equally many dims, got (3,) and (3, 1).",
    ),
    (
        lambda: whole([(2,), (3,), (3,), (2,)], LINE, P("x")),
        BindingError,
        "the local shapes do not come from one global shape: (10,) would give device 0 the shape (3,), "
        "it has (2,).\n  layout: [x]",
    ),
    (
        lambda: whole([(3,), (3,), (3,), (2,)], LINE, P()),
        BindingError,
        "the local shapes do not come from one global shape: (3,) would give device 3 the shape (3,), "
        "it has (2,).\n  layout: [-]",
    ),
    (lambda: whole([(3,), 3], LINE, P("x")), ArgumentError, "a shape is a tuple of ints or names, got 3."),
    (
        lambda: whole("batch", LINE, P("x")),
        ArgumentError,
        "a local shape is a tuple of sizes, or a list of such tuples, got 'batch'.",
    ),
]


@pytest.mark.parametrize(("action", "kind", "text"), ERRORS)
def test_errors_say_what_was_got_and_what_there_is(action, kind, text):
    with pytest.raises(kind) as caught:
        action()
    assert type(caught.value) is kind
    assert str(caught.value) == text
