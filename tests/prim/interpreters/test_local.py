"""Functions of tensors in the local view: on every device what NumPy makes of its array, and JAX's derivatives."""

import re
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import optree
import pytest

import shardwise as sw
from shardwise import (
    ArgumentError,
    BindingError,
    DeviceMesh,
    P,
    Tensor,
    asarray,
    current_engine,
    shard,
    shard_map,
    stop_gradient,
    vjp,
)
from tests.ops.calls import calls
from tests.prim.cases import jax_of_eight

MESH = DeviceMesh((2, 4), ("a", "b"))
X = np.random.default_rng(0).standard_normal((8, 12))  # each device has 4 x 3 elements
W = np.random.default_rng(1).standard_normal((3, 5))

# Each program in words that both libraries share; `m` is the library.
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "one operand": lambda m, x: m.exp(m.tanh(x)) - m.abs(x),
    "an array and numbers": lambda m, x: 2.0 * m.maximum(x, np.arange(3.0)) / (1.0 + m.square(x)),
    "comparisons": lambda m, x: m.where(x > 0.5, x, -x) + m.where(m.less(x, 0.0), 1.0, 0.0),
    "broadcasting": lambda m, x: x + m.sum(x, axis=0) * m.mean(x, axis=1, keepdims=True),
    "sums": lambda m, x: m.sum(x) + m.max(x, axis=-1) + m.var(x, axis=(1,)),
    "einsum": lambda m, x: m.einsum("ij,kj->ik", x, x * 2.0),
    "einsum of an array": lambda m, x: m.einsum("...j,jk->...k", x, W),
    "implicit einsum": lambda m, x: m.einsum("ij,jk", x, W),
    "matmul": lambda m, x: x @ W,
    "matrix and vector": lambda m, x: m.matmul(x, np.arange(3.0)),
    "vector and matrix": lambda m, x: m.matmul(np.arange(4.0), x),
    "vectors": lambda m, x: m.matmul(x[0], x[1]),
    "batched": lambda m, x: m.matmul(m.expand_dims(x, axis=0), m.reshape(x, (2, 3, 2))),
    "shapes": lambda m, x: m.reshape(m.permute_dims(x, (1, 0)), (-1, 2)),
    "moved": lambda m, x: m.squeeze(m.moveaxis(m.expand_dims(x, axis=1), 0, -1), 0),
    "several moved": lambda m, x: m.moveaxis(m.expand_dims(x, axis=1), (2, 0), (0, -1)) + 0.0,
    "transposed": lambda m, x: m.matrix_transpose(x) * 2.0,
    "broadcast": lambda m, x: m.broadcast_to(m.sum(x, axis=0), (2, 3)) + 0.0,
    "slices": lambda m, x: x[1:, ::2] - x[:-1, 1, None],
    "last": lambda m, x: x[..., -1],
    "limits": lambda m, x: m.clip(x, 0.5, None) + m.clip(x, None, 0.1) - m.clip(x, -1.0, 1.0),
    "cast": lambda m, x: x * (x > 0).astype("float64"),
}


def blocks(x: np.ndarray) -> list[list[np.ndarray]]:
    return [np.split(half, 4, axis=1) for half in np.split(x, 2)]


def ours(program: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    # A number, or a row, per device comes out as two dims, one per mesh axis.
    def local(x: Any) -> Any:
        out = program(sw, x)
        return sw.reshape(out, (1, -1))

    return shard_map(local, MESH, P("a", "b"), P("a", "b"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_device_gets_what_jax_makes_of_its_array(name: str) -> None:
    jax = jax_of_eight()
    jnp, program = jax.numpy, PROGRAMS[name]

    def theirs(x: Any) -> Any:
        rows = [[program(jnp, b).reshape(1, -1) for b in jnp.split(half, 4, axis=1)] for half in jnp.split(x, 2)]
        return jnp.block(rows)

    x, counters = shard(X, MESH, P("a", "b")), current_engine().counters
    counters.reset()
    y, back = vjp(ours(program), x)
    want, want_back = jax.vjp(theirs, X)
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-12, atol=1e-12)
    cotangent = np.cos(np.arange(y.size)).reshape(y.shape)
    np.testing.assert_allclose(back(cotangent)[0].numpy(), want_back(cotangent)[0], rtol=1e-10, atol=1e-12)
    assert counters.total == 0


def test_softmax_and_its_kin_are_along_dims_of_the_local_array() -> None:
    jax = jax_of_eight()
    for function, theirs in (
        (sw.softmax, jax.nn.softmax),
        (sw.log_softmax, jax.nn.log_softmax),
        (sw.logsumexp, jax.nn.logsumexp),
    ):
        got = ours(lambda m, x, function=function: function(x, axis=0))(X).numpy()
        want = np.block([[np.asarray(theirs(b, axis=0)).reshape(1, -1) for b in half] for half in blocks(X)])
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_local_value_can_be_a_constant_to_derivatives() -> None:
    f = shard_map(lambda x: x * stop_gradient(x), MESH, P("a", "b"), P("a", "b"))
    y, back = vjp(f, X)
    np.testing.assert_allclose(back(np.ones_like(X))[0].numpy(), X)
    np.testing.assert_allclose(y.numpy(), X * X)


@pytest.mark.parametrize(
    ("program", "error", "text"),
    [
        (lambda x: sw.sum(x, axis=2), BindingError, "axis 2 is out of range for a tensor with 2 dims"),
        (lambda x: x[0, 0, 0], BindingError, "an index with 3 entries does not fit a tensor with 2 dims"),
        (lambda x: x[x > 0.0], ArgumentError, "a tensor of booleans as an index would give a shape that depends on"),
        (lambda x: x[np.array([4])], IndexError, "index 4 is out of range for a dim of 4 elements"),
        (lambda x: sw.matmul(x, x), BindingError, "do not fit together"),
        (lambda x: sw.matrix_transpose(x[0]), BindingError, r"needs at least two dims, got shape \(3,\)"),
        (lambda x: sw.expand_dims(x, axis=4), BindingError, "axis 4 is out of range for a result with 3 dims"),
    ],
)
def test_errors_speak_of_the_local_array(program: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        shard_map(program, MESH, P("a", "b"), P("a", "b"))(X)


# -- every function -------------------------------------------------------------------------------------------


def each_device(function: Callable[..., Any], *stacks: np.ndarray) -> np.ndarray:
    """What a function makes of the array of each device, one after the other, on a device of its own."""
    flat = [stack.reshape(MESH.num_devices, *stack.shape[MESH.ndim :]) for stack in stacks]
    return np.stack([np.asarray(function(*[s[i] for s in flat])) for i in range(MESH.num_devices)])


@pytest.mark.parametrize("name", sorted({call.name for call in calls()}))
def test_every_function_does_on_every_device_what_it_does_on_one(name: str) -> None:
    for call in (call for call in calls() if call.name == name):
        leaves, tree = optree.tree_flatten(cast(Any, (call.args, call.kwargs)), none_is_leaf=True)
        spots = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        if not spots:
            continue
        # Other numbers on each device, of those that the call has.
        stacks = []
        for i in spots:
            value = np.asarray(leaves[i].gather())
            rolled = [np.roll(value.ravel(), k).reshape(value.shape) for k in range(MESH.num_devices)]
            stacks.append(np.stack(rolled).reshape(*MESH.mesh_shape, *value.shape))

        def run(*values: Any, call: Any = call, leaves: Any = leaves, tree: Any = tree, spots: Any = spots) -> Any:
            full = list(leaves)
            for i, value in zip(spots, values, strict=True):
                full[i] = value
            args, kwargs = cast(Any, optree.tree_unflatten(tree, full))
            out = call.function(*args, **kwargs)
            return optree.tree_leaves(out)

        def local(*values: Any, run: Any = run) -> Any:
            out = run(*[sw.squeeze(x, (0, 1)) for x in values])
            return [sw.reshape(x, (1, 1, *x.shape)) for x in out]

        with np.errstate(all="ignore"):
            try:
                one = [run(*[asarray(s[0, 0]) for s in stacks])]
            except sw.ShardwiseError as error:
                with pytest.raises(type(error), match=re.escape(str(error).split("\n")[0][:40])):
                    shard_map(local, MESH, P("a", "b"), P("a", "b"))(*stacks)
                continue
            if not all(isinstance(leaf, Tensor) for leaf in one[0]):
                continue  # `explain` and its kin
            counters = current_engine().counters
            counters.reset()
            found = shard_map(local, MESH, P("a", "b"), P("a", "b"))(*stacks)
            assert counters.total == 0, name
            for k, got in enumerate(found):
                want = each_device(lambda *some, k=k: run(*[asarray(s) for s in some])[k], *stacks)
                assert got.dtype == want.dtype
                np.testing.assert_allclose(
                    np.asarray(got, "complex128").reshape(want.shape), want.astype("complex128"), rtol=1e-12, atol=1e-13
                )


def test_what_says_where_a_tensor_lies_is_refused_by_name() -> None:
    programs = {
        "shard": lambda x: sw.shard(x, MESH, P()),
        "to_device": lambda x: sw.to_device(x, sw.CPU(0)),
        "transfer_to": lambda x: sw.transfer_to(x, sw.CPU(0)),
        "cpu": sw.cpu,
        "gpu": sw.gpu,
        "accelerator": sw.accelerator,
        "distributed_broadcast": sw.distributed_broadcast,
    }
    for name, program in programs.items():
        with pytest.raises(ArgumentError, match=re.escape(f"{name} has no local form: it says where a tensor lies")):
            shard_map(program, MESH, P("a", "b"), P("a", "b"))(X)


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_values_are_not_read(dtype: Any) -> None:
    y = shard(X, MESH, P("a", "b"))
    for program in (
        lambda x: np.asarray(x, dtype),
        lambda x: np.exp(x),
        lambda x: x.numpy(),
        lambda x: x.local(0),
        lambda x: x.shards,
    ):
        with pytest.raises(ArgumentError, match=r"the values of LocalTensor\(.* were read inside shard_map"):
            shard_map(program, MESH, P("a", "b"), P("a", "b"))(y)
    with pytest.raises(ArgumentError, match="a format needs one Python value, but inside shard_map"):
        shard_map(lambda x: f"{x:.2f}", MESH, P("a", "b"), P("a", "b"))(y)
    texts: list[str] = []
    shard_map(lambda x: texts.append(f"{x}") or x, MESH, P("a", "b"), P("a", "b"))(y)
    assert texts == ["LocalTensor(float64[4, 3] on every device of a=2, b=4)"]
    with pytest.raises(ArgumentError, match="all_gather brings LocalTensor"):
        shard_map(lambda x: x.gather(), MESH, P("a", "b"), P("a", "b"))(y)
    inner = shard_map(lambda x: x, MESH, P("a", "b"), P("a", "b"))
    with pytest.raises(ArgumentError, match="shard_map inside shard_map was given LocalTensor"):
        shard_map(inner, MESH, P("a", "b"), P("a", "b"))(y)
