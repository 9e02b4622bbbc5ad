"""Structured ops, run as whole arrays, give what the loops they stand for give, element by element."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.errors import ProgramError
from shardwise.ir.interpret.run import execute
from shardwise.ir.text import parse_module


def run(text: str, *inputs: Any) -> Any:
    return execute(parse_module(text), *inputs)


def by_loops(sizes, maps, inputs, init, body):
    """What a structured op means: for each iteration in order, combine."""
    out = init.copy()
    for index in np.ndindex(*sizes):
        elements = [x[tuple(index[d] for d in dims)] for x, dims in zip(inputs, maps, strict=False)]
        place = tuple(index[d] for d in maps[-1])
        out[place] = body(*elements, out[place])
    return out


COMBINERS = {
    "arith.addi %p, %o": lambda p, o: p + o,
    "arith.muli %p, %o": lambda p, o: p * o,
    "arith.maxsi %o, %p": max,
    "arith.minsi %p, %o": min,
    "arith.xori %p, %o": lambda p, o: p ^ o,
    "arith.subi %o, %p": lambda p, o: o - p,  # not one that NumPy reduces with
    "arith.addi %p, %p": lambda p, o: p + p,  # the last iteration stays
}
PRODUCTS = {
    "arith.muli %a, %b": lambda a, b: a * b,
    "arith.addi %a, %b": lambda a, b: a + b,
    "arith.subi %a, %a": lambda a, b: a - a,
}


@given(st.data())
def test_generic_is_its_loops(data):
    count = data.draw(st.integers(1, 4))
    sizes = [data.draw(st.integers(1, 3)) for _ in range(count)]
    subsets = st.permutations(range(count)).flatmap(lambda order: st.integers(0, count).map(lambda n: list(order[:n])))
    maps = [data.draw(subsets) for _ in range(3)]
    if missing := [d for d in range(count) if not any(d in dims for dims in maps)]:
        maps[0] = [*maps[0], *missing]
    how, combine = data.draw(st.sampled_from(sorted(COMBINERS.items(), key=lambda row: row[0])))
    inner, multiply = data.draw(st.sampled_from(sorted(PRODUCTS.items(), key=lambda row: row[0])))
    shapes = [[sizes[d] for d in dims] for dims in maps]
    kinds = ["tensor<" + "x".join([*map(str, shape), "i64"]) + ">" for shape in shapes]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    arrays = [rng.integers(-3, 4, shape) for shape in shapes]
    loops = ", ".join(f"d{d}" for d in range(count))
    affine = ", ".join(f"affine_map<({loops}) -> ({', '.join(f'd{d}' for d in dims)})>" for dims in maps)
    iterators = ", ".join('"parallel"' if d in maps[2] else '"reduction"' for d in range(count))
    made = run(
        f"""func.func @f(%x: {kinds[0]}, %y: {kinds[1]}, %z: {kinds[2]}) -> {kinds[2]} {{
          %r = linalg.generic {{indexing_maps = [{affine}], iterator_types = [{iterators}]}}
            ins(%x, %y : {kinds[0]}, {kinds[1]}) outs(%z : {kinds[2]}) {{
          ^bb0(%a: i64, %b: i64, %o: i64):
            %p = {inner} : i64
            %c = {how} : i64
            linalg.yield %c : i64
          }} -> {kinds[2]}
          return %r : {kinds[2]}
        }}""",
        *arrays,
    )
    expected = by_loops(sizes, maps, arrays[:2], arrays[2], lambda a, b, o: combine(multiply(a, b), o))
    np.testing.assert_array_equal(made, expected)


def test_two_outputs_go_step_by_step():
    x = np.array([[3, 9, 2], [8, 1, 8]], "int32")
    made = run(
        """func.func @argmax(%x: tensor<2x3xi32>) -> (tensor<2xi32>, tensor<2xi64>) {
          %low = arith.constant dense<-100> : tensor<2xi32>
          %none = arith.constant dense<-1> : tensor<2xi64>
          %r:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
              affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
            ins(%x : tensor<2x3xi32>) outs(%low, %none : tensor<2xi32>, tensor<2xi64>) {
          ^bb0(%v: i32, %best: i32, %at: i64):
            %j = linalg.index 1 : index
            %k = arith.index_cast %j : index to i64
            %more = arith.cmpi sgt, %v, %best : i32
            %b = arith.select %more, %v, %best : i32
            %p = arith.select %more, %k, %at : i64
            linalg.yield %b, %p : i32, i64
          } -> (tensor<2xi32>, tensor<2xi64>)
          return %r#0, %r#1 : tensor<2xi32>, tensor<2xi64>
        }""",
        x,
    )
    np.testing.assert_array_equal(made[0], x.max(axis=1))
    np.testing.assert_array_equal(made[1], x.argmax(axis=1))


def test_sums_of_loops_are_windows():
    x, w = np.arange(10.0), np.array([1.0, -2.0, 1.0])
    text = """func.func @conv(%x: tensor<10xf64>, %w: tensor<3xf64>) -> tensor<8xf64> {{
          %z = arith.constant dense<0.0> : tensor<8xf64>
          %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> ({index})>, affine_map<(i, j) -> (j)>,
              affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}}
            ins(%x, %w : tensor<10xf64>, tensor<3xf64>) outs(%z : tensor<8xf64>) {{
          ^bb0(%a: f64, %b: f64, %o: f64):
            %p = arith.mulf %a, %b : f64
            %c = arith.addf %o, %p : f64
            linalg.yield %c : f64
          }} -> tensor<8xf64>
          return %r : tensor<8xf64>
        }}"""
    np.testing.assert_allclose(run(text.format(index="i + j"), x**2, w), np.correlate(x**2, w))
    wrapped = run(text.format(index="(i + j * 4) mod 10"), x, w)
    np.testing.assert_allclose(wrapped, [sum(w[j] * x[(i + 4 * j) % 10] for j in range(3)) for i in range(8)])
    with pytest.raises(
        ProgramError, match=r"linalg.generic \(%r\) at line 3 reaches elements 0 to 14 of dim 0, which has 10"
    ):
        run(text.format(index="i * 2"), x, w)


def test_indices_and_values_from_outside_are_seen_in_the_body():
    made = run(
        """func.func @f(%t: tensor<4xf32>, %s: f32) -> tensor<2x3xf32> {
          %e = tensor.empty() : tensor<2x3xf32>
          %r = linalg.generic
            {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
            outs(%e : tensor<2x3xf32>) {
          ^bb0(%o: f32):
            %i = linalg.index 0 : index
            %j = linalg.index 1 : index
            %k = arith.addi %i, %j : index
            %v = tensor.extract %t[%k] : tensor<4xf32>
            %w = arith.mulf %v, %s : f32
            linalg.yield %w : f32
          } -> tensor<2x3xf32>
          return %r : tensor<2x3xf32>
        }""",
        np.arange(4, dtype="float32"),
        2.0,
    )
    np.testing.assert_array_equal(made, 2.0 * np.add.outer(np.arange(2), np.arange(3)))


def test_named_products_reductions_and_movements():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 4, 5))
    made = run(
        """func.func @f(%a: tensor<2x3x4xf64>, %b: tensor<2x4x5xf64>)
            -> (tensor<2x3x5xf64>, tensor<2x5xf64>, tensor<5x2x3xf64>, tensor<2x5x7xf64>) {
          %z = arith.constant 1.0 : f64
          %e = tensor.empty() : tensor<2x3x5xf64>
          %f = linalg.fill ins(%z : f64) outs(%e : tensor<2x3x5xf64>) -> tensor<2x3x5xf64>
          %m = linalg.batch_matmul ins(%a, %b : tensor<2x3x4xf64>, tensor<2x4x5xf64>) outs(%f : tensor<2x3x5xf64>)
            -> tensor<2x3x5xf64>
          %low = arith.constant dense<-1.0e300> : tensor<2x5xf64>
          %r = linalg.reduce { arith.maximumf } ins(%m : tensor<2x3x5xf64>) outs(%low : tensor<2x5xf64>)
            dimensions = [1]
          %te = tensor.empty() : tensor<5x2x3xf64>
          %t = linalg.transpose ins(%m : tensor<2x3x5xf64>) outs(%te : tensor<5x2x3xf64>) permutation = [2, 0, 1]
          %be = tensor.empty() : tensor<2x5x7xf64>
          %s = linalg.broadcast ins(%r : tensor<2x5xf64>) outs(%be : tensor<2x5x7xf64>) dimensions = [2]
          return %m, %r, %t, %s : tensor<2x3x5xf64>, tensor<2x5xf64>, tensor<5x2x3xf64>, tensor<2x5x7xf64>
        }""",
        a,
        b,
    )
    product = a @ b + 1
    np.testing.assert_allclose(made[0], product)
    np.testing.assert_allclose(made[1], product.max(axis=1))
    np.testing.assert_allclose(made[2], product.transpose(2, 0, 1))
    np.testing.assert_allclose(made[3], np.broadcast_to(product.max(axis=1)[..., None], (2, 5, 7)))


def test_products_are_widened_before_they_are_summed():
    a, b = np.full((2, 300), 100, "int8"), np.full((300, 2), 100, "int8")
    made = run(
        """func.func @f(%a: tensor<2x300xi8>, %b: tensor<300x2xi8>) -> tensor<2x2xi32> {
          %z = arith.constant dense<0> : tensor<2x2xi32>
          %m = linalg.matmul ins(%a, %b : tensor<2x300xi8>, tensor<300x2xi8>) outs(%z : tensor<2x2xi32>)
            -> tensor<2x2xi32>
          return %m : tensor<2x2xi32>
        }""",
        a,
        b,
    )
    np.testing.assert_array_equal(made, np.full((2, 2), 3_000_000))


def test_elementwise_by_kind():
    x = np.array([1.0, 4.0], "float32")
    made = run(
        """func.func @f(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
          %e = tensor.empty() : tensor<2xf32>
          %a = linalg.elementwise kind=#linalg.elementwise_kind<sqrt> ins(%x : tensor<2xf32>) outs(%e : tensor<2xf32>)
            -> tensor<2xf32>
          %b = linalg.add ins(%x, %a : tensor<2xf32>, tensor<2xf32>) outs(%e : tensor<2xf32>) -> tensor<2xf32>
          return %a, %b : tensor<2xf32>, tensor<2xf32>
        }""",
        x,
    )
    np.testing.assert_array_equal(made[0], np.sqrt(x))
    np.testing.assert_array_equal(made[1], x + np.sqrt(x))


def test_an_accumulator_that_nothing_has_defined_is_an_error():
    with pytest.raises(ProgramError, match=r"linalg.matmul .* uses an undefined value: tensor.empty \(%e\) at line 2"):
        run(
            """func.func @f(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {
              %e = tensor.empty() : tensor<2x2xf32>
              %m = linalg.matmul ins(%a, %a : tensor<2x2xf32>, tensor<2x2xf32>) outs(%e : tensor<2x2xf32>)
                -> tensor<2x2xf32>
              return %m : tensor<2x2xf32>
            }""",
            np.ones((2, 2), "float32"),
        )


def test_a_loop_that_never_runs_leaves_the_output():
    made = run(
        """func.func @f(%x: tensor<?x2xf32>) -> (tensor<2xf32>, tensor<?xf32>) {
          %low = arith.constant dense<[-1.0, -2.0]> : tensor<2xf32>
          %r = linalg.reduce { arith.maximumf } ins(%x : tensor<?x2xf32>) outs(%low : tensor<2xf32>) dimensions = [0]
          %c0 = arith.constant 0 : index
          %n = tensor.dim %x, %c0 : tensor<?x2xf32>
          %z = arith.constant 0.0 : f32
          %e = tensor.splat %z[%n] : tensor<?xf32>
          %s = linalg.reduce { arith.addf } ins(%x : tensor<?x2xf32>) outs(%e : tensor<?xf32>) dimensions = [1]
          return %r, %s : tensor<2xf32>, tensor<?xf32>
        }""",
        np.zeros((0, 2), "float32"),
    )
    np.testing.assert_array_equal(made[0], [-1, -2])
    assert made[1].shape == (0,)
