"""Local-view programs against JAX's shard_map, values and derivatives, and against NumPy where JAX has no such op."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwise as sw
from shardwise import (
    ArgumentError,
    BindingError,
    Cut,
    DeviceMesh,
    Layout,
    LayoutError,
    LocalTensor,
    P,
    all_gather,
    all_reduce,
    all_slice,
    all_to_all,
    axis_index,
    halo_exchange,
    jvp,
    pmean,
    ppermute,
    reduce_scatter,
    shard,
    shard_map,
    shift,
    vjp,
)
from tests.prim.cases import held, host_meshes, jax_of_eight, same, values

MESH = DeviceMesh((2, 4), ("a", "b"))
RNG = np.random.default_rng(0)
X = RNG.integers(-5, 6, (16, 32, 3)).astype("float64")


@pytest.fixture(scope="module")
def jax() -> Any:
    """JAX with eight CPU devices."""
    return jax_of_eight()


class Program(NamedTuple):
    """A local-view program in our words and in JAX's, and the axes of its result."""

    ours: Callable[[Any], Any]
    theirs: Callable[[Any, Any], Any]  # of lax and the argument
    out: tuple[Any, ...] = ("a", "b")


PROGRAMS = {
    "sum b": Program(lambda x: all_reduce(x, reduce_axes="b"), lambda lax, x: lax.psum(x, "b")),
    "sum a b": Program(lambda x: all_reduce(x), lambda lax, x: lax.psum(x, ("a", "b"))),
    "sum to replicas": Program(
        lambda x: all_reduce(x * x, reduce_axes="b") * 2.0, lambda lax, x: lax.psum(x * x, "b") * 2.0, ("a", None)
    ),
    "mean": Program(lambda x: pmean(x, "a"), lambda lax, x: lax.pmean(x, "a")),
    "gather 0": Program(
        lambda x: all_gather(x, 0, physical_axis="b"), lambda lax, x: lax.all_gather(x, "b", axis=0, tiled=True)
    ),
    "gather b a": Program(
        lambda x: all_gather(x, 1, physical_axis=("b", "a")),
        lambda lax, x: lax.all_gather(x, ("b", "a"), axis=1, tiled=True),
    ),
    "gather last": Program(
        lambda x: all_gather(x, -1), lambda lax, x: lax.all_gather(x, ("a", "b"), axis=2, tiled=True)
    ),
    "reduce_scatter": Program(
        lambda x: reduce_scatter(x, 0, reduce_axes="b"),
        lambda lax, x: lax.psum_scatter(x, "b", scatter_dimension=0, tiled=True),
    ),
    "reduce_scatter b a": Program(
        lambda x: reduce_scatter(x, 1, reduce_axes=("b", "a")),
        lambda lax, x: lax.psum_scatter(x, ("b", "a"), scatter_dimension=1, tiled=True),
    ),
    "all_to_all": Program(
        lambda x: all_to_all(x, 0, 1, mesh_axes="b"), lambda lax, x: lax.all_to_all(x, "b", 0, 1, tiled=True)
    ),
    "all_to_all last": Program(
        lambda x: all_to_all(x, 1, -1, mesh_axes="a"), lambda lax, x: lax.all_to_all(x, "a", 1, 2, tiled=True)
    ),
    "all_to_all b a": Program(
        lambda x: all_to_all(x, 1, 0, mesh_axes=("b", "a")),
        lambda lax, x: lax.all_to_all(x, ("b", "a"), 1, 0, tiled=True),
    ),
    "all_to_all in place": Program(
        lambda x: all_to_all(x, 0, 0, mesh_axes="b"), lambda lax, x: lax.all_to_all(x, "b", 0, 0, tiled=True)
    ),
    "ppermute": Program(
        lambda x: ppermute(x, [(0, 1), (2, 3), (3, 0)], axis="b"),
        lambda lax, x: lax.ppermute(x, "b", [(0, 1), (2, 3), (3, 0)]),
    ),
    "axis_index": Program(
        lambda x: x * (1.0 + axis_index("b") + 10 * axis_index("a")),
        lambda lax, x: x * (1.0 + lax.axis_index("b") + 10 * lax.axis_index("a")),
    ),
    "arithmetic": Program(
        lambda x: (2.0 - x) / (x * x + 3.0) + (-x) ** 3 - x / 7.0 + 1.0 / (x * x + 1.0),
        lambda lax, x: (2.0 - x) / (x * x + 3.0) + (-x) ** 3 - x / 7.0 + 1.0 / (x * x + 1.0),
    ),
    "several": Program(
        lambda x: all_reduce(x * x, reduce_axes="b") * x - shift(x, "a") / 3.0,
        lambda lax, x: lax.psum(x * x, "b") * x - lax.ppermute(x, "a", [(0, 1), (1, 0)]) / 3.0,
    ),
    "layers": Program(
        lambda x: reduce_scatter(all_gather(x * x, 1, physical_axis="b") * 0.5, 1, reduce_axes="b") * x,
        lambda lax, x: (
            lax.psum_scatter(lax.all_gather(x * x, "b", axis=1, tiled=True) * 0.5, "b", scatter_dimension=1, tiled=True)
            * x
        ),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_derivatives_are_those_of_jax(jax: Any, name: str) -> None:
    from jax import lax
    from jax.sharding import Mesh, PartitionSpec

    ours, theirs, out = PROGRAMS[name]
    mesh = Mesh(np.array(jax.devices("cpu")[:8]).reshape(2, 4), ("a", "b"))
    f = shard_map(ours, MESH, P("a", "b"), P(*out))
    g = jax.jit(
        jax.shard_map(
            lambda x: theirs(lax, x),
            mesh=mesh,
            in_specs=PartitionSpec("a", "b"),
            out_specs=PartitionSpec(*out),
            check_vma=False,
        )
    )
    x = shard(X, MESH, P("a", "b"))
    y = f(x)
    want = np.asarray(g(X))
    assert y.shape == want.shape
    assert np.allclose(y.numpy(), want)
    w, t = RNG.standard_normal(y.shape), RNG.standard_normal(X.shape)
    gradient = vjp(f, x)[1](w)[0]
    assert gradient.layout is x.layout
    assert np.allclose(gradient.numpy(), jax.grad(lambda x: (g(x) * w).sum())(X))
    assert np.allclose(jvp(f, (x,), (t,))[1].numpy(), jax.jvp(g, (X,), (t,))[1])


@pytest.mark.parametrize(("split", "concat"), [(1, 0), (1, 1), (1, 2), (-2, -1)])
def test_untiled_all_to_all_is_that_of_jax(jax: Any, split: int, concat: int) -> None:
    from jax import lax
    from jax.sharding import Mesh, PartitionSpec

    data = RNG.standard_normal((8, 4, 6))
    mesh = Mesh(np.array(jax.devices("cpu")[:8]).reshape(2, 4), ("a", "b"))
    theirs = jax.shard_map(
        lambda x: lax.all_to_all(x, "b", split % 3, concat % 3, tiled=False),
        mesh=mesh,
        in_specs=PartitionSpec("b", None, "a"),
        out_specs=PartitionSpec("b", "a"),
        check_vma=False,
    )
    ours = shard_map(
        lambda x: all_to_all(x, split, concat, tiled=False, mesh_axes="b"), MESH, P("b", None, "a"), P("b", "a")
    )
    want = np.asarray(jax.jit(theirs)(data))
    assert same(ours(data).numpy(), want)
    # JAX cannot differentiate this in reverse where the two dims differ, so its forward derivative is the witness.
    w, t = RNG.standard_normal(want.shape), RNG.standard_normal(data.shape)
    forward = np.asarray(jax.jvp(jax.jit(theirs), (data,), (t,))[1])
    assert np.allclose(jvp(ours, (data,), (t,))[1].numpy(), forward)
    assert np.allclose((vjp(ours, data)[1](w)[0].numpy() * t).sum(), (forward * w).sum())


def test_max_and_min_are_those_of_jax(jax: Any) -> None:
    from jax import lax
    from jax.sharding import Mesh, PartitionSpec

    mesh = Mesh(np.array(jax.devices("cpu")[:8]).reshape(2, 4), ("a", "b"))
    for op, theirs in (("max", lax.pmax), ("min", lax.pmin)):
        f = shard_map(lambda x, op=op: all_reduce(x, reduce_op=op, reduce_axes="b"), MESH, P("a", "b"), P("a"))
        g = jax.shard_map(
            lambda x, theirs=theirs: theirs(x, "b"),
            mesh=mesh,
            in_specs=PartitionSpec("a", "b"),
            out_specs=PartitionSpec("a"),
            check_vma=False,
        )
        assert same(f(X).numpy(), np.asarray(jax.jit(g)(X)))


# -- against NumPy, on stacks of local arrays ------------------------------------------------------------

ROOTED: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray, int], Any]]] = {
    # Of the arrays that a group along b holds, what the member at one position gets.
    "broadcast": (lambda x: sw.broadcast(x, "b", 2), lambda g, at: g[2]),
    "reduce": (lambda x: sw.reduce(x, "b", 1), lambda g, at: g.sum(0) * (at == 1)),
    "reduce max": (lambda x: sw.reduce(x, "b", 3, "max"), lambda g, at: g.max(0) * (at == 3)),
    "gather": (lambda x: sw.gather(x, "b", 1, 0), lambda g, at: np.concatenate(g, 0) * (at == 1)),
    "gather 1": (lambda x: sw.gather(x, "b", 0, dim=-2), lambda g, at: np.concatenate(g, 1) * (at == 0)),
    "scatter": (lambda x: sw.scatter(x, "b", 1, 0), lambda g, at: g[1][2 * at : 2 * at + 2]),
    "scatter 1": (lambda x: sw.scatter(x, "b", 3, 1), lambda g, at: g[3][:, 2 * at : 2 * at + 2]),
    "send_recv": (lambda x: sw.send_recv(x, "b", 1, 3), lambda g, at: g[1] * (at == 3)),
    "all_slice": (lambda x: all_slice(x, 0, "b"), lambda g, at: g[at][2 * at : 2 * at + 2]),
    "prod": (lambda x: all_reduce(x, reduce_axes="b", reduce_op="prod"), lambda g, at: g.prod(0)),
    "shift": (lambda x: shift(x, "b", 2), lambda g, at: g[(at - 2) % 4]),
    "shift off": (lambda x: shift(x, "b", -1, rotate=False), lambda g, at: g[at + 1] if at < 3 else g[0] * 0),
    "sub-axis": (
        lambda x: all_reduce(x, reduce_axes="b:(1)2"),
        lambda g, at: g[at % 2] + g[at % 2 + 2],
    ),
}


@pytest.mark.parametrize("name", ROOTED)
def test_collectives_that_jax_has_not(name: str) -> None:
    program, oracle = ROOTED[name]
    f = shard_map(program, MESH, P("a", "b"), P("a", "b"))
    x = shard(X, MESH, P("a", "b"))
    y = f(x)
    local = np.stack(held(x)).reshape(2, 4, 8, 8, 3)
    for device, got in enumerate(held(y)):
        a, b = divmod(device, 4)
        assert same(got, np.asarray(oracle(local[a], b)) + 0.0)
    # They are linear, or nearly: forward and reverse are adjoint, and forward is the change of the value.
    w, t = RNG.standard_normal(y.shape), RNG.standard_normal(X.shape)
    forward, back = jvp(f, (x,), (t,))[1].numpy(), vjp(f, x)[1](w)[0]
    assert back.layout is x.layout
    assert np.allclose((forward * w).sum(), (back.numpy() * t).sum())
    # A direction along which no two terms of a maximum tie.
    z = X + 1e-3 * t
    numeric = (f(z + 1e-6 * t).numpy() - f(z - 1e-6 * t).numpy()) / 2e-6
    assert np.allclose(jvp(f, (z,), (t,))[1].numpy(), numeric, rtol=1e-5, atol=1e-5)


@given(st.data())
def test_on_any_mesh_the_collectives_are_what_they_are_on_the_stack(data: st.DataObject) -> None:
    mesh = data.draw(host_meshes())
    count = data.draw(st.integers(1, mesh.ndim))
    axes = tuple(data.draw(st.permutations(mesh.axis_names))[:count])
    size = int(np.prod([mesh.axis_size(a) for a in axes]))
    dtype = data.draw(st.sampled_from(["float32", "int8", "complex64", "float16"]))
    local = (size * data.draw(st.integers(0, 2)), 2)
    stack = values((mesh.num_devices, *local), dtype)
    spec = P(mesh.axis_names)
    whole = stack.reshape(-1, 2)

    def check(fn: Callable[[Any], Any], oracle: Callable[[list[np.ndarray], int], np.ndarray]) -> None:
        y = shard_map(fn, mesh, spec, spec)(whole)
        for group in mesh.groups(axes):
            for at, device in enumerate(group):
                assert same(held(y)[device], oracle([stack[d] for d in group], at))

    def pieces(array: np.ndarray) -> list[np.ndarray]:
        return np.split(array, size)

    def total(arrays: list[np.ndarray]) -> np.ndarray:
        return np.sum(arrays, axis=0, dtype=dtype)

    check(lambda x: all_reduce(x, reduce_axes=axes), lambda g, at: total(g))
    check(lambda x: all_gather(x, 0, physical_axis=axes), lambda g, at: np.concatenate(g))
    check(lambda x: all_gather(x, 1, physical_axis=axes), lambda g, at: np.concatenate(g, 1))
    check(lambda x: reduce_scatter(x, 0, reduce_axes=axes), lambda g, at: pieces(total(g))[at])
    check(lambda x: all_slice(x, 0, axes), lambda g, at: pieces(g[at])[at])
    check(lambda x: all_to_all(x, 0, 1, mesh_axes=axes), lambda g, at: np.concatenate([pieces(a)[at] for a in g], 1))
    if len(set(mesh.devices)) < mesh.num_devices:
        return  # a root is on a part of the mesh, and between two meshes it is the device that says who is who
    root = data.draw(st.integers(0, mesh.axis_size(axes[0]) - 1))
    axes = axes[:1]
    check(lambda x: sw.broadcast(x, axes[0], root), lambda g, at: g[root])
    check(lambda x: sw.reduce(x, axes[0], root), lambda g, at: total(g) if at == root else g[0] * 0)
    check(lambda x: sw.gather(x, axes[0], root), lambda g, at: np.concatenate(g) * np.dtype(dtype).type(at == root))
    size = mesh.axis_size(axes[0])
    check(lambda x: sw.scatter(x, axes[0], root), lambda g, at: pieces(g[root])[at])
    check(
        lambda x: sw.send_recv(x, axes[0], root, 0),
        lambda g, at: g[root] if at == 0 else g[0] * np.dtype(dtype).type(0),
    )


@pytest.mark.parametrize("halo", [(1, 2), (2, 0), (0, 0), (4, 4)])
@pytest.mark.parametrize("dim", [1, -2])
def test_halo_exchange_pads_and_its_adjoint_accumulates(halo: tuple[int, int], dim: int) -> None:
    f = shard_map(lambda x: halo_exchange(x, dim, halo, mesh_axis="b"), MESH, P("a", "b"), P("a", "b"))
    data = RNG.standard_normal((6, 16, 2))
    low, high = halo
    padded = np.pad(data, ((0, 0), (low, high), (0, 0)))
    want = np.concatenate([padded[:, 4 * i : 4 * i + 4 + low + high] for i in range(4)], 1)
    y, back = vjp(f, data)
    assert same(y.numpy(), want)
    counted = back(np.ones(want.shape))[0].numpy()[0, :, 0]
    seen = np.zeros(16 + low + high)
    for i in range(4):
        seen[4 * i : 4 * i + 4 + low + high] += 1
    assert same(counted, seen[low : low + 16])
    t, w = RNG.standard_normal(data.shape), RNG.standard_normal(want.shape)
    assert np.allclose((jvp(f, (data,), (t,))[1].numpy() * w).sum(), (back(w)[0].numpy() * t).sum())


# -- in and out ------------------------------------------------------------------------------------------


def test_values_inside_are_local() -> None:
    seen = []

    def look(x: LocalTensor) -> LocalTensor:
        seen.append((x.shape, x.ndim, x.dtype, repr(x)))
        return x

    shard_map(look, MESH, P("a", "b"), P("a", "b"))(X.astype("float32"))
    assert seen == [((8, 8, 3), 3, np.dtype("float32"), "LocalTensor(float32[8, 8, 3] on every device of a=2, b=4)")]


def loop(a: Any) -> Any:
    while a:
        a = a - 1
    return a


@pytest.mark.parametrize(
    "choice",
    [
        lambda a, b: a if axis_index("b") == 0 else b,
        lambda a, b: a and b,
        lambda a, b: a or b,
        lambda a, b: not a,
        lambda a, b: loop(a),
        lambda a, b: max(a, b),
        lambda a, b: min(a, b),
        lambda a, b: sorted([a, b]),
        lambda a, b: 3.0 in a,
        lambda a, b: a in [b],
        lambda a, b: a == b == a,
        lambda a, b: all([a, b]),
        lambda a, b: any([a > 0]),
        lambda a, b: bool(a),
        lambda a, b: int(a),
        lambda a, b: float(a),
        lambda a, b: complex(a),
        lambda a, b: [1, 2][axis_index("b")],
        lambda a, b: range(axis_index("b")),
        lambda a, b: list(a),
        lambda a, b: [row for row in a],  # noqa: C416
        lambda a, b: max(a),
        lambda a, b: a[axis_index("b") :],
    ],
)
def test_a_choice_by_a_value_that_differs_from_device_to_device_is_refused(choice: Callable[[Any, Any], Any]) -> None:
    f = shard_map(lambda a: choice(a, 2.0 * a), MESH, P("b"), P("b"))
    with pytest.raises(ArgumentError, match=r"differs from device to device(.|\n)*use where\(c, a, b\)"):
        f(np.arange(4.0))


def test_the_error_of_a_choice_says_what_to_write() -> None:
    with pytest.raises(ArgumentError) as caught:
        shard_map(lambda a: a if axis_index("b") == 0 else -a, MESH, P("b"), P("b"))(np.arange(4.0))
    assert str(caught.value) == (
        "bool(), which if, while, and, or, not, in, min() and max() ask for too, needs one Python value, but inside "
        "shard_map the value differs from device to device: LocalTensor(bool[] on every device of a=2, b=4).\n"
        "  use where(c, a, b) to choose element by element, on each device by its own value."
    )
    g = shard_map(lambda a: sw.where(axis_index("b") == 0, a, -a), MESH, P("b"), P("b"))
    assert same(g(np.arange(1.0, 5.0)).numpy(), np.array([1.0, -2.0, -3.0, -4.0]))


def test_axis_index_is_along_an_axis_that_is_named() -> None:
    with pytest.raises(ArgumentError, match="by its name or number, got None"):
        shard_map(lambda a: a + axis_index(None), MESH, P("b"), P("b"))(np.arange(4.0))  # type: ignore[arg-type]


def test_the_length_is_that_of_every_device() -> None:
    f = shard_map(lambda a: a * len(a), MESH, P("b"), P("b"))
    assert same(f(np.arange(8.0)).numpy(), 2 * np.arange(8.0))
    with pytest.raises(ArgumentError, match=r"len\(\) of a local array without dims"):
        shard_map(lambda a: len(a.sum()), MESH, P("b"), P("b"))(np.arange(8.0))


def test_operands_inside_broadcast() -> None:
    a, b = RNG.random((8, 1)), RNG.random((4, 3))
    f = shard_map(lambda a, b: shift(a + b, "b"), MESH, (P("b"), P("b")), P("b"))
    want = np.roll(np.concatenate([a[2 * i : 2 * i + 2] + b[i : i + 1] for i in range(4)]), 2, 0)
    assert same(f(a, b).numpy(), want)
    g = shard_map(lambda x: np.ones(3) * x + [[1.0], [2.0]], MESH, P("b"), P("b"))
    assert same(g(np.arange(12.0).reshape(4, 3)).numpy()[:2], np.array([[1.0, 2, 3], [2, 3, 4]]))
    weights = shard(np.arange(3.0), MESH, P())
    h = shard_map(lambda x: x * weights, MESH, P("b"), P("b"))
    assert same(h(np.ones((4, 3))).numpy(), np.tile(np.arange(3.0), (4, 1)))


def test_trees_go_in_and_out() -> None:
    def f(tree: dict[str, Any], z: Any) -> tuple[Any, list[Any]]:
        return all_reduce(tree["x"], reduce_axes="b"), [tree["y"] + z, 1.0]

    out = shard_map(f, MESH, (P("b"), P(), P()), [P(), P(), P()])({"x": np.arange(4.0), "y": np.ones(2)}, 2.0)
    assert same(out[0].numpy(), np.array([6.0]))
    assert same(out[1][0].numpy(), np.full(2, 3.0))
    assert same(out[1][1].numpy(), np.array(1.0))


def test_a_sum_may_be_left_pending() -> None:
    f = shard_map(lambda x: x * 1.0, MESH, P("a", "b"), P("a", unreduced=["b"]))
    y, back = vjp(f, X)
    assert y.layout is Layout(MESH, ["a", None, None], ["b"])
    assert same(y.numpy(), X.reshape(16, 4, 8, 3).sum(1))
    assert same(back(np.ones(y.shape))[0].numpy(), np.ones(X.shape))


def test_the_abstract_engine_runs_local_view_programs() -> None:
    with sw.engine_context(sw.AbstractEngine()) as engine:
        f = shard_map(
            lambda x: reduce_scatter(halo_exchange(x, 0, 1, mesh_axis="b"), 1, reduce_axes="b"), MESH, P("b"), P("b")
        )
        assert f(np.zeros((8, 4))).shape == (16, 1)
        assert engine.counters.bytes_moved["reduce_scatter"] > 0


def test_errors_say_what_to_do() -> None:
    x = np.zeros((4, 4))
    with pytest.raises(BindingError) as caught:
        shard_map(lambda a: a, MESH, P("b"), P("b"))(np.zeros(5))
    assert str(caught.value) == (
        "shard_map needs equal shards, but float64[5@b] on a=2, b=4 has the local shapes [(1,), (2,)].\n"
        "  pad the tensor so that the axes divide its dims, or gather it."
    )
    with pytest.raises(LayoutError) as caught:
        shard_map(lambda a: a, MESH, P("b"), P())(np.arange(4.0))
    assert str(caught.value) == (
        "out_specs [-] says that devices 0 and 1 hold the same data, but their results differ.\n"
        "  name the axis in out_specs, or reduce over it first."
    )
    with pytest.raises(LayoutError, match=r"in_specs may not be partial, got \[-\|-\] sum\(a\); resolve the value"):
        shard_map(lambda a: a, MESH, P(unreduced=["a"]), P())(x)
    with pytest.raises(LayoutError, match=r"in_specs may not have a halo, got .*; call halo_exchange inside instead"):
        shard_map(lambda a: a, MESH, Layout(MESH, [Cut("b", halo=1, edge="pad"), None]), P("b"))(x)
    with pytest.raises(LayoutError, match=r"out_specs are plain axis names per dim"):
        shard_map(lambda a: a, MESH, P("b"), Layout(MESH, [Cut("b", split="chunk"), None]))(x)
    with pytest.raises(LayoutError, match=r"out_specs may leave a sum pending, got \[-\|-\] max\(a\)"):
        shard_map(lambda a: a, MESH, P(), P(unreduced={"a": "max"}))(x)
    with pytest.raises(ArgumentError, match="shard_map: in_specs has 2 specs for 1 tensors"):
        shard_map(lambda a: a, MESH, (P(), P()), P())(x)
    with pytest.raises(ArgumentError, match="shard_map: out_specs has 1 specs for 2 tensors"):
        shard_map(lambda a: (a, a), MESH, P(), (P(),))(x)
    with pytest.raises(LayoutError, match="axis_index is each device's position, so it has a meaning only inside"):
        axis_index("a")


@pytest.mark.parametrize(
    ("program", "error", "text"),
    [
        (lambda x: reduce_scatter(x, 0), BindingError, "equal pieces: dim 0 of size 4 is not a multiple of 8"),
        (lambda x: all_slice(x, 0), BindingError, "all_slice needs equal pieces: 4 is not a multiple of 8"),
        (lambda x: all_to_all(x, 0, 1), BindingError, "dim 0 has size 4, but must be a multiple of 8"),
        (
            lambda x: all_to_all(x, 0, 1, tiled=False),
            BindingError,
            "dim 0 has size 4, but must be 8, the size of the group",
        ),
        (lambda x: sw.scatter(x, "b", dim=1), BindingError, "scatter needs equal pieces: 3 is not a multiple of 4"),
        (lambda x: halo_exchange(x, 0, 5, mesh_axis="b"), BindingError, r"a halo of \(5, 5\) is wider than the 4"),
        (lambda x: halo_exchange(x, 0, 1), ArgumentError, "goes along a mesh axis: mesh_axis='x'"),
        (lambda x: halo_exchange(x, 0, 1, mesh_axis="b", edge="clip"), ArgumentError, "has edge='pad' only"),
        (lambda x: ppermute(x, [(0, 1)]), ArgumentError, "ppermute goes along a mesh axis; name it"),
        (lambda x: all_gather(x, 2), LayoutError, "all_gather: dim 2 is out of range for a local array with 2 dims"),
        (lambda x: sw.broadcast(x, "b", 4), LayoutError, "root 4 is no position along 'b', which has 4"),
        (lambda x: sw.gather(x, "b:(1)2"), LayoutError, r"gather goes over whole mesh axes inside shard_map"),
        (lambda x: all_gather(x, 0, physical_axis="b:(1)2"), LayoutError, "goes over whole mesh axes inside shard_map"),
        (lambda x: all_reduce(x, reduce_axes="z"), LayoutError, "unknown mesh axis 'z' in all_reduce"),
        (lambda x: all_reduce(x, reduce_axes=["a", "a"]), LayoutError, "mesh axis 'a' is used twice"),
    ],
)
def test_wrong_local_calls(program: Callable[[Any], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        shard_map(program, MESH, P(), P())(np.zeros((4, 3)))


@pytest.mark.parametrize(
    "call", [sw.broadcast, sw.reduce, sw.gather, sw.scatter, lambda x, a: sw.send_recv(x, a, 0, 1)]
)
def test_rooted_collectives_are_for_the_local_view(call: Callable[[Any, str], Any]) -> None:
    with pytest.raises(
        ArgumentError, match=r"acts on what one device holds: call it inside shard_map, not on a Tensor"
    ):
        call(shard(np.zeros(4), MESH, P("b")), "b")
