"""Swaps: an all-to-all between several dims as one op, run on every device."""

import numpy as np
import pytest
from xdsl.dialects.builtin import i32

from shardwise.ir.passes import partition
from shardwise.ir.passes.layouts import local_type
from shardwise.ir.passes.swaps import swap_axes
from shardwise.layout.layout import Layout
from tests.ir.passes.devices import mesh_named, module_written, run_written
from tests.ir.passes.transitions import Split, check, module_of

MESH = mesh_named(2, 3)
X, Y = "axis0", "axis1"
CASES = {
    "one axis": ([X, None], [None, X], (6, 6)),
    "both axes": ([(X, Y), None], [None, (X, Y)], (6, 12)),
    "in another order": ([(X, Y), None], [None, (Y, X)], (6, 12)),
    "crosswise": ([X, Y, None, None], [None, None, Y, X], (2, 3, 3, 4)),
    "beside one that stays": ([(Y, X), None], [Y, X], (12, 4)),
    "to two dims": ([(X, Y), None, None], [None, Y, X], (12, 3, 4)),
    "from two dims": ([X, Y, None], [None, None, (Y, X)], (4, 3, 12)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_device_gets_its_new_part_by_one_op(name: str) -> None:
    src, dst, shape = CASES[name]
    a, b = Layout(MESH, src), Layout(MESH, dst)
    less = {k: tuple(x for x in o.axes if x not in n.axes) for k, (o, n) in enumerate(zip(a.dims, b.dims, strict=True))}
    more = {k: tuple(x for x in n.axes if x not in o.axes) for k, (o, n) in enumerate(zip(a.dims, b.dims, strict=True))}
    less, more = ({k: axes for k, axes in some.items() if axes} for some in (less, more))
    whole = np.arange(int(np.prod(shape)), dtype="int32").reshape(shape)
    inputs = [whole[tuple(slice(*s) for s in a.box(shape, d))] for d in range(6)]
    kind = local_type(a, shape, i32)
    for device, got in enumerate(
        run_written(MESH, lambda w, x: [swap_axes(w, x, a, shape, less, more)], [kind], [inputs])
    ):
        np.testing.assert_array_equal(got, whole[tuple(slice(*s) for s in b.box(shape, device))], f"device {device}")
    module, _ = module_written(MESH, lambda w, x: [swap_axes(w, x, a, shape, less, more)], [kind])
    assert [op.name for op in module.walk()].count("shard.all_to_all") == 1


@pytest.mark.parametrize(
    ("shape", "src", "dst"),
    [
        ((4, 4, 5), ((0, 1), (), (2,)), ((), (1, 0), (2,))),
        ((5, 4, 4), ((2,), (0, 1), ()), ((2,), (), (1, 0))),
        ((4, 3, 4), ((1, 0), (2,), ()), ((), (2,), (0, 1))),
    ],
)
def test_a_dim_that_stays_may_differ_in_size(shape: tuple[int, ...], src: Split, dst: Split) -> None:
    check((2, 2, 2), shape, src, dst)
    names = [op.name for op in partition(module_of((2, 2, 2), shape, src, dst)).walk()]
    assert names.count("shard.all_to_all") == 1
    assert "shard.recv" not in names
