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
    LocalTensor,
    P,
    Tensor,
    current_engine,
    shard,
    shard_map,
    stop_gradient,
    vjp,
)
from shardwise.ops.local_view import constant
from shardwise.prim.explanation import Explanation
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
        (lambda x: x[0, 0, 0], BindingError, "an index with 3 entries does not fit a local array with 2 dims"),
        (lambda x: x[np.array([0])], ArgumentError, "an index is made of integers, slices, None and ..."),
        (lambda x: sw.matmul(x, x), BindingError, "do not fit together"),
        (lambda x: sw.matrix_transpose(x[0]), BindingError, r"needs at least two dims, got shape \(3,\)"),
        (lambda x: sw.expand_dims(x, axis=4), BindingError, "axis 4 is out of range for a result with 3 dims"),
    ],
)
def test_errors_speak_of_the_local_array(program: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        shard_map(program, MESH, P("a", "b"), P("a", "b"))(X)


# -- what has no local form ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted({call.name for call in calls()}))
def test_every_function_has_a_local_form_or_says_by_name_that_it_has_none(name: str) -> None:
    for call in (call for call in calls() if call.name == name):
        leaves, tree = optree.tree_flatten(cast(Any, (call.args, call.kwargs)), none_is_leaf=True)
        if not any(isinstance(leaf, Tensor) for leaf in leaves):
            continue

        outcomes: list[Any] = []

        def local(x: Any, call: Any = call, leaves: Any = leaves, tree: Any = tree, outcomes: Any = outcomes) -> Any:
            values = [constant(leaf.numpy(), x.mesh) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            args, kwargs = cast(Any, optree.tree_unflatten(tree, values))
            try:
                outcomes.append(call.function(*args, **kwargs))
            except ArgumentError as error:
                outcomes.append(str(error))
            return x

        with np.errstate(all="ignore"):
            shard_map(local, MESH, P("a", "b"), P("a", "b"))(X)
        (outcome,), own = outcomes, name.removeprefix("random.")
        if not isinstance(outcome, LocalTensor | Explanation):
            assert f"{own} is not defined for" in outcome or f"{own} has no local form" in outcome
            assert "is not defined" in outcome or "call it on tensors, outside shard_map" in outcome


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_methods_updates_and_functions_of_numpy_say_that_they_have_no_local_form(dtype: Any) -> None:
    y = shard(X, MESH, P("a", "b"))
    for program, says in {
        (lambda x: x.flip(0)): "flip has no local form yet, and inside shard_map it was given LocalTensor(",
        (lambda x: x.at[0].set(1.0)): "x.at[...] has no local form",
        (lambda x: sw.concat([x, x])): "concat has no local form",
        (lambda x: sw.shard(x, MESH, P())): "shard has no local form",
        (lambda x: np.asarray(x, dtype)): "a function of NumPy's has no local form",
        (lambda x: np.exp(x)): "a function of NumPy's has no local form",
    }.items():
        with pytest.raises(ArgumentError, match=re.escape(says)):
            shard_map(program, MESH, P("a", "b"), P("a", "b"))(y)
