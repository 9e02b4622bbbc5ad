"""Ops of linalg whose parts do not fit each other are reported, as LLVM's own tools do."""

import subprocess

import pytest

from shardwise.errors import VerifyError
from shardwise.ir import parse_module, verify

ARGUMENTS = "%a: tensor<4xf32>, %t: tensor<4x8xf32>, %s: tensor<f32>, %d: tensor<4xf64>, %x: f32, %i: index"
ONE = "ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>)"
MAPS = "indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>]"


def generic(body: str, result: str = "tensor<4xf32>") -> str:
    loops = f'{{{MAPS}, iterator_types = ["parallel"]}}'
    return f"%0 = linalg.generic {loops} {ONE} {{\n^bb0(%p: f32, %q: f32):\n{body}\n}} -> {result}"


def reduce(dims: str, output: str = "%a : tensor<4xf32>", arguments: str = "%p: f32, %q: f32", made: str = "%p : f32"):
    ends = f"{{\nlinalg.yield {made}\n}}"
    return f"%0 = linalg.reduce ins(%t : tensor<4x8xf32>) outs({output}) dimensions = [{dims}]\n({arguments}) {ends}"


def transpose(permutation: str) -> str:
    kinds = "ins(%t : tensor<4x8xf32>) outs(%t : tensor<4x8xf32>)"
    return f"%0 = linalg.transpose {kinds} permutation = [{permutation}]"


COMPLAINTS = [
    (transpose("0, 0"), "linalg.transpose: permutation [0, 0] does not name each of 2 dims once."),
    (transpose("-2, -1"), "linalg.transpose: permutation [-2, -1] does not name each of 2 dims once."),
    (
        reduce("1, 1", "%s : tensor<f32>"),
        "linalg.reduce: dimensions [1, 1] do not rise within the 2 dims they are among.",
    ),
    (reduce("5"), "linalg.reduce: dimensions [5] do not rise within the 2 dims they are among."),
    (
        reduce("1", arguments="%p: f32, %q: f64"),
        "linalg.reduce: the body takes f32, f64, but the operands have elements of f32, f32.",
    ),
    (reduce("1", made="%i : index"), "linalg.reduce: the body yields index, but the outputs have elements of f32."),
    (
        "%0 = linalg.broadcast ins(%d : tensor<4xf64>) outs(%t : tensor<4x8xf32>) dimensions = [1]",
        "linalg.broadcast: the body yields f64, but the outputs have elements of f32.",
    ),
    (
        "%0 = linalg.fill ins(%x : f32) outs(%t : tensor<4x8xf32>) -> tensor<4xf32>",
        "linalg.fill: the results are tensor<4xf32>, but the outputs are tensor<4x8xf32>.",
    ),
    (
        f"linalg.exp {ONE}",
        "linalg.exp: the results are none, but the outputs are tensor<4xf32>.",
    ),
    (
        "%0 = linalg.abs ins(%a : tensor<4xf32>) outs(%d : tensor<4xf64>) -> tensor<4xf64>",
        "linalg.abs: the body yields f32, but the outputs have elements of f64.",
    ),
    (
        generic("linalg.yield %p : f32", "tensor<5xf32>"),
        "linalg.generic: the results are tensor<5xf32>, but the outputs are tensor<4xf32>.",
    ),
    (
        generic("linalg.yield %p, %q : f32, f32"),
        "linalg.generic: the body yields f32, f32, but the outputs have elements of f32.",
    ),
    (generic(""), "linalg.generic: the body ends with linalg.yield."),
]


def function(line: str) -> str:
    return f"func.func @f({ARGUMENTS}) {{\n{line}\nreturn\n}}"


@pytest.mark.parametrize(("line", "message"), COMPLAINTS, ids=lambda text: text.split("\n")[0][:40])
def test_parts_that_do_not_fit_are_named(line: str, message: str, mlir_opt: str):
    with pytest.raises(VerifyError) as caught:
        verify(parse_module(function(line), "m.mlir"))
    assert str(caught.value) == f"m.mlir:2:1: {message}"
    done = subprocess.run([mlir_opt], input=function(line), text=True, capture_output=True, check=False)
    assert done.returncode != 0


@pytest.mark.parametrize("kind", ["tensor<5xf32>", "tensor<4xf64>"])
def test_the_type_of_an_elementwise_result_is_read_and_checked(kind: str):
    line = f"%0 = linalg.elementwise kind=#linalg.elementwise_kind<exp> {ONE} -> {kind}"
    with pytest.raises(VerifyError, match=f"the results are {kind}, but the outputs are tensor<4xf32>"):
        verify(parse_module(function(line)))


@pytest.mark.parametrize(
    "line",
    [
        transpose("0, 1"),
        reduce("1"),
        generic("linalg.yield %p : f32"),
        # These two convert.
        "%0 = linalg.fill ins(%x : f32) outs(%d : tensor<4xf64>) -> tensor<4xf64>",
        "%0 = linalg.copy ins(%a : tensor<4xf32>) outs(%d : tensor<4xf64>) -> tensor<4xf64>",
    ],
)
def test_what_fits_passes(line: str):
    verify(parse_module(function(line)))
