"""Boundaries: how functions take their arguments and return their results, from the annotations in their text."""

import pytest
from xdsl.dialects.func import FuncOp

from shardwise.errors import ProgramError
from shardwise.ir import parse_module
from shardwise.ir.passes.boundaries import Boundary, annotation_of, annotations_of, boundary_of, layout_of, producer
from shardwise.ir.passes.layouts import grids_of

HEAD = """
shard.grid @g(shape = 2x3)
func.func @f(%x: tensor<6x6xi32>, %n: i32) -> tensor<6x6xi32> {
%a = shard.sharding @g split_axes = [[0]] : !shard.sharding
%b = shard.sharding @g split_axes = [[], [1]] : !shard.sharding
"""


def function(body: str, result: str = "%x") -> tuple[FuncOp, Boundary]:
    module = parse_module(HEAD + body + f"\nreturn {result} : tensor<6x6xi32>\n}}")
    found = next(op for op in module.walk() if isinstance(op, FuncOp))
    return found, boundary_of(found, grids_of(module))


def texts(boundary: Boundary) -> list[str | None]:
    return [None if layout is None else str(layout) for layout in (*boundary.arguments, *boundary.results)]


ROWS, COLUMNS = "[axis0|-]", "[-|axis1]"
MAKE = "%m = shard.shard %x to %a : tensor<6x6xi32>"
USE = "%u = shard.shard %x to %b annotate_for_users : tensor<6x6xi32>"


@pytest.mark.parametrize(
    ("body", "result", "want"),
    [
        ("", "%x", [None, None, None]),
        (MAKE, "%x", [ROWS, None, ROWS]),  # said of how it is made, whoever else uses it
        (MAKE, "%m", [ROWS, None, ROWS]),
        (USE, "%u", [COLUMNS, None, COLUMNS]),  # the only user says how it sees it
        (USE, "%x", [None, None, None]),  # one user of two
        (f"{MAKE}\n%u = shard.shard %m to %b annotate_for_users : tensor<6x6xi32>", "%u", [ROWS, None, COLUMNS]),
        (
            "%s = arith.addi %x, %x : tensor<6x6xi32>\n%m = shard.shard %s to %b : tensor<6x6xi32>",
            "%s",
            [None, None, COLUMNS],
        ),
    ],
)
def test_arguments_are_spread_as_they_are_made_and_results_as_they_are_seen(body: str, result: str, want) -> None:
    assert texts(function(body, result)[1]) == want


def test_constants_may_be_values() -> None:
    _, boundary = function(
        """%c = arith.constant 2 : i64
        %halo = shard.sharding @g split_axes = [[0]] halo_sizes = [%c, 1] : !shard.sharding
        %y = shard.shard %x to %halo : tensor<6x6xi32>""",
        "%y",
    )
    layout = boundary.results[0]
    assert layout is not None
    assert [cut.halo for cut in layout.dims] == [(2, 1), (0, 0)]


def test_shardings_that_depend_on_values_are_known_too_late() -> None:
    with pytest.raises(ProgramError, match="has halos or offsets that are values, so shards are not known before"):
        function(
            """%c = arith.constant 2 : i64
            %d = arith.addi %c, %c : i64
            %halo = shard.sharding @g split_axes = [[0]] halo_sizes = [%d, 1] : !shard.sharding
            %y = shard.shard %x to %halo : tensor<6x6xi32>""",
            "%y",
        )


def test_annotations_are_listed_in_the_order_of_the_text() -> None:
    found, _ = function(f"{USE}\n{MAKE}")
    x, n = found.body.block.args
    assert [op.annotate_for_users is not None and bool(op.annotate_for_users) for op in annotations_of(x)] in (
        [True, False],
        [False, True],
    )
    made = producer(x)
    assert made is not None
    assert not made.annotate_for_users
    assert annotation_of(x) is made
    assert annotations_of(n) == []
    assert producer(n) is None
    assert annotation_of(n) is None


def test_a_function_without_a_body_takes_and_returns_the_whole() -> None:
    module = parse_module("func.func private @f(i32, tensor<2xi32>) -> (i32, i32, i32)")
    found = next(op for op in module.walk() if isinstance(op, FuncOp))
    assert boundary_of(found, grids_of(module)) == Boundary((None, None), (None, None, None))


def test_nothing_said_is_no_layout() -> None:
    module = parse_module(HEAD + "return %x : tensor<6x6xi32>\n}")
    assert layout_of(None, grids_of(module)) is None
