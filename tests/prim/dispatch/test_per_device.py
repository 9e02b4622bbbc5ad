"""Work of each device on what it holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import (
    AbstractEngine,
    DeviceMesh,
    Layout,
    P,
    asarray,
    concat,
    current_engine,
    engine_context,
    shard,
    stack,
    vjp,
)
from shardwise.engine.storage import storage_of
from shardwise.prim.dispatch.per_device import make_arrays, map_shards, take_shards
from tests.layout.oracle import held_box
from tests.prim.cases import SHAPES, host_meshes, layouts_for


def test_the_abstract_engine_does_not_run_kernels() -> None:
    def fail(place, array):
        raise AssertionError

    with engine_context(AbstractEngine()):
        x = asarray(np.ones(2, "int8"))
        out = map_shards(fail, [x], x.layout, (3,))
    assert (out.arrays[0].shape, out.dtype) == ((3,), np.dtype("int8"))


def test_a_kernel_is_told_where_its_result_lies() -> None:
    mesh = DeviceMesh((2, 2), ("x", "y"))
    x = shard(np.zeros(5), mesh, P("y"))
    seen = []

    def kernel(place, array):
        seen.append((place.device, place.box, place.shape))
        return array + place.box[0][0]

    out = map_shards(kernel, [x], x.layout, x.shape)
    assert seen == [(0, ((0, 3),), (3,)), (1, ((3, 5),), (2,))]
    np.testing.assert_array_equal(out.numpy(), [0, 0, 0, 3, 3])


def test_arrays_of_two_libraries_become_those_of_one() -> None:
    torch = pytest.importorskip("torch")
    mesh = DeviceMesh((2, 2), ("x", "y"))
    value = np.arange(5, dtype="float32")
    n, t = shard(value, mesh, P("x")), shard(torch.arange(5, dtype=torch.float32), mesh, P("y"))
    for got, want in (
        (concat([n, t]), np.concatenate([value, value])),
        (concat([t, n]), np.concatenate([value, value])),
        (stack([t, n]), np.stack([value, value])),
        (t.at[1:3].set(np.array([7, 8], "float32")), np.array([0, 7, 8, 3, 4], "float32")),
        (n.at[1:3].set(torch.tensor([7.0, 8.0])), np.array([0, 7, 8, 3, 4], "float32")),
        (vjp(lambda x: x.at[1:3].set(0.0), t)[1](np.ones(5, "float32"))[0], np.array([1, 0, 0, 1, 1], "float32")),
    ):
        np.testing.assert_array_equal(got.numpy(), want)


@given(st.data(), host_meshes(), SHAPES)
def test_each_array_of_a_result_is_made_once_by_its_first_holder(data, mesh, shape) -> None:
    layout = data.draw(layouts_for(mesh, shape))
    seen = []

    def kernel(place):
        seen.append(place.device)
        assert place.box == held_box(layout, shape, place.device)
        return np.zeros(place.shape, "int8")

    x = make_arrays(kernel, [], layout, shape, np.dtype("int8"), current_engine())
    assert tuple(seen) == storage_of(layout, shape).firsts
    assert x.layout is layout


def test_arrays_are_taken_as_they_are() -> None:
    mesh = DeviceMesh((2,), ("x",))
    x = shard(np.arange(4), mesh, P("x"))
    swapped = take_shards(x, x.layout, x.shape, lambda device: 1 - device)
    assert swapped.arrays[0] is x.arrays[1]
    np.testing.assert_array_equal(swapped.numpy(), [2, 3, 0, 1])


# -- memory, counters, libraries -------------------------------------------------------------------------


def test_views_take_no_memory_and_others_do() -> None:
    engine = AbstractEngine()
    with engine_context(engine):
        x = shard(np.ones(8), DeviceMesh((2,), ("x",)), P("x"))
        before = engine.live
        seen = map_shards(lambda place, a: a, [x], x.layout, x.shape, view=True)
        assert engine.live == before
        other = map_shards(lambda place, a: a, [x], x.layout, x.shape)
        assert engine.live == before + 32
        assert seen.shape == other.shape == (8,)


def test_the_dtype_is_that_of_the_first_operand_unless_it_is_given() -> None:
    mesh = DeviceMesh((2,), ("x",))
    x, y = shard(np.ones(4, "int8"), mesh, P("x")), shard(np.ones(4, "float32"), mesh, P("x"))
    assert map_shards(lambda place, a, b: a, [x, y], x.layout, x.shape).dtype == "int8"
    assert map_shards(lambda place, a, b: b, [x, y], x.layout, x.shape, y.dtype).dtype == "float32"


def test_each_call_of_a_kernel_is_counted() -> None:
    mesh = DeviceMesh((2, 2), ("x", "y"))
    x, y = shard(np.arange(6.0), mesh, P("x")), shard(np.arange(6.0), mesh, P())
    counters = current_engine().counters
    for operands in ([x], [x, x], [x, x, x]):
        counters.reset()
        made = map_shards(lambda place, *some: sum(some), operands, x.layout, x.shape)
        assert counters.kernel_calls == 2
        assert made.numpy().tolist() == (len(operands) * np.arange(6.0)).tolist()
    counters.reset()
    cut = map_shards(lambda place, a, b: a * b[slice(*place.box[0])], [x, y], x.layout, x.shape)
    assert cut.numpy().tolist() == (np.arange(6.0) ** 2).tolist()
    assert counters.kernel_calls == 2


@pytest.mark.parametrize("shape", [(), (2,)])
def test_scalars_of_numpy_become_arrays(shape: tuple[int, ...]) -> None:
    mesh = DeviceMesh((2,), ("x",))
    x = shard(np.ones(shape), mesh, P())
    for operands in ([x], [x, x]):
        out = map_shards(lambda place, *some: some[0].sum() if not shape else some[0], operands, x.layout, shape)
        assert all(type(array) is np.ndarray for array in out.arrays)
    bare = make_arrays(
        lambda place: np.float64(3.0), [], Layout.replicated(mesh, 0), (), np.dtype(float), current_engine()
    )
    assert [type(array) for array in bare.arrays] == [np.ndarray]
    assert bare.item() == 3.0


def test_arrays_of_torch_stay_what_they_are_also_without_dims() -> None:
    torch = pytest.importorskip("torch")
    x = shard(torch.tensor(2.0), DeviceMesh((2,), ("x",)), P())
    out = map_shards(lambda place, a: a + 1, [x], x.layout, ())
    assert isinstance(out.arrays[0], torch.Tensor)
    bare = make_arrays(lambda place: torch.tensor(3.0), [], x.layout, (), x.dtype, current_engine())
    assert isinstance(bare.arrays[0], torch.Tensor)


@pytest.mark.parametrize("which", ["nn", "tt", "nt", "tn", "nnt", "ttn", "nnn"])
def test_kernels_see_one_library(which: str) -> None:
    torch = pytest.importorskip("torch")
    mesh = DeviceMesh((2,), ("x",))
    makers = {"n": lambda: np.arange(4.0), "t": lambda: torch.arange(4.0, dtype=torch.float64)}
    operands, seen = [shard(makers[kind](), mesh, P("x")) for kind in which], []

    def kernel(place, *some):
        seen.extend(map(type, some))
        return some[0]

    map_shards(kernel, operands, operands[0].layout, (4,))
    assert set(seen) == {torch.Tensor if "t" in which else np.ndarray}
    assert len(seen) == 2 * len(which)


def test_arrays_are_taken_in_the_order_of_the_new_layout() -> None:
    mesh = DeviceMesh((2, 3), ("x", "y"))
    x = shard(np.arange(6), mesh, P(("x", "y")))
    turned = Layout(mesh, [("y", "x")])
    y = take_shards(x, turned, (6,))
    # Every device holds what it held: device (i, j) is part 2 j + i of the new order.
    assert y.numpy().tolist() == [0, 3, 1, 4, 2, 5]
    assert [y.local(d).tolist() for d in range(6)] == [[d] for d in range(6)]
    assert y.layout is turned
    same = take_shards(x, x.layout, (6,))
    assert all(a is b for a, b in zip(same.arrays, x.arrays, strict=True))
    spread = take_shards(x, turned, (6,), lambda device: 5 - device)
    assert [spread.local(d).tolist() for d in range(6)] == [[5 - d] for d in range(6)]


def test_taking_makes_no_memory_on_the_abstract_engine() -> None:
    mesh = DeviceMesh((2, 3), ("x", "y"))
    engine = AbstractEngine()
    with engine_context(engine):
        x = shard(np.zeros(6), mesh, P(("x", "y")))
        before = engine.live
        y = take_shards(x, Layout(mesh, [("y", "x")]), (6,))
        z = make_arrays(lambda place: None, [], x.layout, (6,), np.dtype("int16"), engine)
        assert (y.shape, y.arrays[0].shape, z.arrays[0].dtype) == ((6,), (1,), np.dtype("int16"))
        assert engine.live == before + 2
