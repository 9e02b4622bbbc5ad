"""Bodies of structured ops: run once for all iterations, with what they take from outside."""

import numpy as np
import pytest

from shardwise.errors import ProgramError
from shardwise.ir import execute, parse_module

HEAD = """
func.func @f(%x: tensor<2x3xi32>, %n: i32) -> tensor<2x3xi32> {
%e = tensor.empty() : tensor<2x3xi32>
%r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
  iterator_types = ["parallel", "parallel"]} ins(%x : tensor<2x3xi32>) outs(%e : tensor<2x3xi32>) {
^bb0(%a: i32, %o: i32):
"""
TAIL = "\nlinalg.yield %v : i32\n} -> tensor<2x3xi32>\nreturn %r : tensor<2x3xi32>\n}"
X = np.arange(6, dtype="int32").reshape(2, 3)


def run(body: str) -> np.ndarray:
    return execute(parse_module(HEAD + body + TAIL, allow_unregistered=True), X, np.int32(7))


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("%v = arith.muli %a, %a : i32", X * X),
        ("%v = arith.addi %a, %n : i32", X + 7),  # from outside
        ("%c = arith.constant 5 : i32\n%v = arith.addi %a, %c : i32", X + 5),
        ("%i = linalg.index 0 : index\n%v = arith.index_cast %i : index to i32", [[0] * 3, [1] * 3]),
        ("%i = linalg.index 1 : index\n%v = arith.index_cast %i : index to i32", [[0, 1, 2]] * 2),
        (
            "%i = linalg.index 0 : index\n%j = linalg.index 1 : index\n%two = arith.constant 2 : index\n"
            "%k = arith.subi %two, %j : index\n%v = tensor.extract %x[%i, %k] : tensor<2x3xi32>",
            X[:, ::-1],
        ),
        (
            "%one = arith.constant 1 : index\n%d = tensor.dim %x, %one : tensor<2x3xi32>\n"
            "%v = arith.index_cast %d : index to i32",
            np.full((2, 3), 3),
        ),
    ],
    ids=["product", "outside", "constant", "rows", "columns", "extract", "dim"],
)
def test_a_body_is_run_for_every_element(body: str, want) -> None:
    np.testing.assert_array_equal(run(body), want)


def test_what_a_body_may_not_hold_is_refused() -> None:
    with pytest.raises(ProgramError) as caught:
        run('%v = "some.op"(%a) : (i32) -> i32')
    assert str(caught.value).endswith(
        "cannot be run inside a structured op.\n"
        "  a body may hold arith and math ops, linalg.index, tensor.extract and tensor.dim"
    )


def test_an_element_that_nothing_defined_may_not_be_used() -> None:
    with pytest.raises(ProgramError, match="uses an undefined value"):
        run("%v = arith.addi %a, %o : i32")
