"""Traced programs, propagated and partitioned, give on every device what eager gives."""

from typing import Any

import numpy as np
import optree
import pytest

import shardwise as sw
from shardwise import DeviceMesh, P, grad, shard, value_and_grad
from shardwise.ir import check_partition, trace
from tests.ir.tracing.test_tracer import BATCH, FIELD, HEADS, LABELS, MESH, WEIGHTS, attention, mlp, mlp_loss, stencil

UNEVEN = shard(np.random.default_rng(1).normal(size=(7, 5)), MESH, P("x", "y"))
LINE = shard(np.random.default_rng(2).normal(size=(12, 4)), DeviceMesh((3,), ("x",)), P("x", None))


def moving(x: Any) -> Any:
    # Between layouts, with sums in between.
    y = shard(x * 2.0, x.mesh, P(None, "x"))
    return sw.sum(y, axis=0), shard(y + 1.0, x.mesh, P("y", "x"))


PROGRAMS = {
    "mlp": (mlp, (WEIGHTS, BATCH)),
    "its loss and gradient": (value_and_grad(mlp_loss), (WEIGHTS, BATCH, LABELS)),
    "attention": (attention, HEADS),
    "its gradient": (grad(lambda q, k, v: sw.sum(attention(q, k, v) ** 2), argnums=(0, 1, 2)), HEADS),
    "stencil": (stencil, (FIELD,)),
    "gradient of that": (grad(lambda u: sw.sum(stencil(stencil(u)) ** 2)), (FIELD,)),
    "moving": (moving, (UNEVEN,)),
    "softmax": (lambda x: sw.softmax(x, axis=0), (LINE,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_devices_find_what_eager_finds(name):
    fn, args = PROGRAMS[name]
    leaves: Any = optree.tree_leaves(args)
    comparison = check_partition(trace(fn, *args), *(np.asarray(leaf) for leaf in leaves))
    assert comparison.agree, str(comparison)
    for made, wanted in zip(comparison.results, optree.tree_leaves(fn(*args)), strict=True):
        np.testing.assert_allclose(made, np.asarray(wanted), rtol=1e-9, atol=1e-12)
