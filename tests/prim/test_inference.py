"""Inference: types without values are those of the values, and costs those counted by hand."""

import numpy as np
import pytest

from shardwise import DeviceMesh, DistributedTensorType, Layout, P, Tensor, conv, shard
from shardwise.layout.placement import ReduceOp
from shardwise.prim.arithmetic.contract import contract
from shardwise.prim.arithmetic.convolve import convolve
from shardwise.prim.arithmetic.elementwise import add, exp, hypot
from shardwise.prim.arithmetic.reduce import reduce
from shardwise.prim.inference import cost_of, infer
from shardwise.prim.movement.joins import concat
from tests.prim.steps import Step, steps_of_all, watch

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
HUGE = DeviceMesh((256, 64), ("x", "y"))


def can_be_inferred(step: Step) -> bool:
    # A tensor of another mesh is moved to; what has two meshes, or none of the operands of, is not asked here.
    return isinstance(step.out, Tensor) and any(isinstance(x, Tensor) for x in step.operands)


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_every_primitive_knows_its_type_and_its_signature_without_values(dtype: str) -> None:
    names = set()
    for step in filter(can_be_inferred, steps_of_all(dtype)):
        step.row.signature.bind(*step.operands, **step.params)
        out = infer(step.row, *step.operands, **step.params)
        assert (out.shape, out.dtype, out.layout) == (step.out.shape, step.out.dtype, step.out.layout), step.row
        cost = cost_of(step.row, *step.operands, **step.params)
        tensors = [x for x in (*step.operands, step.out) if isinstance(x, Tensor)]
        assert cost.touched == sum(x.nbytes for x in tensors)
        names.add(step.row.name)
    assert len(names) > 80


def spread(shape: tuple[int, ...], *axes: str | None) -> DistributedTensorType:
    return DistributedTensorType("float32", shape, HUGE, P(*axes))


def test_types_need_no_values_and_the_mesh_may_be_huge() -> None:
    x, y = spread((1 << 16, 512), "x"), spread((512, 1 << 12), None, "y")
    out = infer(contract, x, y, terms=("ij", "jk"), out="ik")
    assert (out.shape, out.dtype.name, out.layout) == ((1 << 16, 1 << 12), "float32", Layout(HUGE, ["x", "y"]))


def test_costs_are_those_counted_by_hand() -> None:
    x, row = spread((64, 128), "x"), spread((128,))
    assert cost_of(exp, x) == (64 * 128, 2 * 64 * 128 * 4)
    assert cost_of(add, x, row) == (64 * 128, 4 * (2 * 64 * 128 + 128))
    assert cost_of(hypot, x, 2.0).operations == 4 * 64 * 128  # two products, a sum, a root
    assert cost_of(contract, x, x, terms=("ij", "kj"), out="ik").operations == 2 * 64 * 64 * 128
    assert cost_of(reduce, x, dims=(0,), op=ReduceOp.SUM) == (64 * 128, 4 * (64 * 128 + 128))
    assert cost_of(concat, x, x, dim=0, layout=Layout(HUGE, ["x", None])) == (0, 4 * 64 * 128 * 4)


def test_the_cost_of_a_convolution_is_that_of_its_windows() -> None:
    with watch() as steps:
        image, kernel = np.ones((2, 4, 9)), np.ones((6, 2, 3))
        conv(shard(image, DeviceMesh((2,), ("x",)), P("x")), kernel, stride=2, groups=2)
    (step,) = [step for step in steps if step.row is convolve]
    assert step.out.shape == (2, 6, 4)
    assert cost_of(step.row, *step.operands, **step.params).operations == 2 * (2 * 6 * 4) * (2 * 3)
