"""Lowering: primitives as ops on whole tensors, of every dtype and reduction, run and compared with eager."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import Cut, DeviceMesh, Layout, P, ReduceOp, shard
from shardwise.errors import ProgramError
from shardwise.ir import print_module, trace
from shardwise.ir.tracing.lowering import lower
from shardwise.prim.arithmetic.reduce import reduce
from shardwise.prim.bind import Node
from shardwise.prim.primitive import WRITTEN, Primitive
from tests.ir.tracing.test_tracer import same

MESH = DeviceMesh((2, 2), ("x", "y"))
RNG = np.random.default_rng(3)


def spread(shape: tuple[int, ...], *axes: Any, dtype: str = "int32") -> Any:
    return shard(RNG.integers(1, 5, shape).astype(dtype), MESH, P(*axes))


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "float32"])
def test_reductions_of_ints_and_floats(op: str, dtype: str) -> None:
    x = spread((4, 3), "x", "y", dtype=dtype)
    for dims in ((), (0,), (0, 1)):
        same(lambda x, dims=dims: reduce(x, dims=dims, op=ReduceOp.of(op)), x)


@pytest.mark.parametrize("op", ["bor", "band", "max", "min"])
def test_reductions_of_truths(op: str) -> None:
    for fill in (None, True, False):
        value = RNG.integers(0, 2, (4, 3)).astype(bool) if fill is None else np.full((4, 3), fill)
        x = shard(value, MESH, P("x"))
        same(lambda x: reduce(x, dims=(0,), op=ReduceOp.of(op)), x)


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "band", "bor", "bxor"])
def test_shards_are_combined_along_axes(op: str) -> None:
    for axes in (("x",), ("y",), ("x", "y")):
        x = spread((4, 6), "x", "y")
        same(lambda x, axes=axes: sw.all_reduce(x, reduce_op=op, reduce_axes=axes), x)


def test_an_average_of_shards() -> None:
    x = spread((4, 6), "x", "y", dtype="float64")
    for axes in (("x",), ("x", "y")):
        same(lambda x, axes=axes: sw.all_reduce(x, reduce_op="avg", reduce_axes=axes), x)


def test_shards_that_change_places() -> None:
    x = spread((4, 6), "x", "y", dtype="float64")
    same(lambda x: sw.shift(x, "x", 1), x)
    same(lambda x: sw.shift(x, "y", 1, rotate=False), x)
    same(lambda x: sw.shift(x, "x", -1, rotate=False), x)


KINDS = ["int8", "int32", "float32"]


@pytest.mark.parametrize(("a", "b"), list(product(KINDS, KINDS)))
def test_products_of_mixed_dtypes_are_made_in_that_of_the_result(a: str, b: str) -> None:
    x, y = spread((4, 2), "x", dtype=a), spread((2, 6), None, "y", dtype=b)
    same(lambda x, y: sw.einsum("ij,jk->ik", x, y), x, y)


def test_sums_and_products_of_truths_are_or_and_and() -> None:
    x, y = (shard(np.array(v, bool), MESH, P("x")) for v in ([1, 1, 0, 0], [1, 0, 1, 0]))
    same(lambda x, y: x + y, x, y)
    same(lambda x, y: x * y, x, y)
    same(lambda x, y: sw.einsum("i,i->", x, y), x, y)


def test_letters_may_be_those_of_operands() -> None:
    x, y = spread((4, 2), "x"), spread((2, 4), None, "y")
    same(lambda x, y: sw.einsum("xy,yz->zx", x, y), x, y)


def test_a_product_of_matrices_is_one_op_where_it_is_one() -> None:
    x, y = spread((4, 2), "x", dtype="float32"), spread((2, 4), None, "y", dtype="float32")
    for terms, one in (("ij,jk->ik", True), ("ij,jk->ki", False), ("ij,kj->ik", False), ("ij,ji->i", False)):
        other = sw.einsum("ij->ji", y) if "kj" in terms else y
        text = same(lambda x, y, terms=terms: sw.einsum(terms, x, y), x, other, rtol=1e-5)
        assert ("linalg.matmul" in text) == one


def test_numbers_take_the_dtype_of_tensors_if_it_can_hold_them() -> None:
    x = spread((4,), "x", dtype="int8")
    for fn in (
        lambda x: x < 2,
        lambda x: x < 2.5,
        lambda x: sw.equal(x > 1, 1),
        lambda x: x + 1,
        lambda x: sw.where(x > 2, x, 0),
        lambda x: sw.maximum(x, 3),
    ):
        same(fn, x)


def test_operands_broadcast_and_one_op_is_one_op() -> None:
    x, y = spread((4, 3), "x", dtype="float32"), spread((3,), dtype="float32")
    text = same(lambda x: x * x, x)
    assert "linalg.generic" not in text
    assert "linalg.generic" in same(lambda x, y: x * y, x, y)
    same(lambda x, y: sw.reshape(y, (1, 3)) * x + sw.reshape(y, (3,)), x, y)
    same(lambda x: sw.astype(x, "float32"), x)


def test_halos_and_offsets_are_seen_as_whole_tensors() -> None:
    value = np.arange(12.0).reshape(6, 2)
    for cut in (Cut("x", halo=(1, 1), edge="pad"), Cut("x", offsets=(0, 1, 6))):
        layout = Layout(MESH, [cut, None])
        same(lambda x: sw.sum(x * 2.0, axis=0), shard(value, MESH, layout))


def test_stacks_and_parts() -> None:
    x = spread((4, 6), "x", "y", dtype="float64")
    same(lambda x: sw.stack([x, 2.0 * x], axis=0), x)
    same(lambda x: sw.sum(sw.broadcast_to(sw.sum(x, axis=0), (4, 6)) * x), x)


def test_a_row_that_is_not_known_is_refused_by_name() -> None:
    row = Primitive("conjure", lambda x: x)
    nothing: Any = None
    node: Any = Node.__new__(Node)
    object.__setattr__(node, "row", row)
    with pytest.raises(ProgramError) as caught:
        lower(nothing, node, [])
    text = str(caught.value)
    assert text.startswith("conjure cannot be written as ops on whole tensors, so it cannot be traced.\n  rows: ")
    assert all(name in text for name in (*WRITTEN, "relayout"))
    assert {"add", "tanh", "where", "take", "einsum", "fold", "convolve", "reshape", "pad"} < WRITTEN


def test_what_is_lowered_is_printed_with_names_that_are_read() -> None:
    x = spread((4,), "x", dtype="float32")
    assert "arith.mulf" in print_module(trace(lambda x: x * x, x))
