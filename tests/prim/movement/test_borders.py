"""Surrounds: what dims are made of, and that no element comes to a device twice."""

import numpy as np
import pytest

from shardwise import DeviceMesh, Layout, P, grad, shard
from shardwise.prim.movement.borders import stretches, surround, surrounded_shape
from shardwise.prim.views.spans import Span, Stretch
from tests.ops.cases import sent
from tests.prim.cases import assert_holds


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize(("size", "low", "high"), [(4, 2, 1), (5, 0, 3), (3, 2, 2), (4, 3, 0)])
def test_stretches_are_the_elements_that_numpy_takes(mode, size, low, high):
    ways = stretches(size, low, high, mode)
    got = [part.first + part.step * i for part in ways for i in range(part.length)]
    assert got == np.pad(np.arange(size), (low, high), mode=mode).tolist()
    assert surrounded_shape([ways]) == (low + size + high,)


def test_an_element_that_is_needed_again_and_again_is_sent_once():
    mesh = DeviceMesh((2,), ("x",))
    x = shard(np.arange(4.0), mesh, P("x"))
    # Twelve elements: the second device has six of the last seven, all of them the last element, which it has.
    made, size = sent(lambda: surround(x, stretches=(stretches(4, 0, 8, "edge"),), layout=P("x").to_layout(1, mesh)))
    assert made.numpy().tolist() == [0.0, 1.0, 2.0, *[3.0] * 9]
    assert size == 2 * 8  # the first device lacks two elements, though it has one of them thrice


MESH = DeviceMesh((2, 3), ("x", "y"))
SIZES = [(5, 2, 1), (4, 3, 3), (7, 0, 2), (3, 1, 0), (1, 0, 0)]


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize("dims", [["x", "y"], [("y", "x"), None], [None, None]], ids=str)
def test_each_device_holds_its_part_of_what_numpy_pads(mode, dims):
    layout = Layout(MESH, dims)
    for (n, a, b), (m, c, d) in zip(SIZES, SIZES[::-1], strict=True):
        value = np.arange(float(n * m)).reshape(n, m)
        ways = (stretches(n, a, b, mode), stretches(m, c, d, mode))
        made = surround(shard(value, MESH, layout), stretches=ways, layout=layout)
        assert_holds(made, layout, np.pad(value, ((a, b), (c, d)), mode=mode))


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_what_comes_back_is_added_up(mode):
    layout = Layout(MESH, ["y", None])
    value = np.arange(10.0).reshape(5, 2)
    ways = (stretches(5, 2, 3, mode), stretches(2, 1, 1, mode))
    weight = np.random.default_rng(0).integers(-5, 6, (10, 4)).astype("float64")
    made = shard(weight, MESH, layout)
    got = grad(lambda x: (surround(x, stretches=ways, layout=layout) * made).sum())(shard(value, MESH, layout))
    # Each element has the sum of the weights of the places where it stands.
    where = np.pad(np.arange(10).reshape(5, 2), ((2, 3), (1, 1)), mode=mode)
    want = np.zeros(10)
    np.add.at(want, where.ravel(), weight.ravel())
    np.testing.assert_array_equal(got.numpy(), want.reshape(5, 2))
    assert got.layout is layout


@pytest.mark.parametrize(
    ("stretch", "span"),
    [
        (Stretch(3, 5, -1), Span(3, 3)),
        (Stretch(3, 5, 1), Span(5, 3)),
        (Stretch(4, 6, 0), Span(6, 1)),
        (Stretch(1, 2, -1), Span(2, 1)),
    ],
)
def test_a_stretch_runs_over_elements_in_order(stretch, span):
    assert stretch.span == span


def test_nothing_is_added_where_nothing_is_asked_for():
    assert stretches(4, 0, 0, "edge") == (Stretch(4, 0, 1),)
    assert stretches(0, 0, 0, "wrap") == ()
    assert surrounded_shape([(), stretches(3, 1, 1, "edge")]) == (0, 5)


def test_only_what_a_device_lacks_is_sent():
    mesh = DeviceMesh((4,), ("x",))
    x = shard(np.arange(8.0), mesh, P("x"))
    for mode in ("edge", "reflect", "wrap"):
        ways, layout = (stretches(8, 2, 2, mode),), P("x").to_layout(1, mesh)
        _, size = sent(lambda ways=ways, layout=layout: surround(x, stretches=ways, layout=layout))
        where = np.pad(np.arange(8), 2, mode=mode)
        lacking = 0
        for device in range(4):
            (start, stop), (first, last) = layout.box((12,), device)[0], layout.box((8,), device)[0]
            lacking += len(set(where[start:stop].tolist()) - set(range(first, last)))
        assert size == lacking * 8
