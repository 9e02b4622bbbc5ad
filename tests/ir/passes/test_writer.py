"""The writer: numbers that are known cost nothing, others are right on every device, and all is made once."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, TensorType, f32, i1, i32
from xdsl.ir import Block, SSAValue

from shardwise.ir.passes.layouts import local_type
from shardwise.ir.passes.writer import Writer, tensor_type
from shardwise.ir.types import element_type
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout
from tests.ir.passes.devices import mesh_named, module_written, run_written
from tests.layout.oracle import held_box

MESH = mesh_named(2, 3)
PLACES = list(product(range(2), range(3)))


def test_numbers_that_are_known_take_no_ops() -> None:
    w = Writer(Block())
    assert (w.plus(2, 3), w.minus(2, 3), w.times(2, 3), w.entry([5, 7], 1)) == (5, -1, 6, 7)
    x = w.coordinate(MESH, 0)
    assert w.plus(0, x) is x
    assert w.plus(x, 0) is x
    assert w.minus(x, 0) is x
    assert w.times(x, 1) is x
    assert w.times(x, 0) == 0
    assert w.value(x) is x
    assert len(w.top) == 1


def test_everything_is_made_once() -> None:
    w = Writer(Block())
    x, y = w.coordinate(MESH, 0), w.coordinate(MESH, 1)
    assert w.coordinate(MESH, 0) is x
    assert x is not y
    calls: list[Any] = [
        lambda: w.plus(x, y),
        lambda: w.minus(x, y),
        lambda: w.times(x, 3),
        lambda: w.least(x, 3),
        lambda: w.quotient(x, 3),
        lambda: w.remainder(x, 3),
        lambda: w.entry([1, 2], x),
        lambda: w.not_negative(x),
        lambda: w.unequal(x, y),
        lambda: w.value(7),
        lambda: w.scalar(1.5, f32),
        lambda: w.scalar(7, i32),
    ]
    found = [call() for call in calls]
    assert [call() for call in calls] == found
    assert len({*found}) == len(found)
    count = len(w.top)
    assert w.either(None, w.unequal(x, y)) is w.unequal(x, y)
    assert len(w.top) == count
    assert w.scalar(7, i32) is not w.scalar(7, IndexType())


def test_arithmetic_is_right_on_every_device() -> None:
    def write(w: Writer) -> list[Any]:
        x, y = w.coordinate(MESH, 0), w.coordinate(MESH, 1)
        return [
            w.plus(x, y),
            w.plus(5, y),
            w.minus(x, y),
            w.minus(7, y),
            w.times(y, 4),
            w.least(y, 1),
            w.quotient(w.plus(y, 5), 3),
            w.remainder(w.plus(y, 5), 3),
            w.entry([10, 30, 20], y),
            w.position(MESH, [0, 1]),
            w.position(MESH, [1, 0]),
            w.position(MESH, []),
        ]

    got = run_written(MESH, write)
    for (x, y), numbers in zip(PLACES, got, strict=True):
        want = [x + y, 5 + y, x - y, 7 - y, 4 * y, min(y, 1), (y + 5) // 3, (y + 5) % 3, [10, 30, 20][y]]
        assert [int(n) for n in numbers] == [*want, 3 * x + y, 2 * y + x, 0]


def test_conditions_are_right_on_every_device() -> None:
    def write(w: Writer) -> list[Any]:
        x, y = w.coordinate(MESH, 0), w.coordinate(MESH, 1)
        low = w.value(w.minus(y, 1))
        return [w.not_negative(low), w.unequal(x, y), w.either(w.unequal(x, y), w.not_negative(low))]

    got = run_written(MESH, write)
    for (x, y), flags in zip(PLACES, got, strict=True):
        assert [bool(f) for f in flags] == [y >= 1, x != y, x != y or y >= 1]


LAYOUTS = [
    Layout(MESH, ["axis0", "axis1"]),
    Layout(MESH, [("axis1", "axis0"), None]),
    Layout(MESH, [None, None]),
    Layout(MESH, [Cut("axis1", offsets=(0, 1, 6, 7)), None]),
    Layout(MESH, [Cut("axis0", halo=(1, 1), edge="pad"), Cut("axis1", halo=(0, 1), edge="pad")]),
    Layout(MESH, [Cut("axis1", halo=(2, 1), edge="pad"), None]),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("shape", [(6, 6), (7, 5)])
def test_shards_begin_and_end_where_they_should(layout: Layout, shape: tuple[int, ...]) -> None:
    if layout.dims[0].offsets is not None:
        shape = (7, shape[1])

    def write(w: Writer) -> list[Any]:
        starts = [w.start(layout, shape, dim) for dim in range(2)]
        return [*starts, *w.sizes(layout, shape), w.part(layout, layout.dims[0].axes)]

    for device, numbers in enumerate(run_written(MESH, write)):
        box = held_box(layout, shape, device)
        starts = [a for a, _ in box]
        sizes = [b - a for a, b in box]
        assert [int(n) for n in numbers[:4]] == [*starts, *sizes], device
        assert int(numbers[4]) == layout.tile_of(device)[0]
    known = Writer(Block()).sizes(layout, shape)
    dims = layout.tiling(shape).dims
    assert [isinstance(n, int) for n in known] == [dim.is_even for dim in dims]


def test_tensors_are_made_sliced_and_put_together() -> None:
    layout = Layout(MESH, [None, "axis1"])
    shape = (2, 5)
    whole = np.arange(10, dtype="int32").reshape(shape)

    def write(w: Writer, x: SSAValue) -> list[Any]:
        sizes = w.sizes(layout, shape)
        part = w.slice(x, [0, w.start(layout, shape, 1)], sizes)
        seven = w.splat(w.scalar(7, i32), [2, 5], i32)
        back = w.insert(part, seven, [0, w.start(layout, shape, 1)], sizes)
        assert w.slice(x, [0, 0], [2, 5]) is x
        assert w.slice(x, [0, 0], [2, 4]) is not x
        assert w.cast(part, part.type) is part  # type: ignore[arg-type]
        assert part.type == local_type(layout, shape, i32)
        return [part, back, w.slice(x, [1, 2], [1, 2]), w.cast(x, TensorType(i32, [DYNAMIC_INDEX, 5]))]

    got = run_written(MESH, write, [TensorType(i32, shape)], [[whole] * 6])
    for device, (part, back, fixed, cast) in enumerate(got):
        (_, (start, stop)) = held_box(layout, shape, device)
        want = np.full(shape, 7, "int32")
        want[:, start:stop] = whole[:, start:stop]
        np.testing.assert_array_equal(part, whole[:, start:stop])
        np.testing.assert_array_equal(back, want)
        np.testing.assert_array_equal(fixed, whole[1:2, 2:4])
        np.testing.assert_array_equal(cast, whole)


def test_a_slice_with_open_sizes_is_never_the_whole() -> None:
    kind = TensorType(i32, [DYNAMIC_INDEX])
    block = Block(arg_types=[kind])
    w = Writer(block)
    size = w.coordinate(MESH, 0)
    assert w.slice(block.args[0], [0], [size]) is not block.args[0]


def test_scalars_of_every_kind() -> None:
    def write(w: Writer) -> list[Any]:
        floats = [w.scalar(2.5, f32), w.scalar(-np.inf, f32)]
        return [w.scalar(True, i1), w.scalar(-3, i32), *floats, w.scalar(4, IndexType())]

    for values in run_written(MESH, write):
        assert [float(v) for v in values] == [1.0, -3.0, 2.5, -np.inf, 4.0]


def test_what_stands_at_the_top_comes_first_and_once() -> None:
    module, w = module_written(MESH, lambda w: [w.plus(w.coordinate(MESH, 0), 3)])
    assert w.top == []
    names = [op.name for op in module.walk()]
    assert names[-4:] == ["shard.process_multi_index", "arith.constant", "arith.addi", "func.return"]
    empty = Block()
    other = Writer(empty)
    other.value(3)
    other.finish(empty)  # there is nothing to stand before
    assert other.top == []


def test_a_block_is_written_to_for_a_while() -> None:
    outer, inner = Block(), Block()
    w = Writer(outer)
    with w.inside(inner) as same:
        assert same is w
        w.empty([2], i32)
    w.empty([3], i32)
    assert [len(list(block.ops)) for block in (outer, inner)] == [1, 1]
    made = w.add(arith.ConstantOp.from_int_and_width(1, 32))
    assert made.owner is outer.last_op


def test_types_are_open_where_numbers_are_values() -> None:
    w = Writer(Block())
    kind = tensor_type([2, w.coordinate(MESH, 0)], f32)
    assert tuple(kind.get_shape()) == (2, DYNAMIC_INDEX)
    assert element_type(w.empty([2], f32)) == f32
