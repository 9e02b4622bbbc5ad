"""tensor.reshape: sizes that are not known are left to run time, others are checked."""

import pytest

from shardwise.errors import VerifyError
from shardwise.ir import parse_module, verify


def check(source: str, shape: str, result: str) -> None:
    verify(
        parse_module(
            f"func.func @f(%x: {source}, %s: {shape}) -> {result} {{\n"
            f"%r = tensor.reshape %x(%s) : ({source}, {shape}) -> {result}\nreturn %r : {result}\n}}"
        )
    )


@pytest.mark.parametrize(
    ("source", "shape", "result"),
    [
        ("tensor<6xi32>", "tensor<2xindex>", "tensor<2x3xi32>"),
        ("tensor<?xi32>", "tensor<2xindex>", "tensor<2x3xi32>"),
        ("tensor<6xi32>", "tensor<2xindex>", "tensor<?x5xi32>"),
        ("tensor<6xi32>", "tensor<?xindex>", "tensor<2x3xi32>"),
        ("tensor<1xi32>", "tensor<0xindex>", "tensor<i32>"),
    ],
)
def test_what_may_be_is_accepted(source: str, shape: str, result: str) -> None:
    check(source, shape, result)


@pytest.mark.parametrize(
    ("source", "shape", "result", "text"),
    [
        ("tensor<6xi32>", "tensor<2xindex>", "tensor<2x3xi64>", "keeps the element type"),
        ("tensor<6xi32>", "tensor<3xindex>", "tensor<2x3xi32>", "needs a shape of 2 sizes"),
        ("tensor<6xi32>", "tensor<2xindex>", "tensor<2x4xi32>", "keeps the number of elements"),
    ],
)
def test_what_cannot_be_is_refused(source: str, shape: str, result: str, text: str) -> None:
    with pytest.raises(VerifyError, match=text):
        check(source, shape, result)
