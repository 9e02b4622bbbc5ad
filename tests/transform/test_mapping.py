"""Maps: every function on many values at once gives what it gives on each, in any layout; and JAX's derivatives."""

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any, cast

import numpy as np
import optree
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwise as sw
from shardwise import ArgumentError, BindingError, DeviceMesh, P, RangeError, Tensor, asarray, shard, shard_map, vmap
from tests.ops.calls import calls
from tests.prim.cases import jax_of_eight

MESH = DeviceMesh((2, 3), ("x", "y"))
COUNT = 3
LEADS = (None, "x", ("x", "y"))  # how the dim that is mapped over is split


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def run(call: Any, leaves: list[Any], tree: Any, spots: list[int], values: Any) -> list[Any]:
    full = list(leaves)
    for i, value in zip(spots, values, strict=True):
        full[i] = value
    args, kwargs = cast(Any, optree.tree_unflatten(tree, full))
    return optree.tree_leaves(call.function(*args, **kwargs))


@pytest.mark.parametrize("name", sorted({call.name for call in calls()}))
def test_every_function_on_many_values_is_the_function_on_each(name: str) -> None:
    for number, call in enumerate(
        call for call in calls("int64" if "bitwise" in name else "float64") if call.name == name
    ):
        leaves, tree = optree.tree_flatten(cast(Any, (call.args, call.kwargs)), none_is_leaf=True)
        spots = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        if not spots or name in ("explain", "vjp"):  # which give more than tensors
            continue
        arrays = [np.asarray(leaves[i].gather()) for i in spots]
        many = [np.stack([np.roll(a.ravel(), k).reshape(a.shape) for k in range(COUNT)]) for a in arrays]
        for mapped in product((True, False), repeat=len(spots)):
            if not any(mapped):
                continue
            lead = LEADS[(number + sum(mapped)) % len(LEADS)]
            in_axes = [
                (number + k) % (a.ndim + 1) if m else None for k, (a, m) in enumerate(zip(arrays, mapped, strict=True))
            ]
            given = []
            for some, leaf, axis in zip(many, (leaves[i] for i in spots), in_axes, strict=True):
                if axis is None:
                    given.append(leaf)  # as the call has it, spread over the mesh
                else:
                    spec: list[Any] = [None] * some.ndim
                    spec[axis] = lead
                    given.append(shard(np.moveaxis(some, 0, axis), MESH, P(*spec)))

            def one(*values: Any, call: Any = call, leaves: Any = leaves, tree: Any = tree, spots: Any = spots) -> Any:
                return run(call, leaves, tree, spots, values)

            each = [[s[k] if m else a for a, s, m in zip(arrays, many, mapped, strict=True)] for k in range(COUNT)]
            with np.errstate(all="ignore"):
                wanted = [one(*(shard(value, MESH, P()) for value in some)) for some in each]
                got = vmap(one, tuple(in_axes))(*given)
            assert len(got) == len(wanted[0])
            for k, out in enumerate(got):
                want = np.stack([np.asarray(some[k]) for some in wanted])
                assert (out.shape, out.dtype) == (want.shape, want.dtype), (name, mapped)
                np.testing.assert_allclose(
                    np.asarray(out.gather(), "complex128"), want.astype("complex128"), rtol=1e-12, atol=1e-13
                )


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "arithmetic": lambda m, x: m.tanh(x) * m.sum(x) + x / (1.0 + m.exp(x)),
    "matrices": lambda m, x: m.reshape(x, (2, 3)) @ m.reshape(x, (3, 2)),
    "softmax": lambda m, x: m.exp(x - m.max(x)) / m.sum(m.exp(x - m.max(x))),
    "slices": lambda m, x: x[1:] * x[:-1] + m.flip(x)[::2][:1],
    "indices": lambda m, x: x[np.array([0, 2, 2])] * 2.0,
    "joined": lambda m, x: m.concat([x, x * x]),
    "updates": lambda m, x: x.at[np.array([1, 1, 4])].add(x[:3]) * x.at[0].set(5.0),
    "padded": lambda m, x: m.pad(x, (1, 2)) + m.pad(x, (2, 1), mode="edge"),
    "triangle": lambda m, x: m.tril(m.reshape(x, (2, 3))),
    "running": lambda m, x: m.cumulative_sum(x),
    "sorted": lambda m, x: m.where(x > m.mean(x), x, 0.0),
    "broadcast": lambda m, x: m.broadcast_to(x[:1], (4, 1)) * 3.0,
}


def derivatives(m: Any, np_like: Any, program: Any, x: Any) -> list[Any]:
    """The values of a map, cotangents of it, and maps of gradients and of tangents, by either library."""

    def f(row: Any) -> Any:
        return program(np_like, row)

    y, back = m.vjp(m.vmap(f), x)
    cotangent = np.cos(np.arange(y.size)).reshape(y.shape)
    slopes = m.vmap(m.grad(lambda row: np_like.sum(f(row) * f(row))))(x)
    tangents = m.vmap(lambda row, t: m.jvp(f, (row,), (t,))[1])(x, numbers((6, 6), 1))
    return [y, back(cotangent)[0], slopes, tangents]


@cache
def wanted(name: str) -> list[Any]:
    jax = jax_of_eight()
    return derivatives(jax, jax.numpy, PROGRAMS[name], numbers((6, 6)))


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_of_maps_and_maps_of_derivatives_are_those_of_jax(name: str, lead: Any) -> None:
    found = derivatives(sw, sw, PROGRAMS[name], shard(numbers((6, 6)), MESH, P(lead)))
    for got, want in zip(found, wanted(name), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-10, atol=1e-12)


@given(st.data())
def test_axes_go_where_they_are_told_as_in_jax(data: st.DataObject) -> None:
    jax = jax_of_eight()
    shape = (2, 3, 2)
    axis, out = data.draw(st.integers(-3, 2)), data.draw(st.integers(-3, 2))
    other = data.draw(st.sampled_from([None, 0, 1]))
    lead = data.draw(st.sampled_from([None, "x", "y", ("y", "x")]))
    spec: list[Any] = [None] * 3
    spec[axis] = lead
    x, size = numbers(shape, 1), shape[axis]
    y = numbers((2,), 2) if other is None else numbers((size, 2) if other == 0 else (2, size), 2)
    rest = [n for k, n in enumerate(shape) if k != axis % 3]
    f = lambda a, b: (a.sum(axis=0) * 2.0, a.reshape(-1)[:2] * b)  # noqa: E731
    got = vmap(f, (axis, other), (0, out % 2))(shard(x, MESH, P(*spec)), y)
    want = jax.vmap(f, (axis, other), (0, out % 2))(x, y)
    assert rest
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-12)


def test_trees_are_mapped_by_trees_of_axes() -> None:
    params = {"w": numbers((3, 4, 2)), "b": numbers((2,))}
    x = numbers((5, 4))
    f = lambda p, x: {"y": x @ p["w"] + p["b"]}  # noqa: E731
    got = vmap(f, ({"w": 0, "b": None}, None), {"y": 1})(params, x)["y"]
    np.testing.assert_allclose(got.numpy(), np.stack([x @ w + params["b"] for w in params["w"]], 1))
    shared = vmap(lambda x, y: (x * 2.0, y), (0, None), (0, None))(x, asarray([1.0]))
    assert shared[0].shape == (5, 4)
    assert shared[1].shape == (1,)
    assert vmap(lambda x, y: y, (0, None))(x, asarray([1.0])).shape == (5, 1)


def test_a_mapped_dim_is_split_by_the_axes_that_are_named() -> None:
    x = shard(numbers((6, 4)), MESH, P(None, "x"))
    y = vmap(lambda row: row * 2.0 + sw.sum(row), spmd_axis_name=("x", "y"))(x)
    assert y.type_text == "float64[6@x.y, 4]"
    np.testing.assert_allclose(y.numpy(), x.numpy() * 2.0 + x.numpy().sum(1, keepdims=True))


def test_maps_nest_with_maps_and_with_the_local_view() -> None:
    x = numbers((4, 3, 2))
    outer = vmap(vmap(lambda a, b: a @ b, (0, None)), (0, 0))(x, x[:, 0])
    np.testing.assert_allclose(outer.numpy(), np.einsum("abc,ac->ab", x, x[:, 0]))

    x = numbers((4, 6))

    def local(a: Any) -> Any:
        def row(r: Any) -> Any:
            return sw.all_reduce(r * r, reduce_axes="x") + sw.all_gather(r, 0, physical_axis="x")[1:4]

        return vmap(row)(a)

    got = shard_map(local, MESH, P(None, "x"), P(None, "x"))(x)
    halves = np.split(x, 2, axis=1)
    want = halves[0] ** 2 + halves[1] ** 2 + x[:, 1:4]
    np.testing.assert_allclose(got.numpy(), np.concatenate([want, want], axis=1))


@pytest.mark.parametrize("lead", LEADS)
def test_functions_of_the_local_view_are_mapped_too(lead: Any) -> None:
    x = numbers((6, 4, 2))

    def local(a: Any) -> Any:
        edges = sw.halo_exchange(a, 0, 1, mesh_axis="x")
        moved = sw.ppermute(a * a, [(0, 1), (1, 0)], axis="x")
        return edges[:2] * 2.0 + moved + sw.sum(a) * sw.axis_index("x")

    mapped = vmap(shard_map(local, MESH, P("x"), P("x")))
    given = shard(x, MESH, P(lead))
    one = shard_map(local, MESH, P("x"), P("x"))
    np.testing.assert_allclose(mapped(given).numpy(), np.stack([one(a).numpy() for a in x]))
    slopes = sw.grad(lambda v: sw.sum(mapped(v) * mapped(v)))(given)
    want = [sw.grad(lambda v: sw.sum(one(v) * one(v)))(asarray(a)).numpy() for a in x]
    np.testing.assert_allclose(slopes.numpy(), np.stack(want))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: vmap(lambda a, b: a, (0,))(x, x), ArgumentError, "in_axes has 1 entries for 2 arguments"),
        (lambda x: vmap(lambda a: a, None)(x), ArgumentError, "in_axes is None for all of them"),
        (lambda x: vmap(lambda a: a, 2)(x), RangeError, "in_axes 2 is out of range for an argument with 2 dims"),
        (lambda x: vmap(lambda a: a, out_axes=2)(x), RangeError, "out_axes 2 is out of range for a result with 2 dims"),
        (lambda x: vmap(lambda a: a, out_axes=None)(x), ArgumentError, "differs from slice to slice"),
        (lambda x: vmap(lambda a, b: a, (0, 1))(x, x), BindingError, r"have the sizes \[2, 3\]; they must be one"),
        (lambda x: vmap(lambda a: a, "x")(x), ArgumentError, "in_axes is made of ints and None, got 'x'"),
        (lambda x: vmap(lambda a: a, ({"w": 0},))(x), ArgumentError, "in_axes is an int, None, or a tree of them"),
        (lambda x: vmap(lambda a: a if a.sum() > 0 else -a)(x), ArgumentError, "were read inside vmap"),
        (lambda x: vmap(cast(Any, 3))(x), ArgumentError, "vmap"),
        (lambda x: vmap(lambda a: a, spmd_axis_name="z")(shard(x, MESH, P())), sw.LayoutError, "unknown mesh axis 'z'"),
    ],
)
def test_what_cannot_be_mapped_is_refused(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(numbers((2, 3)))


def test_a_mapped_value_tells_what_it_is() -> None:
    seen: list[str] = []
    vmap(lambda a: seen.append(repr(a)) or a)(numbers((2, 3)))
    assert seen == ["Tensor(float64[3] on _=1, one of (2,))"]
