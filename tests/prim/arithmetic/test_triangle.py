"""Triangles of matrices in any layout: against NumPy and JAX."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import DeviceMesh, P, current_engine, shard
from shardwise.layout.placement import reductions_of
from shardwise.prim.arithmetic.triangle import tril, triu
from tests.ops.peers import check
from tests.prim.cases import DTYPES, assert_holds, host_meshes, layouts_for, spread

ROWS = {"tril": tril, "triu": triu}


@given(st.data(), st.sampled_from(sorted(ROWS)), st.integers(-8, 8))
def test_every_device_keeps_its_part_of_the_triangle(data: st.DataObject, name: str, k: int):
    shape = tuple(data.draw(st.lists(st.integers(0, 6), min_size=2, max_size=3)))
    dtype = data.draw(st.sampled_from(DTYPES))
    op = data.draw(st.sampled_from([None, *reductions_of(dtype)]))
    layout = data.draw(layouts_for(data.draw(host_meshes()), shape, op=op))
    x, value = spread(layout, shape, dtype)
    counters = current_engine().counters
    counters.reset()
    got = ROWS[name](x, k=k)
    assert counters.total == 0
    assert_holds(got, layout, getattr(np, name)(value, k=k))


@pytest.mark.parametrize("name", sorted(ROWS))
@pytest.mark.parametrize("seed", range(4))
def test_derivatives_are_those_of_jax(name: str, seed: int):
    import jax.numpy as jnp

    value = np.random.default_rng(seed).standard_normal((2, 5, 4))
    check(lambda x: ROWS[name](x, k=seed - 1), lambda x: getattr(jnp, name)(x, k=seed - 1), value, seed=seed)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_torch_tensors(name: str):
    torch = pytest.importorskip("torch")
    value = torch.arange(1, 31, dtype=torch.bfloat16).reshape(5, 6)
    x = shard(value, DeviceMesh((2, 2), ("x", "y")), P("x", "y"))
    got = ROWS[name](x, k=1).numpy().astype("float32")
    assert np.array_equal(got, getattr(torch, name)(value, 1).float().numpy())
