"""The emitter: appends ops to the body of a function, and knows the few shapes that all lowering is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import arith, linalg, tensor
from xdsl.dialects.builtin import (
    AffineMapAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    TensorType,
    bf16,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
)
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from shardwise.errors import ProgramError
from shardwise.ir.module.values import dtype_of
from shardwise.ir.reshapes import collapse, expand, transpose
from shardwise.ir.types import element_type, shape_of
from shardwise.layout.layout import Shape

ELEMENTS: dict[str, Any] = {str(dtype_of(kind)): kind for kind in (i1, i8, i16, i32, i64, f16, bf16, f32, f64)}

Body = Callable[["Emitter", Sequence[SSAValue]], SSAValue]  # of scalars


def element_of(dtype: np.dtype) -> Any:
    """Return the element type of a dtype.

    >>> str(element_of(np.dtype("float32")))
    'f32'
    """
    if str(dtype) not in ELEMENTS:
        raise ProgramError(f"{dtype} has no element type that arith computes with.\n  dtypes: {', '.join(ELEMENTS)}")
    return ELEMENTS[str(dtype)]


class Emitter:
    """Where ops go: the body of a function, or of a structured op."""

    def __init__(self, block: Block) -> None:
        """Append to a block."""
        self.block = block
        self._known: dict[Any, SSAValue] = {}

    def add(self, op: Operation) -> SSAValue:
        """Append an op, and return its first result."""
        self.block.add_op(op)
        return op.results[0]

    def once(self, key: Any, make: Callable[[], SSAValue]) -> SSAValue:
        """Return the value made for a key before, or make it now."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    # -- constants ---------------------------------------------------------------------------------

    def scalar(self, value: Any, dtype: np.dtype) -> SSAValue:
        """Return a constant scalar."""
        element = element_of(dtype)
        number = np.array(value).astype(dtype).item()
        attribute = FloatAttr(number, element) if dtype.kind not in "iub" else IntegerAttr(_as_signed(number), element)
        return self.once((repr(number), str(dtype)), lambda: self.add(arith.ConstantOp(attribute)))

    def full(self, shape: Shape, value: Any, dtype: np.dtype) -> SSAValue:
        """Return a tensor with one value everywhere."""
        scalar = self.scalar(value, dtype)
        kind = TensorType(element_of(dtype), shape)
        return self.once((scalar, shape), lambda: self.add(tensor.SplatOp(scalar, [], kind)))

    def constant(self, array: np.ndarray) -> SSAValue:
        """Return a constant tensor."""
        first = array.reshape(-1)[:1]
        if array.size == 0 or (array.reshape(-1).view(f"V{array.itemsize}") == first.view(f"V{array.itemsize}")).all():
            return self.full(array.shape, first[0] if array.size else 0, array.dtype)
        kind = TensorType(element_of(array.dtype), array.shape)
        values = [_as_signed(v) if array.dtype.kind in "iub" else v for v in array.reshape(-1).astype(object).tolist()]
        if array.dtype.kind == "V":
            values = array.reshape(-1).astype("float64").tolist()
        return self.add(arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(kind, values)))

    def empty(self, shape: Shape, element: Attribute) -> SSAValue:
        """Return a tensor whose elements nothing has defined."""
        return self.add(tensor.EmptyOp([], TensorType(element, shape)))

    # -- structured ops ----------------------------------------------------------------------------

    def generic(
        self,
        inputs: Sequence[SSAValue],
        maps: Sequence[Sequence[int | AffineExpr]],
        init: SSAValue,
        out: Sequence[int],
        count: int,
        body: Body,
    ) -> SSAValue:
        """Return a structured op: per operand its indices, loops or sums of them; loops not in `out` are reduced."""
        kinds = [*(element_type(x) for x in inputs), element_type(init)]
        attributes = [AffineMapAttr(_map(count, dims)) for dims in (*maps, out)]
        reduced = [IteratorType.PARALLEL if k in out else IteratorType.REDUCTION for k in range(count)]
        iterators = [IteratorTypeAttr(kind) for kind in reduced]
        return self.add(linalg.ops.GenericOp(inputs, [init], _region(kinds, body), attributes, iterators, [init.type]))

    def reduce(self, x: SSAValue, dims: Sequence[int], init: SSAValue, combine: type[Operation]) -> SSAValue:
        """Return a tensor combined over some dims."""
        element = element_type(x)
        body = _region([element, element], lambda inner, args: inner.add(combine(*args)))
        over = DenseArrayBase.from_list(i64, list(dims))
        return self.add(linalg.ops.ReduceOp(x, init, over, body))

    def broadcast(self, x: SSAValue, shape: Shape) -> SSAValue:
        """Return a tensor repeated along new leading dims and dims of size one."""
        old = shape_of(x)
        if old == shape:
            return x
        lead = len(shape) - len(old)
        left = [k for k in range(len(old)) if old[k] == shape[lead + k]]
        added = [k for k in range(len(shape)) if k - lead not in left]
        small = self.reshape(x, tuple(old[k] for k in left))
        into = self.empty(shape, element_type(x))
        return self.add(linalg.ops.BroadcastOp(small, into, DenseArrayBase.from_list(i64, added), into.type))

    def transpose(self, x: SSAValue, order: Sequence[int]) -> SSAValue:
        """Return a tensor with its dims in another order."""
        return transpose(self.add, x, order)

    # -- shapes ------------------------------------------------------------------------------------

    def reshape(self, x: SSAValue, shape: Shape) -> SSAValue:
        """Return a tensor in another shape: dims joined to runs of equal size, then those split."""
        old = shape_of(x)
        if old == shape:
            return x
        if 0 in shape:
            return self.full(shape, 0, dtype_of(element_type(x)))
        if not old:  # a scalar has no dims to split
            return self.broadcast(x, shape)
        runs = _runs(old, shape)
        middle = tuple(prod(old[k] for k in sources) for sources, _ in runs)
        if middle != old:
            x = collapse(self.add, x, [sources for sources, _ in runs], middle)
        return x if middle == shape else expand(self.add, x, [targets for _, targets in runs], shape)

    def slice(
        self, x: SSAValue, offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int] | None = None
    ) -> SSAValue:
        """Return every so many elements of a tensor, from some place on."""
        steps = tuple(strides or [1] * len(sizes))
        if tuple(sizes) == shape_of(x) and set(steps) <= {1}:
            return x
        make = tensor.ExtractSliceOp.from_static_parameters
        return self.once((x, *offsets, *sizes, *steps), lambda: self.add(make(x, offsets, sizes, steps)))

    def place(
        self,
        x: SSAValue,
        into: SSAValue,
        offsets: Sequence[int],
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
    ) -> SSAValue:
        """Return a tensor with every so many of its elements replaced by those of another."""
        return self.add(tensor.InsertSliceOp.from_static_parameters(x, into, offsets, sizes, strides))

    def concat(self, parts: Sequence[SSAValue], dim: int) -> SSAValue:
        """Return tensors one after the other along a dim."""
        if len(parts) == 1:
            return parts[0]
        shape = list(shape_of(parts[0]))
        shape[dim] = sum(shape_of(part)[dim] for part in parts)
        return self.add(tensor.ConcatOp(parts, dim, TensorType(element_type(parts[0]), shape)))


def _region(kinds: Sequence[Attribute], body: Body) -> Region:
    block = Block(arg_types=kinds)
    block.add_op(linalg.ops.YieldOp(body(Emitter(block), block.args)))
    return Region(block)


# -- types -----------------------------------------------------------------------------------------------


def _as_signed(value: Any) -> int:
    return -1 if value is True else int(value)


def _map(count: int, dims: Sequence[int | AffineExpr]) -> AffineMap:
    return AffineMap(count, 0, tuple(AffineExpr.dimension(d) if isinstance(d, int) else d for d in dims))


def _runs(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    # Dims of either shape in runs that have equally many elements.
    out: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        a, b, sources, targets = old[i], new[j], [i], [j]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a, i, sources = a * old[i], i + 1, [*sources, i]
            else:
                b, j, targets = b * new[j], j + 1, [*targets, j]
        out.append((sources, targets))
    if out:  # what is left over are ones
        out[-1][0].extend(range(i, len(old)))
        out[-1][1].extend(range(j, len(new)))
    return out
