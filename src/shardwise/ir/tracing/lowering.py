"""Lowering: each primitive of a recording as ops on tensors, from the form that its row gives."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import linalg
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineExpr

from shardwise.engine.arrays import identity
from shardwise.errors import ProgramError
from shardwise.ir.module.reductions import BY_OP
from shardwise.ir.tracing.emitter import Emitter, element_of
from shardwise.ir.tracing.formulas import Scalar, Scope, compute, convert, is_single, op_of, parse
from shardwise.layout.placement import ReduceOp
from shardwise.prim import forms
from shardwise.prim.bind import Node
from shardwise.prim.forms import Form, Loops
from shardwise.prim.primitive import WRITTEN
from shardwise.prim.tensor import Tensor


def lower(e: Emitter, node: Node, operands: Sequence[Any]) -> SSAValue:
    """Return the value of one primitive, given those of its operands; numbers stand for themselves."""
    assert node.row is not None
    if node.row.lower is None:
        known = ", ".join(sorted([*WRITTEN, "relayout"]))
        raise ProgramError(
            f"{node.row.name} cannot be written as ops on whole tensors, so it cannot be traced.\n  rows: {known}"
        )
    assert node.out is not None
    form = node.row.form(node.out, *node.operands, **node.params)
    pairs = zip(node.operands, operands, strict=True)
    return _Writer(e, {id(x): value for x, value in pairs if isinstance(x, Tensor)}).write(form)


class _Writer:
    """Writes the forms of one primitive, each once."""

    def __init__(self, e: Emitter, operands: dict[int, SSAValue]) -> None:
        """Write to an emitter, given the values of operands by the id of their tensors."""
        self.e, self.operands = e, operands
        self.values: dict[int, SSAValue] = {}

    def write(self, form: Form) -> SSAValue:
        """Return the value of a form."""
        if id(form) not in self.values:
            self.values[id(form)] = self._write(form)
        return self.values[id(form)]

    def _write(self, form: Form) -> SSAValue:
        e = self.e
        match form:
            case forms.Operand(tensor=x):
                return self.operands[id(x)]
            case forms.Full(shape=shape, dtype=dtype, number=number):
                return e.full(shape, number, dtype)
            case forms.Reshape(shape=shape, form=x):
                return e.reshape(self.write(x), shape)
            case forms.Broadcast(shape=shape, form=x):
                return e.broadcast(self.write(x), shape)
            case forms.Transpose(form=x, order=order):
                return e.transpose(self.write(x), order)
            case forms.Slice(shape=shape, form=x, starts=starts, steps=steps):
                return e.slice(self.write(x), starts, shape, steps)
            case forms.Place(form=x, into=into, starts=starts, steps=steps):
                return e.place(self.write(x), self.write(into), starts, x.shape, steps)
            case forms.Concat(parts=parts, dim=dim):
                return e.concat([self.write(part) for part in parts], dim)
            case forms.Reduce(shape=shape, dtype=dtype, form=x, dims=dims, op=op):
                neutral, combine = combination(op, dtype)
                return e.reduce(self.write(x), dims, e.full(shape, neutral, dtype), combine)
            case Loops():
                return self._loops(form)
            case _:
                raise AssertionError(f"{type(form).__name__} is not a form")

    def _loops(self, form: Loops) -> SSAValue:
        if _is_one_op(form):
            reads = [self._tensor(form, read) for read in form.reads]
            name = _name_of_op(form.body)
            return self.e.add(op_of(name, form.dtype)(*reads))
        summed = len(form.names) > len(form.shape)
        inputs = [(read, self.write(read.form)) for read in form.reads if isinstance(read.form, Form)]
        values = [value for _, value in inputs]
        e, element = self.e, element_of(form.dtype)
        init = e.full(form.shape, form.start, form.dtype) if summed else e.empty(form.shape, element)
        if summed and _is_matmul(form):
            return e.add(linalg.ops.MatmulOp(values, [init], [init.type]))
        table = None if form.table is None else Scalar(self.write(form.table), form.table.dtype)

        def body(inner: Emitter, args: Sequence[SSAValue]) -> SSAValue:
            *elements, total = args
            rest = iter(elements)
            scalars: dict[str, Scalar] = {"total": Scalar(total, form.dtype)}
            for name, (x, _, dtype) in zip("xyzuvw", form.reads, strict=False):
                value = convert(inner, next(rest), x.dtype, dtype) if isinstance(x, Form) else inner.scalar(x, dtype)
                scalars[name] = Scalar(value, dtype)
            out = compute(inner, form.body, Scope(scalars, form.names, table), form.dtype)
            return convert(inner, out.value, out.dtype, form.dtype)

        maps = [[_index(text, form.names) for text in read.at] for read, _ in inputs]
        return e.generic(values, maps, init, range(len(form.shape)), len(form.names), body)

    def _tensor(self, form: Form, read: forms.Read) -> SSAValue:
        if isinstance(read.form, Form):
            return self.write(read.form)
        return self.e.full(form.shape, read.form, read.dtype)


def _is_one_op(form: Loops) -> bool:
    # Whether tensors that are alike are the operands of one op that is known of tensors too.
    if not is_single(form.body):
        return False
    alike = [r.form.shape == form.shape and r.at == form.names for r in form.reads if isinstance(r.form, Form)]
    dtypes = {r.dtype for r in form.reads} | {r.form.dtype for r in form.reads if isinstance(r.form, Form)}
    return all(alike) and dtypes == {form.dtype}


def _name_of_op(body: str) -> str:
    tree: Any = parse(body)
    return type(tree.op).__name__ if isinstance(tree, ast.BinOp) else tree.func.id


def _is_matmul(form: Loops) -> bool:
    if form.body != "total + x * y" or len(form.shape) != 2 or form.dtype.kind == "b":
        return False
    (m, n), k = form.names[:2], form.names[2:]
    reads = [(r.at, r.dtype) for r in form.reads if isinstance(r.form, Form) and r.form.dtype == form.dtype]
    return len(k) == 1 and reads == [((m, *k), form.dtype), ((*k, n), form.dtype)]


def _index(text: str, names: tuple[str, ...]) -> AffineExpr:
    def expression(tree: ast.expr) -> AffineExpr:
        match tree:
            case ast.Name(id=name):
                return AffineExpr.dimension(names.index(name))
            case ast.Constant(value=int() as number):
                return AffineExpr.constant(number)
            case ast.BinOp(left=left, op=op, right=right):
                return OPERATORS[type(op)](expression(left), expression(right))
            case _:
                raise AssertionError(f"an index has no {ast.unparse(tree)}")

    return expression(parse(text))


OPERATORS: dict[type[ast.operator], Callable[[AffineExpr, AffineExpr], AffineExpr]] = {
    ast.Add: lambda x, y: x + y,
    ast.Sub: lambda x, y: x + y * -1,
    ast.Mult: lambda x, y: x * y,
}


# Sums and the largest of what is true or false are or, products and the smallest are and.
OF_TRUTHS = {
    ReduceOp.SUM: ReduceOp.BOR,
    ReduceOp.MAX: ReduceOp.BOR,
    ReduceOp.PROD: ReduceOp.BAND,
    ReduceOp.MIN: ReduceOp.BAND,
}


def combination(op: ReduceOp, dtype: np.dtype) -> tuple[Any, Any]:
    """Return the number that changes nothing in a reduction, and the op that combines two.

    >>> combination(ReduceOp.MAX, np.dtype(bool))[0], combination(ReduceOp.BAND, np.dtype("int8"))[0]
    (0, -1)
    """
    row = BY_OP[OF_TRUTHS.get(op, op) if dtype.kind == "b" else op]
    neutral = 0 if op is ReduceOp.SUM else identity(row.op, dtype)
    return neutral, row.floats if dtype.kind not in "iub" else row.ints
