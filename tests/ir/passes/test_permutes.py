"""Permutes: shards that change places whole, one message each, run on every device."""

import numpy as np
import pytest
from xdsl.dialects.builtin import i32

from shardwise.ir.passes.layouts import local_type
from shardwise.ir.passes.permutes import permute_shard
from shardwise.layout.layout import Layout
from shardwise.plan.plan import plan_reshard
from tests.ir.passes.devices import mesh_named, module_written, run_written
from tests.ir.passes.traffic import counted

SQUARE, OBLONG = mesh_named(2, 2), mesh_named(2, 3)
X, Y = "axis0", "axis1"


@pytest.mark.parametrize(
    ("mesh", "src", "dst", "shape"),
    [
        (SQUARE, [(X, Y)], [(Y, X)], (8,)),  # digit by digit
        (OBLONG, [(X, Y)], [(Y, X)], (12,)),  # by quotients and remainders
        (OBLONG, [(Y, X), None], [(X, Y), None], (12, 2)),
        (SQUARE, [X, Y], [Y, X], (4, 6)),
    ],
)
def test_every_device_gets_its_new_part_in_one_message(mesh, src, dst, shape: tuple[int, ...]) -> None:
    a, b = Layout(mesh, src), Layout(mesh, dst)
    (step,) = plan_reshard(a, b, shape, "int32").steps
    assert step.kind == "permute"
    whole = np.arange(int(np.prod(shape)), dtype="int32").reshape(shape)
    inputs = [whole[tuple(slice(*s) for s in a.box(shape, d))] for d in range(mesh.num_devices)]
    kind = local_type(a, shape, i32)
    with counted() as traffic:
        made = run_written(mesh, lambda w, x: [permute_shard(w, x, step, shape)], [kind], [inputs])
    for device, got in enumerate(made):
        np.testing.assert_array_equal(got, whole[tuple(slice(*s) for s in b.box(shape, device))])
    assert traffic.bytes == step.received.total
    module, _ = module_written(mesh, lambda w, x: [permute_shard(w, x, step, shape)], [kind])
    names = [op.name for op in module.walk()]
    assert names.count("shard.send") == names.count("shard.recv") == 1
    assert names.count("scf.if") == 2  # who stays where it is sends nothing
