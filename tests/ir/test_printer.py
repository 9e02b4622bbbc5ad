"""The printer: constants of ints of any width, unusual bodies in the generic form, and what LLVM 19 does not have."""

import pytest

from shardwise.errors import ConversionError
from shardwise.ir import parse_module, print_module

FUNCTION = "func.func @f() {{\n  %0 = arith.constant {} : {}\n  return\n}}"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("dense<[true, false, true]>", "tensor<3xi1>"),
        ("dense<true>", "tensor<4xi1>"),
        ("dense<[[1, -2], [3, 0]]>", "tensor<2x2xi4>"),
        ("dense<[[[1], [2]], [[3], [4]]]>", "tensor<2x2x1xi7>"),
        ("dense<5>", "tensor<2x3xi4>"),
        ("dense<[1, 2]>", "tensor<2xi32>"),
        ("dense<>", "tensor<0xi1>"),
    ],
)
def test_dense_constants_are_written_element_by_element(text: str, kind: str) -> None:
    made = print_module(parse_module(FUNCTION.format(text, kind)))
    assert f"{text} : {kind}" in made
    assert print_module(parse_module(made)) == made


MATMUL = """func.func @f(%a: tensor<2x2xi32>) -> tensor<2x2xi32> {{
  %0 = "linalg.matmul"(%a, %a, %a) <{{operandSegmentSizes = array<i32: 2, 1>}}> ({{
  ^bb0(%x: i32, %y: i32, %z: i32):
    %m = arith.{} %x, %y : i32
    %s = arith.addi %z, %m : i32
    linalg.yield %s : i32
  }}) : (tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
  return %0 : tensor<2x2xi32>
}}"""


def test_an_op_whose_body_is_not_the_usual_one_shows_it() -> None:
    usual, other = (print_module(parse_module(MATMUL.format(name))) for name in ("muli", "addi"))
    assert "linalg.matmul ins(" in usual
    assert "arith.muli" not in usual
    assert '"linalg.matmul"(' in other
    assert "arith.addi" in other
    assert print_module(parse_module(other)) == other


def test_ops_that_nobody_knows_keep_their_names() -> None:
    module = parse_module('func.func @f() {\n  "some.op"() : () -> ()\n  return\n}', allow_unregistered=True)
    first = print_module(module)
    assert '"some.op"() : () -> ()' in first
    assert print_module(module) == first  # printing takes nothing away


def test_what_llvm_19_does_not_have_is_refused() -> None:
    text = 'func.func @f() {\n  "some.op"() {a = #shard.axisarray[[0], [1]]} : () -> ()\n  return\n}'
    module = parse_module(text, allow_unregistered=True)
    assert "#shard<axisarray[[0], [1]]>" in print_module(module)
    with pytest.raises(ConversionError, match=r"LLVM 19 has no attribute `axisarray`; print the module in the `shard`"):
        print_module(module, dialect="mesh19")
    assert '"some.op"' in print_module(module)  # nor does an error
