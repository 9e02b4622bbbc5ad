"""Updates: a window or the elements at some indices replaced, in any layouts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardwise import AbstractEngine, DeviceMesh, P, engine_context, shard, vjp
from shardwise.prim.movement.updates import write, write_at
from shardwise.prim.views.spans import Span
from tests.ops.cases import agrees, tensors, transposed, without_values
from tests.prim.views.test_windows import spans

MESH = DeviceMesh((2, 4), ("x", "y"))
FULL = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


def put(value, key, new):
    out = value.copy()
    out[key] = new
    return out


@given(st.data(), tensors(FULL))
def test_a_window_is_replaced(data, x):
    index = tuple(data.draw(spans(size)) for size in x.shape)
    new = data.draw(tensors(tuple(s.length for s in index), [x.dtype], mesh=x.mesh, seed=7))
    key = tuple(slice(s.start, s.start + s.length * s.step, s.step) for s in index)
    made = agrees(lambda x, new: write(x, new, index=index), lambda v, n: put(v, key, n), x, new)
    assert made.layout is x.layout.resolved().without_halo()
    if x.dtype == np.float64:
        transposed(lambda x, new: write(x, new, index=index), x, new)


@given(st.data(), tensors(FULL))
def test_elements_at_indices_are_replaced_and_the_last_one_counts(data, x):
    dim = data.draw(st.integers(0, x.ndim - 1))
    merged = data.draw(st.integers(1, x.ndim - dim))
    size = int(np.prod(x.shape[dim : dim + merged]))
    index = data.draw(tensors((3,), ["int64"], mesh=x.mesh, partial=False)) % size
    shape = (*x.shape[:dim], 3, *x.shape[dim + merged :])
    new = data.draw(tensors(shape, [x.dtype], mesh=x.mesh, seed=7))

    def theirs(v, n, i):
        flat = v.reshape((*x.shape[:dim], size, *x.shape[dim + merged :]))
        return put(flat, (slice(None),) * dim + (i,), n).reshape(v.shape)

    agrees(lambda x, new, i: write_at(x, new, i, dim=dim, merged=merged), theirs, x, new, index)
    if x.dtype == np.float64:
        transposed(lambda x, new: write_at(x, new, index, dim=dim, merged=merged), x, new)


def test_the_arrays_of_a_tensor_are_not_written_to():
    x = shard(np.zeros(4), MESH, P("y"))
    write(x, shard(np.ones(2), MESH, P()), index=(Span(1, 2),))
    write_at(x, shard(np.ones(2), MESH, P()), shard(np.array([0, 3]), MESH, P()), dim=0)
    assert not x.numpy().any()


def test_derivatives_live_on_the_engine_of_the_tensor():
    engine = AbstractEngine()
    with engine_context(engine):
        x, new, index = (
            without_values(shard(v, MESH, P()), engine) for v in (np.zeros(4), np.ones(2), np.ones(2, int))
        )
        out, back = vjp(lambda x, new: write_at(x, new, index, dim=0), x, new)
        found = back(out)
    assert all(ct.engine is engine for ct in found)
