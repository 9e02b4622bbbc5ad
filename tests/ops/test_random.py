"""Random tensors: the same for any layout, the bits of JAX, and distributed as they should be."""

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise
from shardwise import (
    AbstractEngine,
    ArgumentError,
    BindingError,
    Cut,
    DeviceMesh,
    Layout,
    LocalEngine,
    P,
    Tensor,
    engine_context,
    grad,
    jvp,
    mesh_context,
    shard,
    sum,
    vjp,
)
from shardwise.engine.pool import HUGE
from shardwise.engine.threads import thread_count
from shardwise.layout.placement import reductions_of
from shardwise.ops import random
from shardwise.ops.random import bernoulli, bits, dropout, fold_in, integers, key, normal, split, uniform
from tests.prim.cases import SHAPES, assert_holds, host_meshes, jax_of_eight, layouts_for

MESH = DeviceMesh((2, 4), ("x", "y"))
KEY = key(2**40 + 17)
MANY = 200_000
ODD: dict[str, Any] = {"key": 0, "seed": 1.5, "low": 0.5, "p": np.ones(3)}  # of kinds that are not taken

MAKERS: dict[str, Callable[..., Tensor]] = {
    "bits": lambda shape, **where: bits(KEY, shape, **where),
    "wide bits": lambda shape, **where: bits(KEY, shape, "uint64", **where),
    "uniform": lambda shape, **where: uniform(KEY, shape, **where),
    "uniform bfloat16": lambda shape, **where: uniform(KEY, shape, "bfloat16", -1, 3, **where),
    "normal": lambda shape, **where: normal(KEY, shape, **where),
    "normal float16": lambda shape, **where: normal(KEY, shape, "float16", **where),
    "normal float32": lambda shape, **where: normal(KEY, shape, "float32", **where),
    "normal complex": lambda shape, **where: normal(KEY, shape, "complex128", **where),
    "bernoulli": lambda shape, **where: bernoulli(KEY, 0.3, shape, **where),
    "integers": lambda shape, **where: integers(KEY, -3, 9, shape, **where),
    "integers far apart": lambda shape, **where: integers(KEY, -(2**63), 2**63, shape, **where),
}


# -- the same for any layout ------------------------------------------------------------------------------


@given(st.data(), st.sampled_from(sorted(MAKERS)), SHAPES)
def test_values_do_not_depend_on_layout_or_mesh(data: st.DataObject, name: str, shape: tuple[int, ...]):
    want = MAKERS[name](shape).numpy()
    op = data.draw(st.sampled_from([None, *reductions_of(want.dtype)]))
    layout = data.draw(layouts_for(data.draw(host_meshes()), shape, op=op))
    with engine_context(LocalEngine()) as engine:
        made = MAKERS[name](shape, layout=layout)
        assert engine.counters.total == 0
        assert_holds(made, layout, want)


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_values_do_not_depend_on_layout_beyond_one_block(name: str):
    shape = (3, 130, 257)
    want = MAKERS[name](shape).numpy()
    for layout in (P("x", "y"), P(None, None, ("y", "x")), P(None, ("x", "y")), P("y")):
        assert MAKERS[name](shape, mesh=MESH, layout=layout).numpy().tobytes() == want.tobytes()
    halo = Layout(MESH, [None, Cut("y", halo=(2, 1), edge="pad"), Cut("x", halo=3)])
    assert MAKERS[name](shape, layout=halo).numpy().tobytes() == want.tobytes()


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_the_abstract_engine_knows_layout_and_dtype(name: str):
    with engine_context(AbstractEngine()), mesh_context(MESH):
        made = MAKERS[name]((8, 8), layout=P("y"))
    assert made.dtype == MAKERS[name](()).dtype
    assert made.arrays[0].shape == (2, 8)


def test_values_of_one_version_stay_those_of_the_next():
    wide, narrow = normal(key(0), 2).numpy(), normal(key(0), 2, "float32").numpy()
    assert bits(key(0), 2, "uint64").numpy().tolist() == [0x6B20015999BA4EFE, 0x375F238FCDDB151D]
    assert [float(v).hex() for v in wide] == ["0x1.058841725c2e3p+0", "0x1.111cd4000b2f1p-1"]
    assert [float(v).hex() for v in narrow] == ["-0x1.4136a00000000p+0", "-0x1.02991a0000000p+0"]


DIGEST = """
from hashlib import sha256
from shardwise import random
out = sha256()
for dtype in ("bfloat16", "float32", "float64", "complex64"):
    out.update(random.normal(random.key(3), 20_001, dtype).numpy().tobytes())
    if dtype != "complex64":
        out.update(random.uniform(random.key(3), 20_001, dtype, -3, 7).numpy().tobytes())
print(out.hexdigest())
"""


def test_values_do_not_depend_on_the_instructions_that_the_processor_has():
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    found = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
    digests = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", DIGEST],
            env={**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(disabled)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for disabled in ([], found)
    ]
    assert digests[0] == digests[1] != ""


def test_what_is_needed_beside_the_tensor_is_bounded():
    normal(KEY, 2**18, "float32")  # what is made or loaded once
    extra = []
    for count in (2**18, 2**22):
        with engine_context(LocalEngine()):
            tracemalloc.start()
            normal(KEY, count, "float32")
            extra.append(tracemalloc.get_traced_memory()[1] - 4 * count)
            tracemalloc.stop()
    small, large = extra
    most = thread_count() * 2**20  # bytes: the work space of each is two thirds of that, and other threads take some
    assert small < most
    assert large - HUGE < most < 4 * count  # large blocks are aligned within a little more


# -- beside JAX ------------------------------------------------------------------------------------------


# Few shapes, because JAX compiles anew for each.
@settings(max_examples=25)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.sampled_from([(), (5,), (2, 3), (0, 4)]))
def test_keys_and_bits_are_those_of_jax(seed: int, number: int, shape: tuple[int, ...]):
    jax = jax_of_eight()
    theirs = jax.random.key(np.uint64(seed).astype(np.int64), impl="threefry2x32")

    def words(jax_key: Any) -> list[int]:
        return np.asarray(jax.random.key_data(jax_key)).tolist()

    ours = key(seed)
    assert [ours.high, ours.low] == words(theirs)
    assert [[k.high, k.low] for k in split(ours, 3)] == [words(k) for k in jax.random.split(theirs, 3)]
    folded = fold_in(ours, number)
    assert [folded.high, folded.low] == words(jax.random.fold_in(theirs, np.uint32(number)))
    for dtype in ("uint32", "uint64"):
        want = np.asarray(jax.random.bits(theirs, shape, dtype))
        assert np.array_equal(bits(ours, shape, dtype).numpy(), want)


def test_uniform_values_are_the_leading_bits_of_jax():
    jax = jax_of_eight()
    theirs = jax.random.key(5)
    for dtype, width, digits in (("bfloat16", 32, 8), ("float16", 32, 11), ("float32", 32, 24), ("float64", 64, 53)):
        raw = np.asarray(jax.random.bits(theirs, (1000,), f"uint{width}")) >> np.uint64(width - digits)
        found = uniform(key(5), 1000, dtype).numpy()
        assert str(found.dtype) == dtype
        assert np.array_equal(found.astype(np.float64), raw * 2.0**-digits)


# -- distributions -----------------------------------------------------------------------------------------


def distance(values: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray]) -> float:
    """Kolmogorov and Smirnov's distance times the root of the count: above 2 once in 1,500 times."""
    want = cdf(np.sort(values))
    steps = np.arange(values.size + 1) / values.size
    return float(np.sqrt(values.size) * max((want - steps[:-1]).max(), (steps[1:] - want).max()))


def normal_cdf(x: np.ndarray) -> np.ndarray:
    from math import erf

    grid = np.linspace(-9, 9, 20_001)
    return np.interp(x, grid, [0.5 + 0.5 * erf(v / 2**0.5) for v in grid])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_values_are_normal(dtype: str, seed: int):
    found = normal(fold_in(KEY, seed), MANY, dtype, mesh=MESH, layout=P("y")).numpy().astype(np.float64)
    assert distance(found, normal_cdf) < 2
    assert distance(found[: MANY // 100], normal_cdf) < 2
    root = MANY**0.5
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((found**power).mean() - moment) < 4 * spread**0.5 / root
    # Neighbours, and elements of different keys, have nothing to do with each other.
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 4 / root
    other = normal(fold_in(KEY, seed + 100), MANY, dtype).numpy()
    assert abs(np.corrcoef(found, other)[0, 1]) < 4 / root


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_normal_values_of_few_digits_are_the_rounded_ones(dtype: str):
    want = normal(KEY, 1000, "float32").numpy()
    eps = float(ml_dtypes.finfo(dtype).eps)
    assert np.allclose(normal(KEY, 1000, dtype).numpy().astype(np.float32), want, rtol=eps, atol=1e-6)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_normal_values(dtype: str):
    found = normal(KEY, MANY, dtype).numpy()
    assert str(found.dtype) == dtype
    for part in (np.real(found), np.imag(found)):
        assert distance(part.astype(np.float64) * 2**0.5, normal_cdf) < 2
    assert abs(np.corrcoef(np.real(found), np.imag(found))[0, 1]) < 4 / MANY**0.5
    assert abs((np.abs(found) ** 2).mean() - 1) < 4 / MANY**0.5
    turns = np.angle(found.astype(np.complex128)) / (2 * np.pi) + 0.5
    assert distance(turns, lambda x: x) < 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_values_are_even(dtype: str):
    found = uniform(KEY, MANY, dtype).numpy().astype(np.float64)
    assert 0 <= found.min() < found.max() < 1
    assert distance(found, lambda x: x) < 2
    moved = uniform(KEY, MANY, dtype, -3, 5).numpy().astype(np.float64)
    assert np.allclose(moved, found * 8 - 3, atol=1e-6)
    pairs = np.histogram2d(found[::2], found[1::2], bins=10)[0]
    expected = MANY / 2 / 100
    assert ((pairs - expected) ** 2 / expected).sum() < 160  # chi squared of 99 degrees: above once in 10,000


@given(st.floats(-1e3, 1e3), st.floats(1e-2, 1e4), st.sampled_from(["float16", "bfloat16", "float32", "float64"]))
def test_uniform_values_stay_inside(low: float, width: float, dtype: str):
    high = low + width
    try:
        found = uniform(KEY, 300, dtype, low, high).numpy().astype(np.float64)
    except BindingError:  # no number of the dtype is between them
        between = np.linspace(low, high, 50, endpoint=False).astype(dtype).astype(np.float64)
        assert not ((between >= low) & (between < high)).any()
    else:
        assert (found >= low).all()
        assert (found < high).all()


@pytest.mark.parametrize("p", [0.0, 1e-3, 0.25, 0.5, 0.9, 1.0])
def test_bernoulli_values_are_true_as_often_as_they_should_be(p: float):
    found = bernoulli(KEY, p, (400, MANY // 400), mesh=MESH, layout=P("x", "y")).numpy()
    assert found.dtype == bool
    assert abs(found.mean() - p) <= 4 * (p * (1 - p) / MANY) ** 0.5


@pytest.mark.parametrize(("low", "high", "dtype"), [(0, 10, "int64"), (-7, 6, "int8"), (250, 256, "uint8")])
def test_integers_are_all_equally_frequent(low: int, high: int, dtype: str):
    found = integers(KEY, low, high, MANY, dtype).numpy()
    assert str(found.dtype) == dtype
    values, counts = np.unique(found, return_counts=True)
    assert values.tolist() == list(range(low, high))
    expected = MANY / (high - low)
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi squared of at most 12 degrees


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(0, 2**64, "uint64"), (-(2**63), 2**63, "int64"), (-(2**40), 2**62, "int64"), (1, 2**64 - 1, "uint64")],
)
def test_integers_that_are_far_apart(low: int, high: int, dtype: str):
    found = [int(v) for v in integers(KEY, low, high, 20_000, dtype).numpy()]
    assert all(low <= v < high for v in found)
    assert distance(np.array([(v - low) / (high - low) for v in found]), lambda x: x) < 2


def test_different_keys_give_different_numbers():
    keys = [key(0), key(1), key(2**32), *split(key(0), 3), fold_in(key(1), 0), *split(split(key(0))[0])]
    drawn = {bits(k, 4).numpy().tobytes() for k in keys}
    assert len(drawn) == len(set(keys)) == len(keys)
    assert split(key(3), 2) == split(key(3), 5)[:2]
    assert split(key(3), 0) == ()


# -- dropout -----------------------------------------------------------------------------------------------


def test_trap_dropout_masks_differ_between_shards_and_match_the_unsharded_run():
    value = np.ones((64, 32), "float32")
    want = dropout(KEY, value, 0.5).numpy()
    for layout in (P("x"), P("y", "x"), P(None, ("x", "y")), P()):
        x = shard(value, MESH, layout)
        got = dropout(KEY, x, 0.5)
        assert got.layout is x.layout
        assert np.array_equal(got.numpy(), want)
        masks = [np.asarray(array) for array in got.arrays]
        assert len({mask.tobytes() for mask in masks}) == len(masks)  # no two shards are dropped alike
    assert np.array_equal(want != 0, bernoulli(KEY, 0.5, (64, 32)).numpy())


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.5, 0.9])
def test_dropout_keeps_the_expected_value(rate: float):
    found = dropout(KEY, shard(np.full(MANY, 3.0), MESH, P("y")), rate).numpy()
    assert set(np.round(found * (1 - rate), 9)) == {0.0, 3.0}
    assert abs((found == 0).mean() - rate) < 4 * (rate * (1 - rate) / MANY) ** 0.5
    assert abs(found.mean() - 3) < 4 * 3 * (rate / (1 - rate) / MANY) ** 0.5


def test_dropout_of_none_and_of_all():
    x = shard(np.arange(8.0), MESH, P("x"))
    assert dropout(KEY, x, 0) is x
    assert dropout(KEY, x, 1.0).numpy().tolist() == [0.0] * 8


@pytest.mark.parametrize("layout", [P("x", "y"), P(None, "x"), P(unreduced=["x"])])
def test_derivatives_of_dropout_use_the_same_mask(layout: P):
    rng = np.random.default_rng(1)
    value, change = rng.standard_normal((2, 6, 8))
    x = shard(value, MESH, layout)
    scale = dropout(KEY, np.ones((6, 8)), 0.25).numpy()

    def fn(x: Any) -> Tensor:
        return dropout(KEY, x, 0.25)

    assert np.allclose(vjp(fn, x)[1](change)[0].numpy(), change * scale)
    assert np.allclose(jvp(fn, (x,), (change,))[1].numpy(), change * scale)
    found = grad(lambda x: sum(fn(x) * fn(x)))(x)
    assert np.allclose(found.numpy(), 2 * value * scale**2)


def test_dropout_in_the_dtypes_of_torch_and_numpy():
    for dtype in ("float16", "bfloat16", "float32", "complex64"):
        found = dropout(KEY, np.ones(50, dtype), 0.5)
        assert str(found.dtype) == dtype
        assert np.array_equal(found.numpy().astype("complex64") != 0, bernoulli(KEY, 0.5, 50).numpy())


# -- the module ----------------------------------------------------------------------------------------------


def test_the_namespace():
    assert shardwise.random is random
    assert all(hasattr(random, name) for name in random.__all__)
    assert "random" not in shardwise.__all__


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: normal(ODD["key"], 3), ArgumentError, r"a Key was expected, got 0.\n  random.key\(seed\) makes one"),
        (lambda: key(-1), BindingError, r"key: the seed is 0 or more and below 2\*\*64, got -1"),
        (lambda: key(ODD["seed"]), ArgumentError, "key: the seed is an int, got 1.5"),
        (lambda: fold_in(KEY, 2**63), BindingError, r"below 2\*\*63"),
        (lambda: split(KEY, -1), BindingError, "split: num is 0 or more"),
        (lambda: normal(KEY, 3, "int32"), ArgumentError, "normal: a dtype of floats or complex .* got int32"),
        (lambda: uniform(KEY, 3, "complex64"), ArgumentError, "uniform: a dtype of floats such as .* got complex64"),
        (
            lambda: uniform(KEY, 3, minval=2, maxval=2),
            BindingError,
            r"no float64 numbers can be drawn from \[2.0, 2.0\)",
        ),
        (lambda: uniform(KEY, 3, maxval=np.inf), ArgumentError, "maxval is a finite number, got inf"),
        (lambda: bits(KEY, 3, "int32"), ArgumentError, "unsigned integers such as 'uint32' was expected, got int32"),
        (lambda: integers(KEY, 5, 5, 3), BindingError, "low must be less than high, got 5 and 5"),
        (lambda: integers(KEY, 0, 300, 3, "int8"), BindingError, "int8 holds -128 to 127, which 0 to 299 are not in"),
        (lambda: integers(KEY, ODD["low"], 3, 3), ArgumentError, "low and high are ints, got 0.5 and 3"),
        (lambda: integers(KEY, 0, 3, 3, "float32"), ArgumentError, "a dtype of integers"),
        (lambda: bernoulli(KEY, 1.5), BindingError, "p is a probability from 0 to 1, got 1.5"),
        (lambda: bernoulli(KEY, ODD["p"]), ArgumentError, r"compare: uniform\(key, p.shape\) < p"),
        (lambda: dropout(KEY, np.ones(3), -0.1), BindingError, "rate is a probability from 0 to 1, got -0.1"),
        (lambda: dropout(KEY, np.ones(3, int), 0.5), ArgumentError, "dropout: a dtype of floats .* got int64"),
        (lambda: normal(KEY, (2**40, 2**40)), BindingError, r"fewer than 2\*\*63 elements"),
    ],
)
def test_what_does_not_fit_says_so(call: Any, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        call()
