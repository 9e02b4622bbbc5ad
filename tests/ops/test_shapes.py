"""Functions on shapes against NumPy and JAX, and what they send."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import (
    BindingError,
    DeviceMesh,
    P,
    broadcast_to,
    current_engine,
    expand_dims,
    matrix_transpose,
    moveaxis,
    permute_dims,
    reshape,
    shard,
    squeeze,
)
from tests.ops.cases import agrees, moves_only_what_changes_device, sent, tensors, transposed
from tests.ops.peers import check

MESH = DeviceMesh((2, 4), ("x", "y"))
RESHAPES = [
    ((4, 6), (24,)), ((24,), (4, 6)), ((8, 3), (3, 8)), ((8, 4), (2, 4, 4)), ((2, 4, 4), (8, 4)), ((4, 1, 6), (4, 6)),
    ((4, 6), (4, 1, 6, 1)), ((16,), (2, 2, 2, 2)), ((5, 7), (35,)), ((1,), ()), ((), (1, 1)), ((0, 3), (3, 0)),
    ((6, 6), (4, 9)),
]  # fmt: skip
STAYS = [
    ((8, 6), P("y"), (48,), "[y]"), ((48,), P("y"), (8, 6), "[y|-]"), ((8, 8), P("x", "y"), (2, 4, 8), "[x|-|y]"),
    ((64,), P(("x", "y")), (2, 4, 8), "[x|y|-]"), ((2, 4, 8), P("x", "y"), (64,), "[x y]"),
    ((8,), P("y"), (2, 4), "[y:(1)2|y:(2)2]"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), RESHAPES, ids=str)
def test_reshape(old, new):
    import jax.numpy as jnp

    for seed in range(6):
        check(
            lambda x: reshape(x, new),
            lambda x: jnp.reshape(x, new),
            np.random.default_rng(0).standard_normal(old),
            seed=seed,
        )


@pytest.mark.parametrize(("old", "spec", "new", "layout"), STAYS, ids=str)
def test_reshape_keeps_the_sharding_where_the_factors_allow_it(old, spec, new, layout):
    values = np.arange(float(np.prod(old))).reshape(old)
    counters = current_engine().counters
    x = shard(values, MESH, spec)
    counters.reset()
    y = reshape(x, new)
    assert str(y.layout) == layout
    assert counters.total == 0
    assert np.array_equal(y.numpy(), values.reshape(new))


def test_permute_expand_squeeze_and_broadcast():
    import jax.numpy as jnp

    value = np.random.default_rng(0).standard_normal((4, 1, 6))
    for seed in range(4):
        check(lambda x: permute_dims(x, (2, 0, 1)), lambda x: jnp.permute_dims(x, (2, 0, 1)), value, seed=seed)
        check(lambda x: expand_dims(x, axis=-1), lambda x: jnp.expand_dims(x, -1), value, seed=seed)
        check(lambda x: squeeze(x, 1), lambda x: jnp.squeeze(x, 1), value, seed=seed)
        check(lambda x: broadcast_to(x, (2, 4, 5, 6)), lambda x: jnp.broadcast_to(x, (2, 4, 5, 6)), value, seed=seed)


@given(st.data(), tensors(st.lists(st.integers(0, 5), min_size=2, max_size=3).map(tuple)))
def test_matrix_transpose_and_moveaxis(data, x):
    agrees(matrix_transpose, lambda v: np.swapaxes(v, -1, -2), x)
    a, b = (data.draw(st.integers(-x.ndim, x.ndim - 1)) for _ in range(2))
    made = agrees(lambda x: moveaxis(x, a, b), lambda v: np.moveaxis(v, a, b), x)
    assert sorted(map(str, made.layout.dims)) == sorted(map(str, x.layout.dims))
    some = data.draw(st.integers(0, x.ndim))
    source, target = (tuple(data.draw(st.permutations(range(x.ndim)))[:some]) for _ in range(2))
    agrees(lambda x: moveaxis(x, source, target), lambda v: np.moveaxis(v, source, target), x, torch=False)


@given(st.data(), tensors(st.lists(st.integers(0, 5), min_size=2, max_size=3).map(tuple), ["float64"]))
def test_the_derivatives_of_transposes_are_their_transposes(data, x):
    a, b = (data.draw(st.integers(-x.ndim, x.ndim - 1)) for _ in range(2))
    transposed(matrix_transpose, x)
    transposed(lambda x: moveaxis(x, a, b), x)


def test_transposes_send_nothing_and_follow_jax():
    import jax.numpy as jnp

    x = shard(np.arange(60.0).reshape(3, 4, 5), MESH, P("x", None, "y"))
    for call in (lambda: matrix_transpose(x), lambda: moveaxis(x, 0, -1), lambda: moveaxis(x, (0, 2), (2, 1))):
        assert sent(call)[1] == 0
    assert str(moveaxis(x, 0, -1).layout) == "[-|y|x]"
    value = np.random.default_rng(0).standard_normal((4, 2, 6))
    for seed in range(3):
        check(lambda x: matrix_transpose(x * x), lambda x: jnp.matrix_transpose(x * x), value, seed=seed)
        check(lambda x: moveaxis(x * x, 0, 1), lambda x: jnp.moveaxis(x * x, 0, 1), value, seed=seed)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: reshape(np.ones(6), (4,)), BindingError, "has 6 elements"),
        (lambda: reshape(np.ones(6), (-1, 4)), BindingError, "cannot hold"),
        (lambda: reshape(np.ones(6), (-1, -1)), BindingError, "at most one -1"),
        (lambda: permute_dims(np.ones((2, 3)), (0, 0)), BindingError, "no order of 2 dims"),
        (lambda: squeeze(np.ones((2, 3)), 0), BindingError, "has size 2, not 1"),
        (lambda: expand_dims(np.ones(2), axis=3), BindingError, "out of range"),
        (lambda: broadcast_to(np.ones((2, 3)), (3,)), BindingError, "does not broadcast"),
        (lambda: matrix_transpose(np.ones(3)), BindingError, r"at least two dims, got shape \(3,\)"),
        (lambda: moveaxis(np.ones((2, 3)), 2, 0), BindingError, "moveaxis: axis 2 is out of range"),
        (lambda: moveaxis(np.ones((2, 3)), (0, 1), 0), BindingError, "2 dims cannot go to 1 positions"),
        (lambda: moveaxis(np.ones((2, 3)), (0, 0), (0, 1)), BindingError, "moveaxis: a dim is named twice"),
        (lambda: moveaxis(np.ones((2, 3)), (0, 1), (1, -1)), BindingError, "moveaxis: a dim is named twice"),
    ],
)
def test_what_does_not_fit_says_so(call, error, text):
    with pytest.raises(error, match=text):
        call()


# -- dims that do not divide -------------------------------------------------------------------------------


@st.composite
def shapes_of_one_size(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of equally many elements, of which most have no dims in common."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3, 5, 7]), min_size=1, max_size=4))

    def merged(order: list[int]) -> tuple[int, ...]:
        ends = sorted(draw(st.sets(st.integers(1, max(1, len(order) - 1)), max_size=3)))
        return tuple(int(np.prod(order[a:b])) for a, b in pairwise([0, *ends, len(order)]) if a < b)

    return merged(factors), merged(draw(st.permutations(factors)))


@given(st.data(), shapes_of_one_size())
def test_reshape_gives_what_numpy_gives(data, shapes):
    old, new = shapes
    x = data.draw(tensors(old, ["float32", "int8", "bool"]))
    agrees(lambda x: reshape(x, new), lambda v: v.reshape(new), x)


@given(st.data(), shapes_of_one_size())
def test_reshape_moves_only_what_changes_device(data, shapes):
    old, new = shapes
    x = data.draw(tensors(old, ["float32", "int8"], partial=False, halo=False))
    moves_only_what_changes_device(lambda x: reshape(x, new), lambda v: v.reshape(new), x)
    y = reshape(x, new)
    assert sorted(map(str, y.layout.sharded_axes)) or not x.layout.sharded_axes or x.size == 1 or not y.shape


@given(st.data(), shapes_of_one_size())
def test_the_derivative_of_reshape_is_its_transpose(data, shapes):
    old, new = shapes
    transposed(lambda x: reshape(x, new), data.draw(tensors(old, ["float64"])))


UNEVEN = [
    ((7, 4), P("y"), (7, 2, 2), "[y|-|-]", 0),  # a dim that stays is cut as it was
    ((7, 4), P("y"), (28,), "[y]", 0),  # shards are whole rows: 2, 2, 2 and 1 rows of 4
    ((6, 4), P("y"), (3, 8), "[y|-]", 8 * 4),  # rows 0 1, 2 3, 4 and 5 to 0 1, 2 3, 4 5 and none
    ((35,), P("y"), (5, 7), "[y|-]", 8 * (5 + 3 + 1)),  # 9, 9, 9 and 8 elements to 14, 7, 7 and 7
    ((3, 8), P(None, "y"), (24,), "[y]", 8 * 16),  # columns to runs: each device has 2 of its 6 elements
    ((2, 4, 6), P(None, "y"), (8, 6), "[y|-]", 8 * 36),  # one of its two rows
]


@pytest.mark.parametrize(("old", "spec", "new", "layout", "size"), UNEVEN, ids=str)
def test_a_dim_that_does_not_divide_stays_sharded_in_a_reshape(old, spec, new, layout, size):
    values = np.arange(float(np.prod(old))).reshape(old)
    x = shard(values, DeviceMesh((4,), ("y",)), spec)
    y, moved = sent(lambda: reshape(x, new))
    assert str(y.layout) == layout or y.layout.dims[0].offsets is not None
    assert [str(axis) for axis in y.layout.sharded_axes] == ["y"]
    assert moved == size
    assert np.array_equal(y.numpy(), values.reshape(new))
