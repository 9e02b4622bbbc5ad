"""The ops as Python values: classes, accessors, builder functions, places."""

import inspect
import subprocess
import sys
from typing import Any

import pytest
from xdsl.builder import ImplicitBuilder
from xdsl.dialects import test
from xdsl.dialects.builtin import (
    FileLineColLoc,
    IndexType,
    IntAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    UnitAttr,
    f32,
    i64,
)
from xdsl.ir import Block
from xdsl.rewriter import InsertPoint

from shardwise.errors import ArgumentError
from shardwise.ir import shard
from tests.reference.test_names import NAMES

T = TensorType(f32, [4, 8])
INDEX = IndexType()
# For arguments of the wrong kind, and results whose kind depends on their number.
untyped: Any = shard


def value(kind: Any = T) -> Any:
    return test.TestOp(result_types=[kind]).results[0]


ONE_OF_EACH = {
    "all_gather": lambda x: shard.all_gather(TensorType(f32, [4, 16]), "g", x, 1, grid_axes=[1]),
    "all_reduce": lambda x: shard.all_reduce(T, "g", x, grid_axes=[0, 1], reduction="max"),
    "all_slice": lambda x: shard.all_slice(T, "g", x, 0),
    "all_to_all": lambda x: shard.all_to_all(T, "g", x, 0, 1),
    "broadcast": lambda x: shard.broadcast(T, "g", x, [0], [], grid_axes=[0]),
    "gather": lambda x: shard.gather(T, "g", x, 1, [0], None),
    "get_sharding": lambda x: shard.get_sharding(x),
    "process_linear_index": lambda _: shard.process_linear_index("g"),
    "recv": lambda x: shard.recv(T, "g", x, None),
    "reduce": lambda x: shard.reduce(T, "g", x, [0], []),
    "reduce_scatter": lambda x: shard.reduce_scatter(T, "g", x, 0),
    "scatter": lambda x: shard.scatter(T, "g", x, 0, [1], []),
    "send": lambda x: shard.send(T, "g", x, [1], []),
    "shard": lambda x: shard.shard(x, value(shard.ShardingType())),
    "sharding": lambda _: shard.sharding("g", [[0]], [], []),
    "shift": lambda x: shard.shift(T, "g", x, 0, -1, grid_axes=[0]),
    "update_halo": lambda x: shard.update_halo(T, x, "g", [[0]], [], static_halo_sizes=[1, 1]),
}


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_an_op_with_one_result_gives_its_value(name: str):
    made = ONE_OF_EACH[name](value())
    assert made.owner.OPERATION_NAME == made.owner.name == f"shard.{name}"
    assert made.owner.result is made
    assert made.owner._ODS_REGIONS == (0, True)


@pytest.mark.parametrize("entry", NAMES["shard-dialect"]["classes"].items(), ids=lambda entry: entry[0])
def test_accessors_are_properties_with_a_doc(entry):
    name, documented = entry
    kind = getattr(shard, name)
    for accessor in documented["accessors"]:
        found = inspect.getattr_static(kind, accessor)
        assert isinstance(found, property)
        assert found.__doc__


def test_names_that_begin_with_an_underscore_are_there_too():
    assert shard._Dialect.DIALECT_NAMESPACE == "shard"
    assert shard._Dialect("descriptor").descriptor == "descriptor"
    assert shard.ShardingOp._ODS_OPERAND_SEGMENTS == (-1, -1)
    assert shard.ShardShapeOp._ODS_OPERAND_SEGMENTS == (-1, 1, -1)
    assert shard._ods_ir.__name__ == "xdsl.ir"


def test_accessors_give_what_was_given():
    x, i = value(), value(INDEX)
    op = shard.GatherOp(T, "g", x, 1, [0, shard.DYNAMIC_INDEX], [i], grid_axes=[1, 0])
    assert op.input is x
    assert op.grid.root_reference.data == "g"
    assert op.grid_axes.get_values() == (1, 0)
    assert op.gather_axis.value.data == 1
    assert op.root.get_values() == (0, shard.DYNAMIC_INDEX)
    assert list(op.root_dynamic) == [i]
    assert shard.RecvOp(T, "g", x, []).source is None
    assert shard.ShiftOp(T, "g", x, 0, 1).rotate is False
    assert shard.ShiftOp(T, "g", x, 0, 1, rotate=True).rotate is True
    assert shard.ShiftOp(T, "g", x, 0, 1, rotate=UnitAttr()).rotate is True
    assert shard.ReduceOp(T, "g", x, [], []).reduction.data is shard.ReductionKind.SUM
    sharding = value(shard.ShardingType())
    assert shard.ShardOp(x, sharding).annotate_for_users is False
    assert shard.ShardOp(x, sharding, annotate_for_users=True).annotate_for_users is True
    op.gather_axis = shard.AllGatherOp(T, "g", x, 0).gather_axis
    assert op.gather_axis.value.data == 0


def test_results_are_inferred_or_given():
    x = value()
    assert shard.shard(x, value(shard.ShardingType())).type == T
    assert shard.sharding("g", [[0]], None, None).type == shard.ShardingType()
    assert shard.get_sharding(x, results=[shard.ShardingType()]).type == shard.ShardingType()
    down, up = untyped.neighbors_linear_indices("g", [value(INDEX)], [0])
    assert (down.type, up.type) == (INDEX, INDEX)
    assert down.owner.neighbor_down is down
    assert down.owner.neighbor_up is up


def test_one_result_gives_the_value_several_the_list_none_the_op():
    one = untyped.grid_shape([INDEX], "g", axes=[0])
    several = untyped.process_multi_index([INDEX] * 2, "g")
    none = shard.grid_shape([], "g")
    assert one.type == INDEX
    assert [result.type for result in several] == [INDEX] * 2
    assert isinstance(none, shard.GridShapeOp)
    assert isinstance(shard.grid("g", [2]), shard.GridOp)
    sizes = untyped.shard_shape([INDEX] * 2, [4, 8], [], value(shard.ShardingType()), [0], [])
    assert len(sizes) == 2


def test_ops_that_never_have_one_result_say_so():
    index = value(INDEX)
    for op in (shard.GridOp("g", [2]), shard.NeighborsLinearIndicesOp("g", [index, index], [1])):
        with pytest.raises(ArgumentError, match=r"results, so no single one; ask for \.results"):
            _ = op.result


@pytest.mark.parametrize("op", [shard.GridShapeOp, shard.ProcessMultiIndexOp])
@pytest.mark.parametrize("count", [0, 2])
def test_result_raises_unless_there_is_exactly_one(op, count: int):
    with pytest.raises(ArgumentError, match=rf"has {count} results, so no single one; ask for \.results"):
        _ = op([INDEX] * count, "g").result
    assert op([INDEX], "g").result.type == INDEX


def test_loc_and_ip_place_the_op():
    block = Block()
    loc = FileLineColLoc(StringAttr("model.py"), IntAttr(3), IntAttr(7))
    last = shard.grid("c", [2], ip=block, loc=loc)
    first = shard.grid("a", [2], ip=last)
    middle = shard.grid("b", [2], ip=InsertPoint.after(first))
    assert [*block.ops] == [first, middle, last]
    assert last.location == loc


def test_an_ip_wins_over_the_builder_around_it():
    block, other = Block(), Block()
    with ImplicitBuilder(block):
        inside = shard.grid("a", [2])
        outside = shard.grid("b", [2], ip=other)
    assert [*block.ops] == [inside]
    assert [*other.ops] == [outside]


WRONG = [
    (lambda x: untyped.all_gather(T, "", x, 0), "grid is the name of a shard.grid, such as 'grid0', got ''."),
    (lambda x: untyped.all_gather(T, 7, x, 0), "grid is the name of a shard.grid, such as 'grid0', got 7."),
    (lambda x: untyped.all_gather(T, "g", x, "0"), "gather_axis is an int, got '0'."),
    (lambda x: untyped.all_gather(T, "g", x, 1 << 63), "gather_axis holds ints of 64 bits, got 9223372036854775808."),
    (lambda x: untyped.all_gather(T, "g", x, 0, grid_axes=1), "grid_axes is a list of ints, got 1."),
    (lambda x: untyped.all_gather(T, "g", x, 0, grid_axes=[0.5]), "grid_axes is a list of ints, got [0.5]."),
    (lambda x: untyped.all_gather(T, "g", x, 0, grid_axes=[40_000]), "grid_axes holds ints of 16 bits, got 40000."),
    (
        lambda x: untyped.all_reduce(T, "g", x, reduction="mxa"),
        "unknown reduction 'mxa'.\n  reductions: sum, max, m",
    ),
    (lambda x: untyped.all_reduce(T, "g", x, reduction="mxa"), "did you mean 'max'?"),
    (lambda x: untyped.broadcast(T, "g", x, "0", []), "root is a list of ints, got '0'."),
    (lambda x: untyped.broadcast(T, "g", x, [0], 7), "root_dynamic is a list of values, got 7."),
    (lambda _: untyped.sharding("g", 0, [], []), "split_axes is a list of lists of grid axes, got 0."),
    (lambda _: untyped.grid(None, [2]), "sym_name is the grid's name, such as 'grid0', got None."),
    (
        lambda _: untyped.grid("g", [2], ip=7),
        "ip is an InsertPoint, a Block (its end) or an Operation (before it), got 7.",
    ),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_a_wrong_argument_is_named(make, message: str):
    with pytest.raises(ArgumentError) as caught:
        make(value())
    assert message in str(caught.value)


def test_attributes_are_taken_as_they_are():
    op = shard.AllReduceOp(T, "@g", value(), grid_axes=[0], reduction="min")
    again = shard.AllReduceOp(T, op.grid, op.input, grid_axes=op.grid_axes, reduction=op.reduction)
    assert again.properties == op.properties
    assert shard.AllReduceOp(T, StringAttr("g"), op.input).grid == op.grid
    sharding = shard.ShardingOp(
        "g", [[0], []], [value(i64)], [], static_sharded_dims_offsets=[0, shard.DYNAMIC_INDEX, 4]
    )
    same = shard.ShardingOp(
        sharding.grid,
        sharding.split_axes,
        sharding.dynamic_sharded_dims_offsets,
        [],
        static_sharded_dims_offsets=sharding.static_sharded_dims_offsets,
    )
    assert same.properties == sharding.properties


def test_ops_verify_as_xdsl_ops():
    module = ModuleOp(
        [shard.grid("g", [2]), op := test.TestOp(result_types=[T]), shard.AllReduceOp(T, "g", op.results[0])]
    )
    module.verify()


def test_importing_shardwise_does_not_import_xdsl():
    code = "import sys, shardwise; sys.exit('xdsl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_without_xdsl_the_error_names_the_extra():
    code = "import importlib.util as u; u.find_spec = lambda name: None\nimport shardwise.ir"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "install it with: pip install 'shardwise[mlir]'" in done.stderr
