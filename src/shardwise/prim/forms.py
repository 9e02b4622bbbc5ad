"""Forms: how the compiler writes a primitive, as data: few kinds of ops on whole tensors, and formulas of scalars."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from shardwise.engine.arrays import accumulator
from shardwise.layout.layout import Shape
from shardwise.layout.placement import ReduceOp
from shardwise.prim.tensor import Tensor

Number = int | float | bool
BOOL, INDEX = np.dtype(bool), np.dtype(np.int64)


@dataclass(frozen=True)
class Formula:
    """An elementwise op in the arithmetic of scalars, as Python writes it, of its operands x, y and z.

    `ints` is what it is of integers, where that differs. It is computed in the dtype of the result, or in bool; what
    compares is computed in the dtype of the operands.

    >>> Formula("abs(x) < inf", ints="True")
    Formula(text='abs(x) < inf', ints='True', of='result')
    """

    text: str
    ints: str | None = None
    of: Literal["result", "bool"] = "result"

    @property
    def operations(self) -> int:
        """How many operations it takes for each element.

        >>> Formula("x - x // y * y").operations
        3
        """
        steps = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call)
        return sum(isinstance(part, steps) for part in ast.walk(ast.parse(self.text)))

    @property
    def compares(self) -> bool:
        """Whether what it gives is true or false, whatever its operands are."""
        return isinstance(ast.parse(self.text, mode="eval").body, ast.Compare)

    def form(self, out: Tensor, *operands: Any) -> Form:
        """Return its form of operands that are tensors or numbers."""
        dtype = BOOL if self.of == "bool" else _common_dtype(operands) if self.compares else out.dtype
        text = self.ints if self.ints is not None and dtype.kind in "iub" else self.text
        return by_element(out, text, operands, [dtype] * len(operands))


def _common_dtype(operands: Sequence[Any]) -> np.dtype:
    # The dtype in which operands are compared: numbers take that of the tensors, if it can hold them.
    dtype = np.result_type(*[x.dtype for x in operands if isinstance(x, Tensor)])
    for x in operands:
        if isinstance(x, float) and dtype.kind in "iub":
            dtype = np.dtype("float64")
        elif isinstance(x, int) and not isinstance(x, bool) and dtype.kind == "b":
            dtype = INDEX
    return dtype


# -- kinds -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Form:
    """A value of the compiler: its shape and dtype, and by its class how it is made of others."""

    shape: Shape
    dtype: np.dtype


@dataclass(frozen=True, eq=False)
class Operand(Form):
    """An operand of the primitive."""

    tensor: Tensor


@dataclass(frozen=True, eq=False)
class Full(Form):
    """One number everywhere."""

    number: Number


@dataclass(frozen=True, eq=False)
class Reshape(Form):
    """The same elements in row-major order."""

    form: Form


@dataclass(frozen=True, eq=False)
class Broadcast(Form):
    """Elements repeated along new leading dims and dims of size one."""

    form: Form


@dataclass(frozen=True, eq=False)
class Transpose(Form):
    """Dims in another order."""

    form: Form
    order: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Slice(Form):
    """Every so many elements, from some place on."""

    form: Form
    starts: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Place(Form):
    """A value with every so many of its elements replaced by another."""

    form: Form
    into: Form
    starts: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Concat(Form):
    """Values one after the other along a dim."""

    parts: tuple[Form, ...]
    dim: int


@dataclass(frozen=True, eq=False)
class Reduce(Form):
    """Elements combined over dims."""

    form: Form
    dims: tuple[int, ...]
    op: ReduceOp


class Read(NamedTuple):
    """What loops read at each step: the element of a form at an index, a text per dim, or a number; and in which dtype.

    >>> Read(2.0, (), BOOL).at
    ()
    """

    form: Form | Number
    at: tuple[str, ...]
    dtype: np.dtype


@dataclass(frozen=True, eq=False)
class Loops(Form):
    """A formula at each step of loops by name: those of the dims of the result, then those that are summed over.

    The body computes with `x`, `y` and `z`, which are read, with the loops, as integers, with elements of a `table`,
    as `table[i, j]`, and with the `total` so far where something is summed, which begins with `start`.
    """

    names: tuple[str, ...]
    reads: tuple[Read, ...]
    body: str
    table: Form | None = None
    start: Number = 0


# -- making them -----------------------------------------------------------------------------------------


def as_form(x: Tensor | Form) -> Form:
    """Return a form as it is, and a tensor as an operand."""
    return x if isinstance(x, Form) else Operand(x.shape, x.dtype, x)


def full(shape: Shape, number: Number, dtype: np.dtype) -> Form:
    """Return one number everywhere."""
    return Full(tuple(shape), dtype, number)


def reshape(x: Tensor | Form, shape: Shape) -> Form:
    """Return a value in another shape.

    >>> reshape(full((2, 3), 0, BOOL), (6,)).shape
    (6,)
    """
    return Reshape(tuple(shape), x.dtype, as_form(x))


def reshape_form(out: Tensor, x: Tensor, **_: Any) -> Form:
    """Return how a primitive is written that gives an operand another shape."""
    return reshape(x, out.shape)


def broadcast(x: Tensor | Form, shape: Shape) -> Form:
    """Return a value repeated to a shape."""
    return Broadcast(tuple(shape), x.dtype, as_form(x))


def transpose(x: Tensor | Form, order: Sequence[int]) -> Form:
    """Return a value with its dims in another order."""
    return Transpose(tuple([x.shape[k] for k in order]), x.dtype, as_form(x), tuple(order))


def take_slice(
    x: Tensor | Form, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int] | None = None
) -> Form:
    """Return every so many elements of a value, from some place on."""
    return Slice(tuple(sizes), x.dtype, as_form(x), tuple(starts), tuple(steps or [1] * len(sizes)))


def place(x: Tensor | Form, into: Tensor | Form, starts: Sequence[int], steps: Sequence[int] | None = None) -> Form:
    """Return a value with another one in the place of some of its elements."""
    return Place(into.shape, into.dtype, as_form(x), as_form(into), tuple(starts), tuple(steps or [1] * len(x.shape)))


def concat(parts: Sequence[Tensor | Form], dim: int) -> Form:
    """Return values one after the other along a dim.

    >>> concat([full((2, 3), 0, BOOL), full((2, 1), 1, BOOL)], 1).shape
    (2, 4)
    """
    shape = list(parts[0].shape)
    shape[dim] = sum(part.shape[dim] for part in parts)
    return Concat(tuple(shape), parts[0].dtype, tuple(map(as_form, parts)), dim)


def reduce(x: Tensor | Form, dims: Sequence[int], op: ReduceOp, dtype: np.dtype | None = None) -> Form:
    """Return a value combined over dims, in a dtype."""
    if op is ReduceOp.AVG:  # divided before it is rounded: the sum may be too large for 16 bits
        total = reduce(x, dims, ReduceOp.SUM, accumulator(x.dtype))
        count = prod(x.shape[k] for k in dims)
        return convert(by_element(total, "x / y", (total, count), [total.dtype] * 2), dtype or x.dtype)
    form = convert(x, dtype or x.dtype)
    shape = tuple([size for k, size in enumerate(x.shape) if k not in dims])
    return Reduce(shape, form.dtype, form, tuple(dims), op) if dims else form


def convert(x: Tensor | Form, dtype: np.dtype) -> Form:
    """Return a value in a dtype."""
    if x.dtype == dtype:
        return as_form(x)
    names = loops_of(len(x.shape))
    return Loops(x.shape, dtype, names, (Read(as_form(x), names, dtype),), "x")


def by_element(
    out: Tensor | Form, body: str, operands: Sequence[Tensor | Form | Number], dtypes: Sequence[np.dtype]
) -> Form:
    """Return a formula of elements of operands in these dtypes, which broadcast to the shape of a result."""
    names = loops_of(len(out.shape))
    reads: list[Read] = []
    for x, dtype in zip(operands, dtypes, strict=True):
        if not isinstance(x, Tensor | Form):
            reads.append(Read(x, (), dtype))
            continue
        lead = len(names) - len(x.shape)
        wide = [k for k, size in enumerate(x.shape) if size == out.shape[lead + k]]
        narrow = reshape(x, tuple([x.shape[k] for k in wide])) if len(wide) < len(x.shape) else as_form(x)
        reads.append(Read(narrow, tuple([names[lead + k] for k in wide]), dtype))
    return Loops(out.shape, out.dtype, names, tuple(reads), body)


def loops_of(rank: int) -> tuple[str, ...]:
    """Return the names of the loops over the dims of a value.

    >>> loops_of(2)
    ('d0', 'd1')
    """
    return tuple([f"d{k}" for k in range(rank)])


def reverse(x: Tensor | Form, dims: Sequence[int]) -> Form:
    """Return a value with the elements of some dims in the opposite order."""
    names = loops_of(len(x.shape))
    at = tuple([f"{x.shape[k] - 1} - {name}" if k in dims else name for k, name in enumerate(names)])
    return Loops(x.shape, x.dtype, names, (Read(as_form(x), at, x.dtype),), "x")


def position(index: str, size: int) -> str:
    """Return the formula of an index counted from the start.

    >>> position("x", 5)
    'where(x < 0, x + 5, x)'
    """
    return f"where({index} < 0, {index} + {size}, {index})"
