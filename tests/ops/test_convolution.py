"""Convolution over sharded space against JAX: values, both derivatives, and only edges sent."""

from random import Random
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import ArgumentError, BindingError, DeviceMesh, P, conv, current_engine, grad, shard, value_and_grad
from tests.ops.peers import check
from tests.prim.cases import jax_of_eight

LINE = DeviceMesh((4,), ("x",))
GRID = DeviceMesh((2, 2), ("x", "y"))


def theirs(jax, space, **how):
    numbers = {1: ("NCH", "OIH", "NCH"), 2: ("NCHW", "OIHW", "NCHW")}[space]
    groups, dilation = how.pop("groups", 1), how.pop("dilation", (1,) * space)
    stride, padding = how.pop("stride", (1,) * space), how.pop("padding", "VALID")

    def function(x, w):
        return jax.lax.conv_general_dilated(
            x, w, stride, padding, rhs_dilation=dilation, dimension_numbers=numbers, feature_group_count=groups
        )

    return function


@pytest.mark.parametrize("seed", range(40))
def test_values_and_derivatives(seed):
    jax = jax_of_eight()
    random, rng = Random(seed), np.random.default_rng(seed)
    space, groups = random.choice([1, 2]), random.choice([1, 1, 2, 3])
    channels, outs = groups * random.randint(1, 2), groups * random.randint(1, 3)
    width, stride, dilation = ([random.randint(1, n) for _ in range(space)] for n in (3, 3, 2))
    sizes = [random.randint(5, 14) for _ in range(space)]
    padding = random.choice(["VALID", "SAME", [(random.randint(0, 3), random.randint(0, 3)) for _ in range(space)]])
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    x = rng.standard_normal((random.randint(1, 3), channels, *sizes))
    w = rng.standard_normal((outs, channels // groups, *width))
    check(lambda x, w: conv(x, w, **how), theirs(jax, space, **how), x, w, seed=seed)


def test_trap_spatially_sharded_convolution_is_right():
    # A kernel that reaches over the end of a shard must see the neighbour's elements, in every pass.
    jax = jax_of_eight()
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, 16, 8)), rng.standard_normal((5, 3, 3, 3))
    for spec in (P(None, None, "x"), P(None, None, "x", "y"), P(None, None, ("x", "y")), P("y", None, "x")):
        ours = conv(shard(x, GRID, spec), w, padding="SAME")
        np.testing.assert_allclose(ours.numpy(), theirs(jax, 2, padding="SAME")(x, w), rtol=1e-10, atol=1e-12)
        assert ours.layout.dims == shard(x, GRID, spec).layout.dims


@pytest.mark.parametrize(("width", "dilation"), [(3, 1), (5, 1), (3, 2)])
def test_only_edges_are_sent_forward_and_backward(width, dilation):
    x = shard(np.ones((2, 3, 32, 8)), LINE, P(None, None, "x"))
    w = sw.ones((5, 3, width, 3), mesh=LINE)
    counters = current_engine().counters
    reach = (width - 1) * dilation
    counters.reset()
    y = conv(x, w, padding="SAME", dilation=(dilation, 1))
    assert counters.bytes_moved == {"exchange": 2 * 3 * 3 * reach * 8 * 8}
    counters.reset()
    _, (gx, gw) = value_and_grad(lambda x, w: sw.sum(conv(x, w, padding="SAME", dilation=(dilation, 1)) * y), (0, 1))(
        x, w
    )
    edges = 3 * reach * 8 * 8
    # The edges of x, twice (the value and the gradient of w); those of the cotangent; the sums of the gradient of w
    # and of the value.
    assert counters.bytes_moved["exchange"] == edges * (2 * 3 * 2 + 2 * 5)
    assert counters.total == counters.bytes_moved["exchange"] + 2 * 3 * gw.nbytes + 2 * 3 * 8
    assert gx.layout is x.layout


def test_channels_may_be_sharded():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 8, 10)), rng.standard_normal((8, 8, 3))
    want = conv(x, w).numpy()
    counters = current_engine().counters
    made, taken = shard(w, LINE, P("x")), shard(w, LINE, P(None, "x"))
    counters.reset()
    out = conv(shard(x, LINE, P()), made)
    assert str(out.layout) == "[-|x|-]"
    summed = conv(shard(x, LINE, P(None, "x")), taken)
    assert str(summed.layout) == "[-|-|-] sum(x)"
    assert counters.total == 0
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(summed.numpy(), want, rtol=1e-12)


def test_groups_stay_whole():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 8, 10)), rng.standard_normal((8, 1, 3))
    want = conv(x, w, groups=8).numpy()
    counters = current_engine().counters
    spread = shard(x, LINE, P(None, "x"))
    counters.reset()
    out = conv(spread, w, groups=8)  # every device has two whole groups
    assert str(out.layout) == "[-|x|-]"
    assert counters.total == 0
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-12)
    pairs = rng.standard_normal((8, 4, 3))
    torn = conv(spread, pairs, groups=2)  # two groups cannot be cut into four
    np.testing.assert_allclose(torn.numpy(), conv(x, pairs, groups=2).numpy(), rtol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_shards_smaller_than_the_kernel(size):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 1, size)), rng.standard_normal((1, 1, 5))
    how: Any = {"padding": [(4, 4)]}
    spread = shard(x, LINE, P(None, None, "x"))
    np.testing.assert_allclose(conv(spread, w, **how).numpy(), conv(x, w, **how).numpy(), rtol=1e-12)
    got, want = (grad(lambda x: sw.sum(conv(x, w, **how) ** 2.0))(v) for v in (spread, sw.asarray(x)))
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12)


def test_nothing_and_dtypes():
    assert conv(np.ones((0, 2, 5)), np.ones((3, 2, 2))).shape == (0, 3, 4)
    assert conv(np.ones((1, 2, 1)), np.ones((3, 2, 2))).shape == (1, 3, 0)
    assert conv(np.ones((1, 1, 4), "float32"), np.ones((1, 1, 2), "float64")).dtype == "float64"
    assert conv(np.ones((1, 1, 4), "int32"), np.ones((1, 1, 2), "int32")).numpy().tolist() == [[[2, 2, 2]]]


def test_torch_arrays():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 4, 9)), rng.standard_normal((6, 2, 3))
    how = {"padding": "SAME", "stride": 2, "groups": 2}

    def loss(x, w):
        return sw.sum(conv(x, w, **how) ** 2.0)

    want = value_and_grad(loss, (0, 1))(x, w)
    ours = [shard(torch.tensor(v), LINE, s) for v, s in ((x, P(None, None, "x")), (w, P()))]
    value, got = value_and_grad(loss, (0, 1))(*ours)
    np.testing.assert_allclose(value.numpy(), want[0].numpy())
    for a, b in zip(got, want[1], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10)


@pytest.mark.parametrize(
    ("shapes", "how", "kind", "text"),
    [
        (((1, 1), (1, 1)), {}, BindingError, r"conv needs x of \(batch, channel, space...\) .* got shapes \(1, 1\)"),
        (((1, 1, 4), (1, 1, 1, 1)), {}, BindingError, "conv needs x"),
        (((1, 3, 4), (2, 2, 2)), {}, BindingError, r"conv: x has 3 channels, w takes 2 in each of 1 groups"),
        (((1, 4, 4), (3, 2, 2)), {"groups": 2}, BindingError, "groups must divide the 3 channels of the result, got 2"),
        (((1, 1, 4), (1, 1, 2)), {"stride": 0}, ArgumentError, r"stride is a positive int, or one per dim .* got 0"),
        (((1, 1, 4), (1, 1, 2)), {"dilation": (1, 1)}, ArgumentError, r"dilation is a positive int"),
        (((1, 1, 4), (1, 1, 2)), {"padding": "FULL"}, ArgumentError, r"padding is 'VALID', 'SAME' or a pair .* 'FULL'"),
        (((1, 1, 4), (1, 1, 2)), {"padding": [(1, -1)]}, ArgumentError, "padding is 'VALID'"),
        (((1, 1, 4), (1, 1, 0)), {}, BindingError, "a kernel has at least one element"),
    ],
)  # fmt: skip
def test_errors(shapes, how, kind, text):
    with pytest.raises(kind, match=text):
        conv(np.ones(shapes[0]), np.ones(shapes[1]), **how)
