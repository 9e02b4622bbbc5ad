"""Collectives with a root, along one axis or several, against NumPy on stacks of local arrays."""

from collections.abc import Callable
from itertools import permutations
from math import prod
from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
from shardwise import ArgumentError, DeviceMesh, LayoutError, P, jvp, shard_map, vjp
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
        (lambda a: sw.shift(a, "b", 1.5), ArgumentError, "shift: offset is how many positions as an int, got 1.5"),
        (lambda a: sw.shift(a, "b", True), ArgumentError, "shift: offset is how many positions as an int, got True"),
        (lambda a: sw.halo_exchange(a, 0, 1, mesh_axis=("a", "b")), LayoutError, "goes along one mesh axis, got"),
        (lambda a: sw.halo_exchange(a, 0, True, mesh_axis="b"), LayoutError, "a halo is a pair of widths"),
        (lambda a: sw.reduce(a, "a", 0, "mean"), LayoutError, "unknown reduction 'mean'"),
        (lambda a: sw.all_reduce(a, reduce_axes=True), (ArgumentError, LayoutError), "True"),
    ],
)
def test_what_is_no_root_axis_or_dim_is_refused(call: Any, error: Any, text: str) -> None:
    for mesh in (DeviceMesh((2, 3), ("a", "b")), DeviceMesh((1, 1), ("a", "b"))):
        if mesh.num_devices == 1 and text.startswith("root 6"):
            continue
        with pytest.raises(error, match=text):
            shard_map(call, mesh, P(), P())(np.zeros((6, 6)))
