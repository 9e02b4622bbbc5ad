"""Collectives with a root, along one axis or several, against NumPy on stacks of local arrays."""

from collections.abc import Callable
from itertools import permutations, product
from math import prod
from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
from shardwise import ArgumentError, DeviceMesh, LayoutError, P, grad, jvp, shard_map, vjp
from shardwise.ops.rooted import broadcast, gather, reduce, scatter, send_recv
from tests.prim.cases import held, same, values

MESHES = [DeviceMesh((2, 3), ("a", "b")), DeviceMesh((2, 1, 3), ("a", "b", "c")), DeviceMesh((1,), ("a",))]


def groups_of(mesh: DeviceMesh) -> list[tuple[str, ...]]:
    return [some for count in range(mesh.ndim + 1) for some in permutations(mesh.axis_names, count)]


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_along_several_axes_groups_are_those_of_all_of_them(mesh: DeviceMesh) -> None:
    spec = P(mesh.axis_names)
    for axes in groups_of(mesh):
        size = prod(mesh.axis_size(a) for a in axes)
        stack = values((mesh.num_devices, size, 2), "float64", 1)
        x, root = stack.reshape(-1, 2), size - 1

        def check(fn: Callable[[Any], Any], oracle: Callable[[list[np.ndarray], int], np.ndarray]) -> None:
            f = shard_map(fn, mesh, spec, spec)
            y = f(x)  # noqa: B023
            for group in mesh.groups(axes) if axes else [[d] for d in range(mesh.num_devices)]:  # noqa: B023
                for at, device in enumerate(group):
                    assert same(held(y)[device], np.asarray(oracle([stack[d] for d in group], at)) + 0.0)  # noqa: B023
            t, w = values(x.shape, "float64", 2), values(y.shape, "float64", 3)  # noqa: B023
            forward, back = jvp(f, (x,), (t,))[1].numpy(), vjp(f, x)[1](w)[0].numpy()  # noqa: B023
            assert np.isclose((forward * w).sum(), (back * t).sum())

        check(lambda x: sw.broadcast(x, axes, root), lambda g, at: g[root])  # noqa: B023
        check(lambda x: sw.reduce(x, axes, root), lambda g, at: np.sum(g, 0) * (at == root))  # noqa: B023
        check(lambda x: sw.reduce(x, axes, root, "prod"), lambda g, at: np.prod(g, 0) * (at == root))  # noqa: B023
        check(lambda x: sw.gather(x, axes, root, 1), lambda g, at: np.concatenate(g, 1) * (at == root))  # noqa: B023
        check(lambda x: sw.scatter(x, axes, root), lambda g, at: np.split(g[root], len(g))[at])  # noqa: B023
        check(lambda x: sw.send_recv(x, axes, root, 0), lambda g, at: g[root] * (at == 0))  # noqa: B023
        check(lambda x: sw.shift(x, axes, 1), lambda g, at: g[at - 1])  # noqa: B023
        check(lambda x: x * sw.axis_index(axes), lambda g, at: g[at] * at)  # noqa: B023


@pytest.mark.parametrize("integer", [int, np.int64, np.int8, np.uint8], ids=lambda kind: kind.__name__)
def test_roots_positions_and_dims_are_any_integers(integer: Any) -> None:
    mesh = MESHES[0]
    x = values((6, 6), "float64")
    for fn in (
        lambda a, i: sw.broadcast(a, "b", i(2)),
        lambda a, i: sw.reduce(a, i(1), i(2)),  # an axis by its number
        lambda a, i: sw.gather(a, "b", i(1), i(1)),
        lambda a, i: sw.scatter(a, ("b",), i(1), dim=i(1)),
        lambda a, i: sw.send_recv(a, "b", i(0), i(2)),
        lambda a, i: sw.shift(a, "b", i(1)),
        lambda a, i: sw.ppermute(a, [(i(0), i(1))], axis="b"),
        lambda a, i: sw.all_gather(a, i(1), physical_axis="b"),
        lambda a, i: sw.all_slice(a, i(1), "b"),
        lambda a, i: sw.reduce_scatter(a, i(1), reduce_axes=i(1)),
        lambda a, i: sw.all_to_all(a, i(1), i(0), mesh_axes="b"),
        lambda a, i: sw.halo_exchange(a, i(1), i(1), mesh_axis="b"),
        lambda a, i: sw.halo_exchange(a, i(0), (i(1), i(0)), mesh_axis="b"),
        lambda a, i: a[i(0)],
        lambda a, i: a.softmax(i(1)),
    ):
        seen: list[Any] = []
        made = []
        for kind in (integer, int):

            def local(a: Any, fn: Any = fn, kind: Any = kind) -> Any:
                out = fn(a, kind)
                seen.extend(out.shape)  # noqa: B023
                return sw.reshape(out, (-1,))

            made.append(shard_map(local, mesh, P("a"), P(("a", "b")))(x).numpy())
        assert same(*made)
        assert all(type(size) is int for size in seen)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda a: sw.broadcast(a, "b", True), ArgumentError, "broadcast: root is a position as an int, got True"),
        (lambda a: sw.reduce(a, "b", cast(Any, 1.0)), ArgumentError, r"reduce: root is a position as an int, got 1.0"),
        (lambda a: sw.gather(a, "b", 0, cast(Any, "x")), ArgumentError, "gather: a dim is an int, got 'x'"),
        (lambda a: sw.gather(a, "b", 0, True), ArgumentError, "gather: a dim is an int, got True"),
        (lambda a: sw.scatter(a, ("a", "b"), 6), LayoutError, r"root 6 is no position along \('a', 'b'\), which has 6"),
        (lambda a: sw.broadcast(a, ("a", "a")), LayoutError, "mesh axis 'a' is used twice in the axes of broadcast"),
        (lambda a: sw.shift(a, "b", 1.5), ArgumentError, "shift: offset is how many positions as an int, got 1.5"),  # type: ignore
        (lambda a: sw.shift(a, "b", True), ArgumentError, "shift: offset is how many positions as an int, got True"),
        (lambda a: sw.halo_exchange(a, 0, 1, mesh_axis=("a", "b")), LayoutError, "goes along one mesh axis, got"),  # type: ignore
        (lambda a: sw.halo_exchange(a, 0, True, mesh_axis="b"), LayoutError, "a halo is a pair of widths"),
        (lambda a: sw.reduce(a, "a", 0, "mean"), LayoutError, "unknown reduction 'mean'"),
        (lambda a: sw.all_reduce(a, reduce_axes=True), (ArgumentError, LayoutError), "True"),  # type: ignore
    ],
)
def test_what_is_no_root_axis_or_dim_is_refused(call: Any, error: Any, text: str) -> None:
    for mesh in (DeviceMesh((2, 3), ("a", "b")), DeviceMesh((1, 1), ("a", "b"))):
        if mesh.num_devices == 1 and text.startswith("root 6"):
            continue
        with pytest.raises(error, match=text):
            shard_map(call, mesh, P(), P())(np.zeros((6, 6)))


# -- one axis: every root and every dim --------------------------------------------------------------------

MESH = DeviceMesh((2, 3), ("x", "y"))
LOCAL = (3, 6)
VALUE = np.random.default_rng(0).integers(-9, 10, (6, 18)).astype("float64")
PLACES = list(product(range(2), range(3)))


def local(value: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
    rows, columns = value.shape[0] // 2, value.shape[1] // 3
    return {(x, y): value[x * rows : (x + 1) * rows, y * columns : (y + 1) * columns] for x, y in PLACES}


def run(function: Any) -> dict[tuple[int, int], np.ndarray]:
    return local(shard_map(function, MESH, P("x", "y"), P("x", "y"))(VALUE).numpy())


def line(place: tuple[int, int], axis: str) -> list[tuple[int, int]]:
    x, y = place
    return [(i, y) for i in range(2)] if axis == "x" else [(x, i) for i in range(3)]


GIVEN = local(VALUE)
ROOTS = [("x", 0), ("x", 1), ("y", 0), ("y", 1), ("y", 2)]


@pytest.mark.parametrize(("axis", "root"), ROOTS)
def test_every_member_gets_what_it_should(axis: str, root: int) -> None:
    for place, got in run(lambda a: broadcast(a, axis, root)).items():
        np.testing.assert_array_equal(got, GIVEN[line(place, axis)[root]])
    for op, theirs in (("sum", np.add), ("max", np.maximum), ("prod", np.multiply)):
        for place, got in run(lambda a, op=op: reduce(a, axis, root, op)).items():
            total = theirs.reduce([GIVEN[p] for p in line(place, axis)])
            at_root = line(place, axis)[root] == place
            np.testing.assert_array_equal(got, total if at_root else np.zeros(LOCAL))
    for dim in (0, 1, -1):
        for place, got in run(lambda a, dim=dim: gather(a, axis, root, dim)).items():
            joined = np.concatenate([GIVEN[p] for p in line(place, axis)], dim)
            np.testing.assert_array_equal(got, joined if line(place, axis)[root] == place else 0 * joined)
    count, dim = (2, 1) if axis == "x" else (3, 0)
    for place, got in run(lambda a: scatter(a, axis, root, dim)).items():
        members = line(place, axis)
        np.testing.assert_array_equal(got, np.split(GIVEN[members[root]], count, dim)[members.index(place)])


@pytest.mark.parametrize(("source", "target"), [(0, 2), (2, 0), (1, 1)])
def test_one_sends_to_one(source: int, target: int) -> None:
    for (x, y), got in run(lambda a: send_recv(a, "y", source, target)).items():
        np.testing.assert_array_equal(got, GIVEN[x, source] if y == target else np.zeros(LOCAL))


@pytest.mark.parametrize("name", ["broadcast", "reduce", "gather", "scatter"])
def test_a_root_is_a_position_along_the_axis(name: str) -> None:
    function = {"broadcast": broadcast, "reduce": reduce, "gather": gather, "scatter": scatter}[name]
    for root in (-1, 3):
        with pytest.raises(LayoutError) as caught:
            run(lambda a, root=root: function(a, "y", root))
        assert str(caught.value) == f"{name}: root {root!r} is no position along 'y', which has 3."


def test_pieces_must_be_equal() -> None:
    with pytest.raises(sw.BindingError, match=r"scatter needs equal pieces: 3 is not a multiple of 2\."):
        run(lambda a: scatter(a, "x", 0, 0))


def test_an_axis_of_one_device_changes_nothing() -> None:
    one = DeviceMesh((1, 3), ("x", "y"))
    for function in (broadcast, reduce, gather, scatter):
        got = shard_map(lambda a, f=function: f(a, "x"), one, P("x", "y"), P("x", "y"))(VALUE)
        np.testing.assert_array_equal(got.numpy(), VALUE)


@pytest.mark.parametrize("name", ["broadcast", "reduce", "gather", "scatter"])
def test_derivatives_are_transposes(name: str) -> None:
    function = {"broadcast": broadcast, "reduce": reduce, "gather": gather, "scatter": scatter}[name]
    mapped = shard_map(lambda a: function(a, "y", 1), MESH, P("x", "y"), P("x", "y"))
    x = sw.asarray(VALUE)
    out = mapped(x)
    weight = np.random.default_rng(1).integers(-5, 6, out.shape).astype("float64")
    back = grad(lambda x: (mapped(x) * sw.asarray(weight)).sum())(x)
    other = np.random.default_rng(2).integers(-5, 6, VALUE.shape).astype("float64")
    assert (back.numpy() * other).sum() == (mapped(sw.asarray(other)).numpy() * weight).sum()
