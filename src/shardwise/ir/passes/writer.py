"""The writer: appends ops to the body of a device's function, and does index arithmetic at its top.

A number that is known is an int, one that is not is a value; sums and products of ints cost no op.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    TensorType,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue

from shardwise.ir.passes.layouts import local_sizes, numbers
from shardwise.ir.shard import ProcessMultiIndexOp
from shardwise.ir.shard.attributes import ints_attribute
from shardwise.ir.types import element_type, is_integer
from shardwise.layout.axis import Axis
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh

Number = int | SSAValue


class Writer:
    """Where the ops of one function go: the block that is being written, and what stands at the top for all."""

    def __init__(self, block: Block) -> None:
        """Write to a block."""
        self.block = block
        self.top: list[Operation] = []
        self._known: dict[Any, SSAValue] = {}

    def add(self, op: Operation) -> SSAValue:
        """Append an op; return its first result."""
        self.block.add_op(op)
        return op.results[0]

    @contextmanager
    def inside(self, block: Block) -> Generator[Writer]:
        """Write to a block of a region for a while."""
        outer, self.block = self.block, block
        yield self
        self.block = outer

    def finish(self, block: Block) -> None:
        """Put what stands at the top before everything else."""
        if self.top and block.first_op is not None:
            block.insert_ops_before(self.top, block.first_op)
        self.top = []

    def early(self, key: Any, make: Callable[[], Operation], result: int = 0) -> SSAValue:
        """Return a value made at the top, once for each key."""
        if key not in self._known:
            op = make()
            self.top.append(op)
            self._known[key] = op.results[result]
        return self._known[key]

    # -- numbers -----------------------------------------------------------------------------------

    def value(self, number: Number) -> SSAValue:
        """Return a number as a value."""
        if isinstance(number, SSAValue):
            return number
        return self.early(("index", number), lambda: arith.ConstantOp(IntegerAttr(number, IndexType())))

    def plus(self, a: Number, b: Number) -> Number:
        """Return a sum."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self._combine(arith.AddiOp, a, b)

    def minus(self, a: Number, b: Number) -> Number:
        """Return a difference."""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        if b == 0:
            return a
        return self._combine(arith.SubiOp, a, b)

    def times(self, a: Number, b: int) -> Number:
        """Return a product with an int."""
        if isinstance(a, int):
            return a * b
        if b in (0, 1):
            return a if b else 0
        return self._combine(arith.MuliOp, a, b)

    def least(self, a: SSAValue, b: int) -> SSAValue:
        """Return the smaller of a value and an int."""
        return self._combine(arith.MinSIOp, a, b)

    def quotient(self, a: Number, b: int) -> SSAValue:
        """Return a quotient of what is not negative, rounded down."""
        return self._combine(arith.DivUIOp, a, b)

    def remainder(self, a: Number, b: int) -> SSAValue:
        """Return the remainder of what is not negative."""
        return self._combine(arith.RemUIOp, a, b)

    def entry(self, table: Sequence[int], position: Number) -> Number:
        """Return the entry of a table at a position."""
        if isinstance(position, int):
            return table[position]
        kind = TensorType(IndexType(), [len(table)])
        key = ("table", tuple(table))
        constant = self.early(key, lambda: arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(kind, list(table))))
        return self.early(("entry", constant, position), lambda: tensor.ExtractOp(constant, [position], IndexType()))

    def not_negative(self, a: SSAValue) -> SSAValue:
        """Return whether a value is 0 or more."""
        zero = self.value(0)
        return self.early(("not negative", a), lambda: arith.CmpiOp(a, zero, "sge"))

    def unequal(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """Return whether two values differ."""
        return self.early(("unequal", a, b), lambda: arith.CmpiOp(a, b, "ne"))

    def either(self, a: SSAValue | None, b: SSAValue) -> SSAValue:
        """Return whether one of two conditions holds, or the only one there is."""
        return b if a is None else self._combine(arith.OrIOp, a, b)

    def _combine(self, op: Callable[[SSAValue, SSAValue], Operation], a: Number, b: Number) -> SSAValue:
        x, y = self.value(a), self.value(b)
        return self.early((op, x, y), lambda: op(x, y))

    # -- where a device is -------------------------------------------------------------------------

    def coordinate(self, mesh: DeviceMesh, axis: int) -> SSAValue:
        """Return the position of this device along one grid axis."""
        return self.early(
            ("coordinate", mesh.name, axis), lambda: ProcessMultiIndexOp([IndexType()], mesh.name, axes=[axis])
        )

    def position(self, mesh: DeviceMesh, axes: Sequence[int]) -> Number:
        """Return the position of this device in its group along several grid axes, outer to inner."""
        place: Number = 0
        for axis in axes:
            place = self.plus(self.times(place, mesh.mesh_shape[axis]), self.coordinate(mesh, axis))
        return place

    def part(self, layout: Layout, axes: Sequence[Axis]) -> Number:
        """Return which part of a dim this device has."""
        return self.position(layout.mesh, numbers(axes))

    # -- shards ------------------------------------------------------------------------------------

    def start(self, layout: Layout, shape: Shape, dim: int) -> Number:
        """Return where in a dim the shard of this device begins, halo included."""
        cut, tiling = layout.dims[dim], layout.tiling(shape).dims[dim]
        part = self.part(layout, cut.axes)
        if tiling.offsets is not None and not tiling.is_even:
            return self.minus(self.entry(tiling.offsets, part), cut.halo[0])
        width, longer = divmod(tiling.size, tiling.parts)
        first = self.times(part, width)
        if longer and isinstance(part, SSAValue):
            first = self.plus(first, self.least(part, longer))
        return self.minus(first, cut.halo[0])

    def size(self, layout: Layout, shape: Shape, dim: int) -> Number:
        """Return how many elements of a dim this device holds, halo included."""
        known = local_sizes(layout, shape)[dim]
        if known != DYNAMIC_INDEX:
            return known
        cut, tiling = layout.dims[dim], layout.tiling(shape).dims[dim]
        part = self.part(layout, cut.axes)
        if tiling.offsets is not None:
            sizes = [stop - start for start, stop in map(tiling.interval, range(tiling.parts))]
            own = self.entry(sizes, part)
        else:
            own = self.quotient(self.minus(tiling.size + tiling.parts - 1, part), tiling.parts)
        return self.plus(own, sum(cut.halo))

    def sizes(self, layout: Layout, shape: Shape) -> list[Number]:
        """Return the sizes of the shard of this device."""
        return [self.size(layout, shape, dim) for dim in range(len(shape))]

    # -- tensors -----------------------------------------------------------------------------------

    def scalar(self, number: Any, element: Attribute) -> SSAValue:
        """Return a constant scalar."""
        if is_integer(element) or isinstance(element, IndexType):
            attribute: Any = IntegerAttr(int(number), element)
        else:
            attribute = FloatAttr(float(number), element)  # type: ignore[arg-type]
        return self.early(("scalar", repr(number), element), lambda: arith.ConstantOp(attribute))

    def empty(self, sizes: Sequence[Number], element: Attribute) -> SSAValue:
        """Return a tensor that nothing has defined."""
        return self.add(tensor.EmptyOp(split_known(sizes)[1], tensor_type(sizes, element)))

    def splat(self, scalar: SSAValue, sizes: Sequence[Number], element: Attribute) -> SSAValue:
        """Return a tensor with one value everywhere."""
        return self.add(tensor.SplatOp(scalar, split_known(sizes)[1], tensor_type(sizes, element)))

    def slice(self, x: SSAValue, offsets: Sequence[Number], sizes: Sequence[Number]) -> SSAValue:
        """Return a box of a tensor."""
        kind = tensor_type(sizes, element_type(x))
        if all(o == 0 for o in offsets) and kind == x.type and DYNAMIC_INDEX not in kind.get_shape():
            return x
        return self.add(tensor.ExtractSliceOp(x, list(offsets), list(sizes), [1] * len(sizes), kind))

    def insert(self, x: SSAValue, into: SSAValue, offsets: Sequence[Number], sizes: Sequence[Number]) -> SSAValue:
        """Return a tensor with a box of it replaced."""
        (starts, open_starts), (counts, open_counts) = split_known(offsets), split_known(sizes)
        return self.add(
            tensor.InsertSliceOp.build(
                operands=[x, into, open_starts, open_counts, []],
                result_types=[into.type],
                properties={
                    "static_offsets": ints_attribute(starts, "offsets"),
                    "static_sizes": ints_attribute(counts, "sizes"),
                    "static_strides": ints_attribute([1] * len(sizes), "strides"),
                },
            )
        )

    def cast(self, x: SSAValue, kind: TensorType[Any]) -> SSAValue:
        """Return a tensor with other sizes known."""
        return x if x.type == kind else self.add(tensor.CastOp(x, kind))


def tensor_type(sizes: Sequence[Number], element: Attribute) -> TensorType[Any]:
    """Return the type of a tensor of these sizes."""
    return TensorType(element, split_known(sizes)[0])


def split_known(numbers: Sequence[Number]) -> tuple[list[int], list[SSAValue]]:
    """Return numbers with those that are values left open, and these values."""
    known = [n if isinstance(n, int) else DYNAMIC_INDEX for n in numbers]
    return known, [n for n in numbers if isinstance(n, SSAValue)]
