"""The positions of the largest elements, found shard by shard."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import DeviceMesh, P, grad, shard
from shardwise import sum as total
from shardwise.prim.arithmetic.elementwise import astype, multiply
from shardwise.prim.arithmetic.largest import largest
from tests.ops.cases import agrees, sent, tensors
from tests.prim.cases import DTYPES

MESH = DeviceMesh((2, 4), ("x", "y"))
RANKED = st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple)


@given(st.data(), tensors(RANKED, [t for t in DTYPES if t.kind != "c"]))
def test_positions_from_the_largest_on_and_the_first_of_ties(data, x):
    dim = data.draw(st.integers(0, x.ndim - 1))
    k = data.draw(st.integers(0, x.shape[dim]))

    def theirs(v):
        return np.take(np.argsort(-v.astype("float64"), dim, kind="stable"), np.arange(k), dim)

    made = agrees(lambda x: largest(x, k=k, dim=dim), theirs, x)
    assert made.dtype == np.int64
    assert not made.layout.dims[dim].axes


@pytest.mark.parametrize(("size", "k"), [(37, 2), (37, 12), (3, 3), (8, 0)])
def test_each_shard_sends_at_most_k_values_and_their_positions(size, k):
    x = shard(np.random.default_rng(0).standard_normal((6, size)).astype("float32"), MESH, P("x", "y"))
    made, sent_bytes = sent(lambda: largest(x, k=k, dim=1))
    counts = [min(k, len(part)) for part in np.array_split(np.arange(size), 4)]
    assert sent_bytes == 6 * (8 + 4) * sum(sum(counts) - own for own in counts)
    assert str(made.layout) == "[x|-]"


def test_positions_have_no_derivative():
    x = shard(np.array([3.0, 1.0, 2.0]), MESH, P("y"))
    found = grad(lambda x: total(multiply(x, astype(largest(x, k=3, dim=0), dtype=np.dtype("float64")))))(x)
    assert found.numpy().tolist() == [0.0, 2.0, 1.0]
