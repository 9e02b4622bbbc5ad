"""Rules of ops: which dims belong together, and what is reduced."""

import pytest

from shardwise.ir import parse_module
from shardwise.ir.passes.rules import rule_of
from shardwise.layout.placement import ReduceOp

VALUES = """
%v = "test.op"() : () -> tensor<8x6xf32>
%w = "test.op"() : () -> tensor<6x4xf32>
%o = "test.op"() : () -> tensor<8x4xf32>
%r = "test.op"() : () -> tensor<8xf32>
%b = "test.op"() : () -> tensor<2x8x6xf32>
%c = "test.op"() : () -> tensor<2x6x4xf32>
%d = "test.op"() : () -> tensor<2x8x4xf32>
%s = "test.op"() : () -> f32
%t = "test.op"() : () -> tensor<?x6xf32>
"""
BODY = """{{
  ^bb0(%p: f32, %q: f32):
    {}
    linalg.yield %y : f32
  }} -> tensor<8xf32>"""
ROWS = """linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
  iterator_types = ["parallel", "reduction"]} ins(%v : tensor<8x6xf32>) outs(%r : tensor<8xf32>) """


def rule(op: str):
    last = parse_module(VALUES + f"%x = {op}", allow_unregistered=True).body.block.last_op
    assert last is not None
    return rule_of(last)


@pytest.mark.parametrize(
    ("op", "operands", "results"),
    [
        ("arith.addf %v, %v : tensor<8x6xf32>", [("d0", "d1")] * 2, ("d0", "d1")),
        ("tensor.collapse_shape %b [[0, 1], [2]] : tensor<2x8x6xf32> into tensor<16x6xf32>",
         [("d0", None, "d1")], ("d0", "d1")),
        ("tensor.expand_shape %v [[0, 1], [2]] output_shape [1, 8, 6] : tensor<8x6xf32> into tensor<1x8x6xf32>",
         [("d0", "d1")], (None, "d0", "d1")),
        ("tensor.extract_slice %b[1, 0, 0] [1, 8, 6] [1, 1, 1] : tensor<2x8x6xf32> to tensor<8x6xf32>",
         [(None, "d1", "d2")], ("d1", "d2")),
        ("tensor.concat dim(1) %v, %v : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x12xf32>",
         [("d0", None)] * 2, ("d0", None)),
    ],
)  # fmt: skip
def test_dims_that_belong_together(op, operands, results):
    found = rule(op)
    assert found is not None
    assert list(found.operands) == operands
    assert found.results == (results,)
    assert not found.reduced


@pytest.mark.parametrize(
    ("op", "reduced", "how"),
    [
        ("linalg.matmul ins(%v, %w : tensor<8x6xf32>, tensor<6x4xf32>) outs(%o : tensor<8x4xf32>) -> tensor<8x4xf32>",
         ("d2",), ReduceOp.SUM),
        ("linalg.batch_matmul ins(%b, %c : tensor<2x8x6xf32>, tensor<2x6x4xf32>) outs(%d : tensor<2x8x4xf32>)"
         " -> tensor<2x8x4xf32>", ("d3",), ReduceOp.SUM),
        ("linalg.reduce { arith.maximumf } ins(%v : tensor<8x6xf32>) outs(%r : tensor<8xf32>) dimensions = [1]",
         ("d1",), ReduceOp.MAX),
        ("tosa.reduce_product %v {axis = 0 : i32} : (tensor<8x6xf32>) -> tensor<1x6xf32>", ("d0",), ReduceOp.PROD),
        (ROWS + BODY.format("%y = arith.minimumf %p, %q : f32"), ("d1",), ReduceOp.MIN),
    ],
)  # fmt: skip
def test_loops_that_are_reduced(op, reduced, how):
    found = rule(op)
    assert found is not None
    assert found.reduced == reduced
    assert found.combine == (how,)
    assert not found.whole


@pytest.mark.parametrize(
    "line",
    [
        "%y = arith.subf %q, %p : f32",  # in another order, another result
        "%z = arith.addf %q, %p : f32\n    %y = arith.addf %z, %q : f32",  # the accumulator twice
        "%y = math.absf %p : f32",  # not at all
    ],
)
def test_bodies_that_are_no_reductions_have_whole_loops(line):
    found = rule(ROWS + BODY.format(line))
    assert found is not None
    assert not found.reduced
    assert found.whole == {"d1"}


def test_positions_in_a_body_need_whole_loops():
    lines = [
        "%i = linalg.index 0 : index",
        "%j = arith.index_cast %i : index to i32",
        "%f = arith.sitofp %j : i32 to f32",
        "%y = arith.addf %q, %f : f32",
    ]
    found = rule(ROWS + BODY.format("\n    ".join(lines)))
    assert found is not None
    assert found.whole == {"d0"}


def test_indices_of_several_loops_are_whole():
    maps = "affine_map<(i, j) -> (i + j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>"
    module = parse_module(
        f"""
%x = "test.op"() : () -> tensor<8xf32>
%k = "test.op"() : () -> tensor<3xf32>
%o = "test.op"() : () -> tensor<6xf32>
%r = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "reduction"]}}
  ins(%x, %k : tensor<8xf32>, tensor<3xf32>) outs(%o : tensor<6xf32>) {{
  ^bb0(%p: f32, %q: f32, %z: f32):
    %m = arith.mulf %p, %q : f32
    %y = arith.addf %z, %m : f32
    linalg.yield %y : f32
  }} -> tensor<6xf32>""",
        allow_unregistered=True,
    )
    assert module.body.block.last_op is not None
    found = rule_of(module.body.block.last_op)
    assert found is not None
    assert found.operands == ((None,), ("d1",), ("d0",))
    assert found.whole == {"d0", "d1"}


@pytest.mark.parametrize(
    "op",
    ["math.exp %t : tensor<?x6xf32>", "arith.addf %s, %s : f32", "tensor.from_elements %s, %s : tensor<2xf32>"],
)
def test_ops_without_a_rule_are_done_whole(op):
    assert rule(op) is None
