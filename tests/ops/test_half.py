"""Half-precision numbers stay what they are through every function."""

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import DeviceMesh, P, shard

MESH = DeviceMesh((2, 2), ("x", "y"))
FUNCTIONS = [
    lambda x: x @ x,
    lambda x: sw.einsum("ij,jk,kl->il", x, x, x),
    lambda x: sw.softmax(x),
    lambda x: sw.logsumexp(x, axis=0),
    lambda x: sw.layer_norm(x),
    lambda x: sw.rms_norm(x),
    lambda x: sw.where(x > 0, x, 0.0),
    lambda x: sw.gelu(x) * 2.0 + 1,
    lambda x: sw.mean(x, axis=0),
    lambda x: sw.var(x),
    lambda x: sw.cumulative_sum(x, axis=0),
    lambda x: sw.conv(x[None], x[None]),
    lambda x: sw.cross_entropy(x, np.array([0, 1, 2, 3])),
    lambda x: sw.grad(lambda x: sw.mean(sw.gelu(x @ x)))(x),
    lambda x: x.at[1:].add(1.0),
    lambda x: sw.take(x, [3, 1], axis=0),
]


@pytest.mark.parametrize("index", range(len(FUNCTIONS)))
@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32"])
def test_the_dtype_stays_and_values_are_near(index, dtype):
    values = np.random.default_rng(0).standard_normal((4, 4))
    x = shard(values.astype(dtype), MESH, P("x", "y"))
    got, want = FUNCTIONS[index](x), FUNCTIONS[index](shard(values, MESH, P("x", "y")))
    assert got.dtype == np.dtype(dtype)
    assert np.allclose(got.numpy().astype("float64"), want.numpy(), rtol=0.1, atol=0.1)
