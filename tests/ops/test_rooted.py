"""Collectives with a root, for every root, axis and dim, against what each device holds."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import DeviceMesh, LayoutError, P, grad, shard_map
from shardwise.ops.rooted import broadcast, gather, reduce, scatter, send_recv

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
    for root in (-1, 3, True):
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
