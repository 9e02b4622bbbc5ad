"""Derivatives of every communication function against finite differences, forward against reverse, and nested."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import shardwise as sw
from shardwise import (
    CPU,
    Cut,
    DerivativeError,
    DeviceMesh,
    Layout,
    P,
    Tensor,
    all_gather,
    all_reduce,
    all_slice,
    all_to_all,
    asarray,
    axis_index,
    distributed_broadcast,
    from_shards,
    halo_exchange,
    jvp,
    pmean,
    ppermute,
    reduce_scatter,
    shard,
    shard_map,
    shift,
    stop_gradient,
    to_device,
    vjp,
)
from shardwise.layout.placement import ReduceOp, reductions_of
from tests.prim.cases import Move, host_meshes, moves, same, spread

M23 = DeviceMesh((2, 3), ("a", "b"))
M22 = DeviceMesh((2, 2), ("a", "b"))
M4 = DeviceMesh((4,), ("x",))

Function = Callable[..., Any]


def inner(x: Any, y: Any) -> float:
    return float((np.asarray(x) * np.asarray(y)).sum())


def assert_derivatives(f: Function, x: Tensor, seed: int = 0, scale: float = 1e-6, tolerance: float = 1e-6) -> None:
    """<J t, w> is the same forward, in reverse and by differences; derivatives lie as their values do."""
    rng = np.random.default_rng(seed)
    y, back = vjp(f, x)
    t, w = rng.standard_normal(x.shape), rng.standard_normal(y.shape)
    gradient = back(w)[0]
    z, forward = jvp(f, (x,), (t,))
    assert same(z.numpy(), y.numpy())
    assert same(y.numpy(), f(x).numpy())
    assert gradient.layout is x.layout.resolved()
    assert forward.layout is y.layout.resolved()
    assert gradient.dtype == x.dtype
    assert np.isclose(inner(forward, w), inner(gradient, t), rtol=1e-9, atol=1e-9)
    ahead, behind = (f(shard(x.numpy() + sign * scale * t, x.mesh, x.layout)).numpy() for sign in (1, -1))
    assert np.isclose(inner(forward, w), inner((ahead - behind) / (2 * scale), w), rtol=tolerance, atol=tolerance)


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


# -- every function --------------------------------------------------------------------------------------

FUNCTIONS: dict[str, Function] = {
    "shard": lambda x: shard(x, M23, P(None, "b")),
    "shard to another mesh": lambda x: shard(x, M4, P("x")),
    "shard to partial": lambda x: shard(x, M23, P("a", unreduced=["b"])),
    "shard to pending max": lambda x: shard(x, M23, P("a", unreduced={"b": "max"})),
    "shard to pending avg": lambda x: shard(x, M23, P(unreduced={"b": "avg", "a": "avg"})),
    "all_gather": all_gather,
    "all_gather dim": lambda x: all_gather(x * x, 1),
    "all_slice": lambda x: all_slice(all_gather(x), 0, "b"),
    "all_to_all": lambda x: all_to_all(shard(x, M23, P("b")), 1, 0),
    "all_to_all untiled": lambda x: all_to_all(shard(x * 2.0, M23, P(None, ("a", "b"))), 0, 1, tiled=False),
    "sum": lambda x: all_reduce(x * x),
    "sum over one axis": lambda x: all_reduce(x, reduce_axes="b"),
    "sum of replicas": lambda x: all_reduce(all_gather(x * x)),
    "sum of partial": lambda x: all_reduce(shard(x * x, M23, P(unreduced=["a"]))),
    "sum of partial and sharded": lambda x: all_reduce(
        shard(x * x, M23, P("a", unreduced=["b"])), reduce_axes=("a", "b")
    ),
    "max": lambda x: all_reduce(x, reduce_op="max"),
    "min": lambda x: all_reduce(x, reduce_op="min", reduce_axes="b"),
    "max of partial and sharded": lambda x: all_reduce(
        shard(x * x, M23, P("a", unreduced={"b": "max"})), reduce_axes=("a", "b")
    ),
    "prod": lambda x: all_reduce(x, reduce_op="prod"),
    "prod of replicas": lambda x: all_reduce(all_gather(x, 1), reduce_op="prod"),
    "prod of partial and sharded": lambda x: all_reduce(
        shard(x, M23, P("a", unreduced={"b": "prod"})), reduce_op="prod", reduce_axes=("a", "b")
    ),
    "avg": lambda x: pmean(x * x),
    "avg of partial": lambda x: pmean(shard(x, M23, P("b", unreduced={"a": "avg"})), ("a", "b")),
    "avg over one axis": lambda x: pmean(x, "a"),
    "reduce_scatter": lambda x: reduce_scatter(x, 0),
    "reduce_scatter max": lambda x: reduce_scatter(x, 1, reduce_op="max", reduce_axes="a"),
    "reduce_scatter partial": lambda x: reduce_scatter(shard(x * x, M23, P(unreduced=["a", "b"])), 0),
    "distributed_broadcast": lambda x: distributed_broadcast(x, M4),
    "ppermute": lambda x: ppermute(x, [(0, 1), (1, 0), (5, 2)]),
    "ppermute along": lambda x: ppermute(x * x, [(0, 2)], axis="b"),
    "ppermute of partial": lambda x: shift(shard(x, M23, P("b", unreduced=["a"])), "b"),
    "ppermute of a sum": lambda x: shift(shard(numbers((6, 6)), M23, P("a", "b")) + all_gather(x), "b"),
    "shift": lambda x: shift(x, "b", 2),
    "shift off": lambda x: shift(x, "a", 1, rotate=False),
    "halo_exchange": lambda x: halo_exchange(x * x, 1, 1),
    "halo_exchange pad": lambda x: halo_exchange(x, 0, (1, 0), edge="pad") * 3.0,
    "to_device": lambda x: to_device(x * x, CPU(4)),
    "transfer_to": lambda x: sw.transfer_to(x, sharding=P(("a", "b"))),
    "cpu": sw.cpu,
    "gather": lambda x: x.gather(),
    "shard_map": shard_map(lambda x: all_reduce(x * x, reduce_axes="b") * x, M23, P("a", "b"), P("a", "b")),
    "shard_map prod": shard_map(lambda x: all_reduce(x, reduce_op="prod"), M23, P("a", "b"), P()),
    "arithmetic": lambda x: 2.0 / (x * x + 3.0) - x / 3 + (1 - x) * -x,
    "broadcast": lambda x: x + shard(numbers((2, 6, 6)), M23, P(None, "a")),
    "broadcast small": lambda x: (
        shard(numbers((6, 1)), M23, P("a")) * x - shard(numbers((6,)), M23, P("b")) / (x * x + 1)
    ),
    "several": lambda x: shift(all_reduce(x * x, reduce_axes="a"), "b") * all_slice(all_gather(pmean(x, "a")), 1, "b"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    "layout",
    [Layout(M23, ["a", "b"]), Layout(M23, ["b", "a"]), Layout(M23, [("b", "a"), None])],
    ids=str,
)
def test_derivatives_of_every_function(name: str, layout: Layout) -> None:
    assert_derivatives(FUNCTIONS[name], shard(numbers((6, 6)), M23, layout))


@pytest.mark.parametrize(
    "layout",
    [
        Layout(M23, [None, None], ["a"]),
        Layout(M23, ["b", None], ["a"]),
        Layout(M23, ["b", None], ["a"], "max"),
        Layout(M23, ["a", None], ["b"], "avg"),
        Layout(M23, [Cut("b", split="chunk", halo=1), "a"]),
        Layout(M23, [Cut("b", offsets=(0, 1, 1, 6)), None], ["a"], "prod"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "function", ["shard", "all_gather", "distributed_broadcast", "to_device", "arithmetic", "gather"]
)
def test_derivatives_of_inputs_in_any_layout(function: str, layout: Layout) -> None:
    assert_derivatives(FUNCTIONS[function], shard(numbers((6, 6)), M23, layout))


@given(moves(), st.integers(0, 5))
def test_a_change_of_layout_is_the_identity_to_derivatives(move: Move, seed: int) -> None:
    assume(move.dst.reduce_op in (None, *reductions_of(np.dtype("float64"))))
    x = shard(numbers(move.shape, seed), move.src.mesh, move.src.resolved())
    y, back = vjp(lambda x: shard(x, move.dst.mesh, move.dst), x)
    w = numbers(move.shape, seed + 1)
    assert same(back(w)[0].numpy(), w)
    assert back(w)[0].layout is x.layout
    forward = jvp(lambda x: shard(x, move.dst.mesh, move.dst), (x,), (w,))[1]
    assert same(forward.numpy(), w, exact=move.dst.reduce_op is not ReduceOp.AVG)
    assert y.layout is move.dst


@given(st.data())
def test_reductions_are_adjoint_on_any_mesh(data: st.DataObject) -> None:
    mesh = data.draw(host_meshes())
    axes = data.draw(st.permutations(mesh.axis_names))
    used = data.draw(st.integers(0, mesh.ndim))
    layout = Layout(mesh, [axes[:used], None])
    count = int(np.prod([mesh.axis_size(a) for a in axes[:used]]))
    x = shard(numbers((2 * count, 3)), mesh, layout)
    over = data.draw(st.lists(st.sampled_from(mesh.axis_names), unique=True))
    op = data.draw(st.sampled_from(["sum", "avg", "max", "min", "prod"]))
    # The product of many equal copies changes fast.
    assert_derivatives(lambda x: all_reduce(x, reduce_op=op, reduce_axes=over), x, tolerance=1e-4)


# -- meaning ---------------------------------------------------------------------------------------------


def test_the_derivative_is_that_of_the_global_function() -> None:
    x = shard(np.arange(3.0), M23, P())
    y, back = vjp(all_reduce, x)
    assert same(y.numpy(), 6 * np.arange(3.0))
    assert same(back(np.ones(3))[0].numpy(), np.full(3, 6.0))  # type: ignore
    y, back = vjp(lambda x: all_reduce(x, reduce_axes="b"), x)
    assert same(back(np.ones(3))[0].numpy(), np.full(3, 3.0))


@pytest.mark.parametrize(
    ("values", "op", "want"),
    [
        ([3.0, 1, 3, 2], "max", [0.5, 0, 0.5, 0]),
        ([3.0, 1, 1, 1], "min", [0, 1 / 3, 1 / 3, 1 / 3]),
        ([2.0, 2, 2, 2], "max", [0.25] * 4),
        ([2.0, 3, 5, 7], "prod", [105, 70, 42, 30]),
        ([0.0, 3, 5, 7], "prod", [105, 0, 0, 0]),
        ([0.0, 0, 5, 7], "prod", [0, 0, 0, 0]),
    ],
)
def test_ties_share_and_products_are_exact_with_zeros(values: list[float], op: str, want: list[float]) -> None:
    x = shard(np.array(values), M4, P("x"))
    _, back = vjp(lambda x: all_reduce(x, reduce_op=op), x)
    assert np.allclose(back(np.ones(1))[0].numpy(), want, rtol=1e-15)
    for i in range(4):
        assert np.allclose(jvp(lambda x: all_reduce(x, reduce_op=op), (x,), (np.eye(4)[i],))[1].numpy(), want[i])


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 8])
def test_hessians_of_products_are_exact_with_zeros(count: int) -> None:
    mesh = DeviceMesh((count,), ("x",))
    for zeros in range(4):
        values = np.arange(2.0, 2 + count)
        values[:zeros] = 0
        x = shard(values, mesh, P("x"))

        def gradient(x: Tensor) -> Tensor:
            return vjp(lambda x: all_reduce(x, reduce_op="prod"), x)[1](np.ones(1))[0]

        want = np.array(
            [
                [0 if i == j else np.prod([v for k, v in enumerate(values) if k not in (i, j)]) for j in range(count)]
                for i in range(count)
            ]
        )
        for i, row in enumerate(np.eye(count)):
            assert np.allclose(jvp(gradient, (x,), (row,))[1].numpy(), want[i])
            assert np.allclose(vjp(gradient, x)[1](row)[0].numpy(), want[i])


def test_gradients_are_resolved_where_the_input_is_partial() -> None:
    x = from_shards([np.full(2, float(i)) for i in range(4)], M4, P(unreduced=["x"]), (2,))
    gradient = vjp(lambda x: all_reduce(x) * 3.0, x)[1](np.ones(2))[0]
    assert gradient.layout is Layout(M4, [None])
    assert same(gradient.numpy(), np.full(2, 3.0))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "complex64", "complex128"])
def test_derivatives_keep_the_dtype(dtype: str) -> None:
    x, _ = spread(Layout(M4, ["x"]), (8,), dtype)
    ops = ["sum", "avg", "prod"] + (["max", "min"] if "complex" not in dtype else [])
    for op in ops:
        f: Function = lambda x, op=op: all_reduce(x * 2.0, reduce_op=op) / 4.0  # noqa: E731
        y, back = vjp(f, x)
        assert y.dtype == x.dtype
        assert back(np.ones(2))[0].dtype == x.dtype
        assert jvp(f, (x,), (np.ones(8),))[1].dtype == x.dtype


def test_complex_derivatives_are_linear_without_conjugates() -> None:
    x = shard(np.array([1 + 2j, 3 - 1j]), DeviceMesh((2,), ("x",)), P("x"))
    _, back = vjp(lambda x: all_reduce(x * x), x)
    assert np.allclose(back(np.array([1j]))[0].numpy(), 2j * x.numpy())


# -- nested ----------------------------------------------------------------------------------------------


def reverse(f: Function, w: np.ndarray) -> Function:
    return lambda x: vjp(f, x)[1](w)[0]


def forward(f: Function, t: np.ndarray) -> Function:
    return lambda x: jvp(f, (x,), (t,))[1]


CUBIC: dict[str, Function] = {
    "sum": lambda x: all_reduce(x * x * x),
    "prod": lambda x: all_reduce(x, reduce_op="prod") * x.gather(),
    "permuted": lambda x: shift(x * x, "x") * x,
    "powers": lambda x: all_reduce(all_gather(x), reduce_op="prod"),
    "local": shard_map(
        lambda x: all_gather(x * all_reduce(x * x, reduce_axes="x"), 0, physical_axis="x"), M4, P("x"), P()
    ),
    "local from replicas": shard_map(lambda x: x * x * all_reduce(x * (1.0 + axis_index("x"))), M4, P(), P("x")),
    "halo": shard_map(lambda x: halo_exchange(x * x, 0, 1, mesh_axis="x") ** 2, M4, P("x"), P("x")),
    "quotient": lambda x: pmean(1.0 / (x + 5.0)),
}


@pytest.mark.parametrize("name", CUBIC)
def test_derivatives_nest_to_order_three(name: str) -> None:
    f = CUBIC[name]
    x = shard(np.array([0.5, -1.0, 0.0, 2.0]), M4, P("x"))
    t, u, v = (numbers((4,), i) for i in range(3))
    w = numbers(f(x).shape, 3)
    forwards = forward(forward(forward(f, t), u), v)
    third = inner(forwards(x), w)
    orders = [
        lambda: inner(reverse(forward(forward(f, t), u), w)(x), v),
        lambda: inner(forward(reverse(forward(f, t), w), u)(x), v),
        lambda: inner(forward(forward(reverse(f, w), t), u)(x), v),
        lambda: inner(reverse(reverse(forward(f, t), w), u)(x), v),
        lambda: inner(reverse(forward(reverse(f, w), t), u)(x), v),
        lambda: inner(forward(reverse(reverse(f, w), t), u)(x), v),
        lambda: inner(reverse(reverse(reverse(f, w), t), u)(x), v),
    ]
    assert np.allclose([order() for order in orders], third)
    second = forward(forward(f, t), u)
    numeric = (second(x + 1e-6 * v).numpy() - second(x - 1e-6 * v).numpy()) / 2e-6
    assert np.isclose(third, inner(numeric, w), rtol=1e-5, atol=1e-5)


def test_an_outer_derivative_sees_through_an_inner_one() -> None:
    # d/dx (x * d/dy (x y)) = 2 x: the two perturbations are not confused.
    x = asarray([3.0])
    f: Function = lambda x: x * vjp(lambda y: x * y, asarray([1.0]))[1]([1.0])[0]  # noqa: E731
    assert vjp(f, x)[1]([1.0])[0].item() == 6.0
    assert jvp(f, (x,), ([1.0],))[1].item() == 6.0


def test_backward_functions_can_be_called_again_and_differentiated() -> None:
    x = shard(np.arange(4.0), M4, P("x"))
    _, back = vjp(lambda x: x * x, x)
    assert same(back(np.ones(4))[0].numpy(), back(np.ones(4))[0].numpy())
    assert same(jvp(lambda ct: back(ct)[0], (x,), (np.ones(4),))[1].numpy(), 2 * np.arange(4.0))


# -- arguments and results -------------------------------------------------------------------------------


def test_several_arguments_trees_and_results() -> None:
    tree = {"w": shard(np.arange(4.0), M4, P("x")), "b": [shard(np.ones(4), M4, P())]}
    other = shard(np.full(4, 2.0), M4, P("x"))

    def f(tree: dict[str, Any], other: Tensor) -> dict[str, Any]:
        return {"y": tree["w"] * other, "z": (all_reduce(tree["b"][0]), other)}

    out, back = vjp(f, tree, other)
    assert same(out["z"][0].numpy(), np.full(4, 4.0))
    gradients = back({"y": np.ones(4), "z": (np.ones(4), np.ones(4))})
    assert same(gradients[0]["w"].numpy(), np.full(4, 2.0))
    assert same(gradients[0]["b"][0].numpy(), np.full(4, 4.0))
    assert same(gradients[1].numpy(), np.arange(4.0) + 1)
    assert gradients[0]["b"][0].layout is Layout(M4, [None])
    _, tangents = jvp(f, (tree, other), ({"w": np.ones(4), "b": [np.ones(4)]}, np.zeros(4)))
    assert same(tangents["y"].numpy(), np.full(4, 2.0))
    assert same(tangents["z"][0].numpy(), np.full(4, 4.0))
    assert same(tangents["z"][1].numpy(), np.zeros(4))


@pytest.mark.parametrize("layout", [Layout(M22, ["a"]), Layout(M22, ["a"], ["b"]), Layout(M22, [None])], ids=str)
def test_unused_arguments_have_zeros_in_their_layout(layout: Layout) -> None:
    x, y = shard(np.arange(4.0, dtype="float32"), M22, layout), shard(np.ones(2), M22, P())
    gradient = vjp(lambda x, y: y * 2.0, x, y)[1](np.ones(2))[0]
    assert gradient.layout is layout.resolved()
    assert same(gradient.numpy(), np.zeros(4, "float32"))
    _, tangent = jvp(lambda x: y, (x,), (np.ones(4),))
    assert same(tangent.numpy(), np.zeros(2))


def test_constants_and_numbers_may_be_returned() -> None:
    out, tangent = jvp(lambda x: (3.0, x), (np.ones(2),), (np.ones(2),))
    assert (out[0].item(), tangent[0].item()) == (3.0, 0.0)  # type: ignore
    assert vjp(lambda x: 3.0, np.ones(2))[1](1.0)[0].numpy().tolist() == [0, 0]


def test_a_value_used_several_times_collects_all_its_cotangents() -> None:
    x = shard(np.arange(4.0), M4, P("x"))
    _, back = vjp(lambda x: [x, x, x * x + x], x)
    assert same(back([np.ones(4)] * 3)[0].numpy(), 2 * np.arange(4.0) + 3)


def test_stop_gradient() -> None:
    x = shard(np.arange(4.0), M4, P("x"))
    assert same(vjp(lambda x: x * stop_gradient(x), x)[1](np.ones(4))[0].numpy(), np.arange(4.0))
    assert same(jvp(lambda x: x * stop_gradient(x), (x,), (np.ones(4),))[1].numpy(), np.arange(4.0))
    nested = stop_gradient({"a": x, "b": [x, 3]})
    assert nested["a"] is x
    assert nested["b"][1] == 3
    seen = []
    vjp(lambda x: seen.append(stop_gradient(x).numpy()) or x, x)
    assert same(seen[0], np.arange(4.0))


@pytest.mark.parametrize("read", [
    lambda x: x.numpy(), lambda x: x.local(0), lambda x: x.shards, lambda x: x.item(), lambda x: x.arrays,
    np.asarray, float, bool, np.from_dlpack,
], ids=["numpy", "local", "shards", "item", "arrays", "asarray", "float", "bool", "dlpack"])  # fmt: skip
@pytest.mark.parametrize("mode", ["vjp", "jvp"])
def test_reading_a_value_inside_is_an_error(read: Callable[[Any], Any], mode: str) -> None:
    def f(x: Tensor) -> Tensor:
        read(x)
        return x

    with pytest.raises(DerivativeError) as caught:
        vjp(f, np.ones(1)) if mode == "vjp" else jvp(f, (np.ones(1),), (np.ones(1),))
    assert str(caught.value) == (
        "the values of float64[1] were read inside a function that is being differentiated, which would cut it out "
        "of the derivative in silence.\n  read stop_gradient(x) if that is what you want."
    )


def test_what_a_value_is_may_be_asked_inside() -> None:
    x = shard(np.zeros((4, 2), "float32"), M4, P("x"))
    seen: list[Any] = []
    vjp(lambda x: seen.extend([x.shape, x.dtype, x.layout, x.mesh, x.ndim, x.size, x.nbytes, repr(x)]) or x, x)
    kind = "Tensor(float32[4@x, 2] on x=4, being differentiated)"
    assert seen == [(4, 2), np.dtype("float32"), x.layout, M4, 2, 8, 32, kind]


def test_errors_say_what_was_expected() -> None:
    x = np.ones(3)
    _, back = vjp(lambda x: (x * 2.0, x), x)
    with pytest.raises(DerivativeError, match=r"a value of shape \(3,\) has derivatives of that shape, got \(2,\)"):
        back((np.ones(2), x))
    with pytest.raises(
        DerivativeError, match=r"one for each of 2 tensors, in the structure PyTreeSpec\(\(\*, \*\)\), got"
    ):
        back((x,))
    with pytest.raises(DerivativeError, match="one for each of 2 tensors"):
        back(x)
    with pytest.raises(DerivativeError, match="a value of dtype float64 has derivatives of that dtype, got complex128"):
        back((x * 1j, x))
    with pytest.raises(DerivativeError, match="a value of dtype float64 has derivatives of that dtype, got float32"):
        back((asarray(x.astype("float32")), x))
    with pytest.raises(DerivativeError, match="one for each of 1 tensors"):
        jvp(lambda x: x, (x,), (x, x))
    with pytest.raises(DerivativeError, match=r"a value of shape \(3,\) has derivatives of that shape, got \(\)"):
        jvp(lambda x: x, (x,), (1.0,))
    with pytest.raises(DerivativeError, match="with respect to floats or complex numbers, got an argument of int64"):
        vjp(lambda x: x * 0.5, np.arange(3))
    with pytest.raises(DerivativeError, match="got an argument of bool"):
        jvp(lambda x: x, (np.array([True]),), (np.array([0.5]),))


def test_nested_numbers_may_stand_for_one_tensor() -> None:
    _, back = vjp(lambda x: x * 2.0, np.ones(2))
    assert same(back([1.0, 3.0])[0].numpy(), np.array([2.0, 6.0]))


def test_torch_values_have_torch_derivatives() -> None:
    torch = pytest.importorskip("torch")
    x = shard(torch.arange(1.0, 9.0, dtype=torch.float64), M4, P("x"))
    for op in ("sum", "avg", "max", "prod"):
        f: Function = lambda x, op=op: all_reduce(x * x, reduce_op=op)  # noqa: E731
        like = shard(x.numpy(), M4, P("x"))
        gradient = vjp(f, x)[1](np.ones(2))[0]
        assert isinstance(gradient.local(0), torch.Tensor)
        assert np.allclose(gradient.numpy(), vjp(f, like)[1](np.ones(2))[0].numpy())
        tangent = jvp(f, (x,), (np.ones(8),))[1]
        assert isinstance(tangent.local(0), torch.Tensor)
        assert np.allclose(tangent.numpy(), jvp(f, (like,), (np.ones(8),))[1].numpy())
    unused = vjp(lambda x, y: x, x, x)[1](x)[1]
    assert isinstance(unused.local(0), torch.Tensor)
