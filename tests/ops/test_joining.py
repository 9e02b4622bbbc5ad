"""Joining, cutting apart, padding, reversing and rolling against NumPy, and the bytes of each."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwise
from shardwise import (
    AbstractEngine,
    ArgumentError,
    BindingError,
    DeviceMesh,
    EngineError,
    Layout,
    P,
    Tensor,
    asarray,
    concat,
    engine_context,
    flip,
    grad,
    pad,
    roll,
    shard,
    split,
    stack,
    unstack,
)
from shardwise.engine.abstract import AbstractArrays
from shardwise.engine.storage import storage_of
from tests.ops.cases import agrees, lacking, moves_only_what_changes_device, sent, tensors, transposed
from tests.ops.peers import check
from tests.prim.cases import host_meshes, jax_of_eight, spread

MESH = DeviceMesh((2, 4), ("x", "y"))
RANKED = st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple)


@st.composite
def alike(draw: st.DrawFn, dim: int | None = None, **how: Any) -> tuple[list[Any], int]:
    """Tensors that can be joined along a dim, and the dim."""
    mesh, shape = draw(host_meshes()), draw(RANKED)
    along = draw(st.integers(0, len(shape) - 1))
    dtype = draw(st.sampled_from(how.pop("dtypes", ["float64", "float32", "int8", "bool", "complex64"])))
    out = []
    for i in range(draw(st.integers(1, 3))):
        size = draw(st.integers(0, 6))
        own = tuple(size if k == along else n for k, n in enumerate(shape))
        out.append(draw(tensors(own, [dtype], mesh=mesh, seed=i, **how)))
    return out, along


# -- values ----------------------------------------------------------------------------------------------


@given(alike())
def test_concat(case):
    parts, dim = case
    agrees(lambda *xs: concat(xs, axis=dim), lambda *xs: np.concatenate(xs, dim), *parts)


@given(alike())
def test_concat_flattened(case):
    parts, _ = case
    agrees(lambda *xs: concat(xs, axis=None), lambda *xs: np.concatenate(xs, None), *parts, torch=False)


FLATTENED = [  # shapes and layouts of two tensors on (x=2, y=2), of which the first is the largest
    ((1, 2, 1), ["x", None, None], (), (1, 1, 1), [None, None, None], ("x",)),  # pending along what cuts the result
    ((4, 2), [("x", "y"), None], (), (2, 2), [None, "x"], ("y",)),
    ((2, 4), [None, "y"], ("x",), (2, 2), ["x", None], ("y",)),
    ((2, 1, 1), [None, "x", None], (), (2, 0), ["x", None], ()),  # an axis on a dim of size one, beside nothing
    ((0, 3), ["x", None], (), (0,), ["y"], ()),
    ((3, 1, 1), [None, None, "x"], ("y",), (0, 2), [None, "y"], ("x",)),
]


@pytest.mark.parametrize(("one", "cuts", "pending", "other", "its_cuts", "its_pending"), FLATTENED)
def test_concat_flattened_of_pending_and_empty_values(one, cuts, pending, other, its_cuts, its_pending):
    mesh = DeviceMesh((2, 2), ("x", "y"))
    parts = [
        spread(Layout(mesh, cuts, pending), one, np.dtype("float64"), 0)[0],
        spread(Layout(mesh, its_cuts, its_pending), other, np.dtype("float64"), 1)[0],
    ]
    for some in (parts, parts[::-1]):
        agrees(lambda *xs: concat(xs, axis=None), lambda *xs: np.concatenate(xs, None), *some)


def test_concat_of_several_dtypes_promotes():
    a, b = shard(np.ones(3, "int8"), MESH, P("x")), shard(np.ones(2, "float32"), MESH, P("y"))
    assert concat([a, b, np.ones(1, bool)]).dtype == np.float32
    assert concat([a, b]).numpy().tolist() == [1.0] * 5


@given(st.data(), host_meshes(), st.lists(st.integers(0, 5), max_size=2).map(tuple))
def test_stack_and_unstack(data, mesh, shape):
    parts = [data.draw(tensors(shape, ["float32"], mesh=mesh, seed=i)) for i in range(data.draw(st.integers(1, 3)))]
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    whole = agrees(lambda *xs: stack(xs, axis=axis), lambda *xs: np.stack(xs, axis), *parts)
    found = unstack(whole, axis=axis)
    assert isinstance(found, tuple)
    for part, again in zip(parts, found, strict=True):
        assert np.array_equal(part.numpy(), again.numpy())


def test_unstack_of_an_empty_dim_is_empty():
    assert unstack(np.ones((0, 3))) == ()
    assert len(unstack(np.ones((2, 0)), axis=0)) == 2


@given(st.data(), tensors(RANKED))
def test_split(data, x):
    dim = data.draw(st.integers(-x.ndim, x.ndim - 1))
    at = data.draw(st.lists(st.integers(-9, 9), max_size=3))
    agrees(lambda x: split(x, at, axis=dim), lambda v: np.split(v, at, dim), x)
    size = x.shape[dim]
    sections = data.draw(st.sampled_from([n for n in range(1, 8) if size % n == 0]))
    agrees(lambda x: split(x, sections, axis=dim), lambda v: np.split(v, sections, dim), x, torch=False)


@given(st.data(), tensors())
def test_flip(data, x):
    dims = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim), tuple(range(x.ndim)), ()]))
    agrees(lambda x: flip(x, axis=dims), lambda v: np.flip(v, dims), x)


@given(st.data(), tensors())
def test_roll(data, x):
    shift = data.draw(st.integers(-9, 9))
    agrees(lambda x: roll(x, shift), lambda v: np.roll(v, shift), x)
    if x.ndim:
        dim = data.draw(st.integers(-x.ndim, x.ndim - 1))
        agrees(lambda x: roll(x, shift, axis=dim), lambda v: np.roll(v, shift, dim), x)
        dims = tuple(data.draw(st.permutations(range(x.ndim))))
        shifts = tuple(data.draw(st.integers(-4, 4)) for _ in dims)
        agrees(lambda x: roll(x, shifts, axis=dims), lambda v: np.roll(v, shifts, dims), x, torch=False)
        agrees(lambda x: roll(x, shift, axis=dims), lambda v: np.roll(v, shift, dims), x, torch=False)


@given(st.data(), tensors(RANKED, ["float32", "int8"], partial=False, halo=False))
def test_roll_of_all_elements_in_a_row_moves_only_what_changes_device(data, x):
    shift = data.draw(st.integers(-50, 50))
    moves_only_what_changes_device(lambda x: roll(x, shift), lambda v: np.roll(v, shift), x)


def test_roll_names_a_dim_twice_as_numpy_does():
    x = shard(np.arange(5), MESH, P("y"))
    assert np.array_equal(roll(x, (1, 2), axis=(0, 0)).numpy(), np.roll(np.arange(5), (1, 2), (0, 0)))


@given(st.data(), tensors(RANKED))
def test_pad(data, x):
    mode = data.draw(st.sampled_from(["constant", "edge", "reflect", "wrap"]))
    most = {"constant": 9, "edge": 9, "reflect": -1, "wrap": 0}[mode]
    widths = []
    for size in x.shape:
        limit = max(0, size + most) if most <= 0 else 9 if size or mode == "constant" else 0
        widths.append((data.draw(st.integers(0, min(4, limit))), data.draw(st.integers(0, min(4, limit)))))
    if mode == "constant":
        value = data.draw(st.sampled_from([0, 1, 3 if x.dtype.kind != "b" else 1]))
        agrees(lambda x: pad(x, widths, constant_values=value), lambda v: np.pad(v, widths, constant_values=value), x)
        return
    agrees(lambda x: pad(x, widths, mode=mode), lambda v: np.pad(v, widths, mode=mode), x)


def test_pad_takes_widths_as_numpy_does():
    value = np.arange(6.0).reshape(2, 3)
    x = shard(value, MESH, P("x", "y"))
    for widths in (1, (1, 2), ((1, 2),), ((1, 0), (0, 2)), [[0, 0], [3, 1]], np.array([1, 1])):
        assert np.array_equal(pad(x, widths).numpy(), np.pad(value, widths))
    assert pad(np.array(2.0), 3).item() == 2.0


# -- bytes -----------------------------------------------------------------------------------------------


@given(alike(partial=False, halo=False, dtypes=["float32", "int8"]))
def test_concat_moves_only_what_changes_device(case):
    parts, dim = case
    moves_only_what_changes_device(lambda *xs: concat(xs, axis=dim), lambda *xs: np.concatenate(xs, dim), *parts)


@given(alike(partial=False, halo=False, dtypes=["float32", "int8"]))
def test_concat_flattened_moves_only_what_changes_device(case):
    parts, _ = case
    moves_only_what_changes_device(lambda *xs: concat(xs, axis=None), lambda *xs: np.concatenate(xs, None), *parts)


@given(st.data(), tensors(RANKED, ["float32", "int8"], partial=False, halo=False))
def test_flip_moves_only_what_changes_device(data, x):
    dims = data.draw(st.sampled_from([None, *range(x.ndim)]))
    moves_only_what_changes_device(lambda x: flip(x, axis=dims), lambda v: np.flip(v, dims), x)


@given(st.data(), tensors(RANKED, ["float32", "int8"], partial=False, halo=False))
def test_roll_moves_only_what_changes_device(data, x):
    shift, dim = data.draw(st.integers(-9, 9)), data.draw(st.integers(0, x.ndim - 1))
    moves_only_what_changes_device(lambda x: roll(x, shift, axis=dim), lambda v: np.roll(v, shift, dim), x)


@given(st.data(), tensors(RANKED, ["float32", "int8"], partial=False, halo=False))
def test_pad_moves_only_what_changes_device(data, x):
    widths = [(data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4))) for _ in x.shape]
    moves_only_what_changes_device(lambda x: pad(x, widths), lambda v: np.pad(v, widths, constant_values=-1), x)


@given(st.data(), tensors(RANKED, ["float32", "int8"], partial=False, halo=False))
def test_split_moves_only_what_changes_device(data, x):
    dim = data.draw(st.integers(0, x.ndim - 1))
    at = sorted(data.draw(st.lists(st.integers(0, x.shape[dim]), max_size=2)))
    parts, size = sent(lambda: split(x, at, axis=dim))
    numbers = np.split(np.arange(x.size).reshape(x.shape), at, dim)
    wanted = [lacking([own], [x.layout], [x.shape], y.layout) for own, y in zip(numbers, parts, strict=True)]
    assert size == sum(wanted) * x.dtype.itemsize


@given(st.data(), tensors(RANKED, ["float32"], partial=False, halo=False))
def test_roll_of_several_dims_moves_only_what_changes_device(data, x):
    dims = tuple(range(x.ndim))
    shifts = tuple(data.draw(st.integers(-4, 4)) for _ in dims)
    moves_only_what_changes_device(lambda x: roll(x, shifts, axis=dims), lambda v: np.roll(v, shifts, dims), x)


@given(st.data(), tensors(RANKED, ["float32"], partial=False, halo=False), st.sampled_from(["edge", "reflect", "wrap"]))
def test_pad_in_any_mode_moves_only_what_changes_device_and_an_element_once(data, x, mode):
    widths = []
    for size in x.shape:
        most = min(5, {"edge": 5 if size else 0, "reflect": max(0, size - 1), "wrap": size}[mode])
        widths.append((data.draw(st.integers(0, most)), data.draw(st.integers(0, most))))
    moves_only_what_changes_device(lambda x: pad(x, widths, mode=mode), lambda v: np.pad(v, widths, mode=mode), x)


def test_along_dims_that_are_not_sharded_nothing_is_sent():
    x = shard(np.arange(40.0).reshape(8, 5), MESH, P(("x", "y")))
    widths = ((0, 0), (2, 1))
    for call in (
        lambda: concat([x, x], axis=1),
        lambda: stack([x, x], axis=0),
        lambda: stack([x, x], axis=2),
        lambda: unstack(x, axis=1),
        lambda: split(x, [1, 3], axis=1),
        lambda: flip(x, axis=1),
        lambda: roll(x, 2, axis=1),
        *(lambda mode=mode: pad(x, widths, mode=mode) for mode in ("constant", "edge", "reflect", "wrap")),  # type: ignore[arg-type]
    ):
        assert sent(call)[1] == 0


def test_a_roll_by_one_sends_one_element_per_boundary():
    x = shard(np.arange(37.0), MESH, P(("x", "y")))
    assert sent(lambda: roll(x, 1))[1] == 8 * 8
    assert sent(lambda: roll(x, -1))[1] == 8 * 8
    assert sent(lambda: roll(x, 37))[1] == 0


def test_a_dim_that_does_not_divide_is_not_silently_replicated():
    x = shard(np.arange(7.0), MESH, P("y"))
    for y in (concat([x, x]), flip(x), roll(x, 3), pad(x, (1, 2)), pad(x, (1, 2), mode="wrap"), split(x, [5])[0]):
        assert str(y.layout) == "[y]"
        assert len(y.local(0)) < y.size


def test_two_shard_orders_of_the_same_axes_do_not_mix_in_a_join():
    value = np.arange(11.0)
    a, b = shard(value, MESH, P(("x", "y"))), shard(value, MESH, P(("y", "x")))
    assert np.array_equal(concat([a, b]).numpy(), np.concatenate([value, value]))
    assert np.array_equal(stack([b, a]).numpy(), np.stack([value, value]))


def test_pending_sums_stay_pending_where_nothing_has_to_move():
    x = shard(np.arange(8.0), MESH, P("x", unreduced=["y"]))
    whole = shard(np.arange(8.0), MESH, P(unreduced=["y"]))
    for made, size in (sent(lambda: flip(whole)), sent(lambda: stack([x, x]))):
        assert [str(axis) for axis in made.layout.partial] == ["y"]
        assert size == 0
    y = pad(x, (1, 1))
    assert [str(axis) for axis in y.layout.partial] == ["y"]
    assert np.array_equal(y.numpy(), np.pad(np.arange(8.0), 1))
    ones = pad(x, (1, 1), constant_values=1)  # a constant would be added once per contribution
    assert not ones.layout.partial
    assert np.array_equal(ones.numpy(), np.pad(np.arange(8.0), 1, constant_values=1))


def test_on_the_abstract_engine_nothing_is_computed_however_large():
    mesh, engine = DeviceMesh((4, 8), ("x", "y")), AbstractEngine()
    layout, shape = P("x", "y").to_layout(2, mesh), (1 << 20, 1 << 20)
    dtype = np.dtype("float32")
    with engine_context(engine):
        x = Tensor(AbstractArrays(storage_of(layout, shape), dtype), layout, shape, dtype, engine)
        index = np.arange(16)
        for made in (
            concat([x, x], axis=1), stack([x, x]), flip(x), roll(x, (5, 7), axis=(0, 1)), pad(x, 3, mode="reflect"),
            pad(x, 2, mode="edge"), x[5:-7:3, ::-2], x[index], x[index, index], x.at[1:9].set(1.0),
            x.at[index].add(2.0),
            shardwise.argmax(x, axis=1), shardwise.cumulative_sum(x, axis=0), shardwise.topk(x, 4)[1],
            shardwise.norm(x), shardwise.layer_norm(x), shardwise.cross_entropy(x, np.zeros(1 << 20, int)),
        ):  # fmt: skip
            assert made.engine is engine
            with pytest.raises(EngineError, match="has a layout but no values"):
                made.numpy()


# -- derivatives -----------------------------------------------------------------------------------------


@given(alike(dtypes=["float64"]))
def test_the_derivative_of_concat_is_its_transpose(case):
    parts, dim = case
    transposed(lambda *xs: concat(xs, axis=dim), *parts)


@given(st.data(), tensors(RANKED, ["float64"]))
def test_the_derivatives_of_rearrangements_are_their_transposes(data, x):
    dim, shift = data.draw(st.integers(0, x.ndim - 1)), data.draw(st.integers(-9, 9))
    most = max(0, x.shape[dim] - 1)
    widths = [(min(2, most), min(3, most)) if k == dim else (0, 0) for k in range(x.ndim)]
    mode = data.draw(st.sampled_from(["constant", "edge", "reflect", "wrap"]))
    transposed(lambda x: flip(x, axis=dim), x)
    transposed(lambda x: roll(x, shift, axis=dim), x)
    transposed(lambda x: split(x, [1, 3], axis=dim)[1], x)
    transposed(lambda x: pad(x, widths, mode=mode), x)
    transposed(lambda x: stack([x, x], axis=dim), x)


def functions() -> list[Any]:
    jnp = jax_of_eight().numpy
    modes = [("pad", {"mode": mode}) for mode in ("constant", "edge", "reflect", "wrap")]
    return [
        (lambda x, y: concat([x, y, x]), lambda x, y: jnp.concatenate([x, y, x])),
        (lambda x, y: concat([x, y], axis=-1), lambda x, y: jnp.concatenate([x, y], -1)),
        (lambda x, y: stack([x, y], axis=1), lambda x, y: jnp.stack([x, y], 1)),
        (lambda x, y: split(x * y, [1, 4])[1], lambda x, y: jnp.split(x * y, [1, 4])[1]),
        (lambda x, y: unstack(x * y, axis=1)[2], lambda x, y: (x * y)[:, 2]),
        (lambda x, y: flip(x) * y, lambda x, y: jnp.flip(x) * y),
        (lambda x, y: roll(x * x, 7) * y, lambda x, y: jnp.roll(x * x, 7) * y),
        (lambda x, y: roll(x, (-1, 3), axis=(0, 1)) * y, lambda x, y: jnp.roll(x, (-1, 3), axis=(0, 1)) * y),
        *(
            (
                lambda x, y, how=how: pad(x * y, ((1, 2), (3, 0)), **how),
                lambda x, y, how=how: jnp.pad(x * y, ((1, 2), (3, 0)), **how),
            )
            for _, how in [*modes, ("pad", {"constant_values": 3.0})]
        ),
    ]


@pytest.mark.parametrize("which", range(13))
def test_values_and_derivatives_follow_jax(which):
    rng = np.random.default_rng(0)
    ours, theirs = functions()[which]
    check(ours, theirs, rng.standard_normal((6, 5)), rng.standard_normal((6, 5)), seed=which)


def test_second_derivatives():
    jax = jax_of_eight()
    jnp = jax.numpy
    value = np.random.default_rng(0).standard_normal(6)
    x = shard(value, MESH, P("y"))

    def ours(x):
        wide = pad(concat([x * x, flip(x)]), (1, 2), mode="reflect")
        return shardwise.sum(wide * roll(wide, 2) * wide)

    def theirs(x):
        wide = jnp.pad(jnp.concatenate([x * x, x[::-1]]), (1, 2), mode="reflect")
        return jnp.sum(wide * jnp.roll(wide, 2) * wide)

    found = grad(lambda x: shardwise.sum(shardwise.sin(grad(ours)(x))))(x)
    want = jax.grad(lambda x: jnp.sum(jnp.sin(jax.grad(theirs)(x))))(value)
    assert found.layout is x.layout
    assert np.allclose(found.numpy(), want)


# -- refusals --------------------------------------------------------------------------------------------

ONES = np.ones((2, 3))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: concat([]), ArgumentError, "concat takes a list of one or more arrays, got \\[\\]"),
        (lambda: concat(asarray(ONES)), ArgumentError, "concat takes a list of one or more arrays, got Tensor"),  # type: ignore[arg-type]
        (
            lambda: concat([ONES, np.ones((3, 2))]),
            BindingError,
            r"all dims but dim 0 must be equal, got shapes \(2, 3\)",
        ),
        (lambda: concat([ONES, np.ones(3)]), BindingError, r"all dims but dim 0 must be equal.*\(3,\)"),
        (lambda: concat([ONES], axis=2), BindingError, "concat: axis 2 is out of range for a tensor with 2 dims"),
        (lambda: concat([ONES], axis=0.5), ArgumentError, "concat: axis is an int"),  # type: ignore[arg-type]
        (lambda: concat([np.array(1.0), np.array(2.0)]), BindingError, "concat: axis 0 is out of range"),
        (lambda: stack([ONES, np.ones(3)]), BindingError, r"stack: arrays must have one shape, got \(2, 3\), \(3,\)"),
        (lambda: stack([ONES], axis=3), BindingError, "stack: axis 3 is out of range for a result with 3 dims"),
        (lambda: stack([]), ArgumentError, "stack takes a list"),
        (lambda: unstack(ONES, axis=2), BindingError, "unstack: axis 2 is out of range"),
        (lambda: split(ONES, 2, axis=1), BindingError, "3 elements do not make 2 equal sections.\n  give the indices"),
        (lambda: split(ONES, 0), BindingError, "do not make 0 equal sections"),
        (lambda: split(ONES, [1], axis=-3), BindingError, "split: axis -3 is out of range"),
        (lambda: flip(ONES, axis=2), BindingError, "flip: axis 2 is out of range"),
        (lambda: flip(ONES, axis=(0, 0)), BindingError, "flip: a dim is named twice"),
        (lambda: roll(ONES, (1, 2)), ArgumentError, r"several shifts need as many axes, got shift=\(1, 2\)"),
        (lambda: roll(ONES, (1, 2), axis=0), ArgumentError, "roll: 2 shifts for 1 axes"),
        (lambda: roll(ONES, 1, axis=5), BindingError, "roll: axis 5 is out of range"),
        (lambda: pad(ONES, 1, mode="edgy"), ArgumentError, r"mode is 'constant'.*got 'edgy'[^$]*did you mean 'edge'"),  # type: ignore[arg-type]
        (lambda: pad(ONES, (1, 2, 3)), ArgumentError, r"a number, a pair, or a pair per dim \(2\), got \(1, 2, 3\)"),
        (lambda: pad(ONES, -1), ArgumentError, "widths are integers of 0 or more, got -1"),
        (lambda: pad(ONES, 0.5), ArgumentError, "widths are integers of 0 or more, got 0.5"),
        (lambda: pad(ONES, 2, mode="reflect"), BindingError, "'reflect' adds at most 1 elements on each side of a dim"),
        (lambda: pad(ONES, 3, mode="wrap"), BindingError, "'wrap' adds at most 2 elements.*got 3 and 3"),
        (lambda: pad(np.ones(0), 1, mode="edge"), BindingError, "'edge' adds at most 0 elements"),
        (
            lambda: pad(np.ones(2), 1, constant_values=1j),
            BindingError,
            r"pad: 1j is no number of float64\.\n  convert first: x\.astype\('complex128'\)",
        ),
    ],
)
def test_what_does_not_fit_says_so(call, error, text):
    with pytest.raises(error, match=text):
        call()
