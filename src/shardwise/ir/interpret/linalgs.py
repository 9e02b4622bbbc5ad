"""Ops of the linalg dialect, one row each, as structures, movements or products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Operation

from shardwise.errors import ProgramError
from shardwise.ir.interpret.bodies import body_values
from shardwise.ir.interpret.elementwise import BINARY, FLOATS, INTEGERS, UNARY
from shardwise.ir.interpret.loops import dims_map, loop_indices, loop_sizes, view
from shardwise.ir.interpret.program import Scope, integer, ints, op_text, property_of, require_defined, symbol
from shardwise.ir.interpret.structured import Structure, run_structure
from shardwise.ir.interpret.values import Value, dtype_of, moved
from shardwise.prim.contract import as_matmul


def structured(scope: Scope, op: LinalgStructuredOperation, operands: list[Value]) -> list[Value]:
    """Return the results of linalg.generic, or of a named op that has maps and a body."""
    maps = tuple(list(m.data.results) for m in op.get_indexing_maps())
    reduced = tuple(str(kind.data) != "parallel" for kind in op.get_iterator_types())
    count = len(op.inputs)
    inputs, outputs = tuple(operands[:count]), tuple(operands[count:])
    return run_structure(scope, Structure(op, reduced, maps, inputs, outputs, op.body.block))


def _reduce(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    count = len(operands) // 2
    over, rank = ints(property_of(op, "dimensions")), len(operands[0].shape)
    kept = [k for k in range(rank) if k not in over]
    maps = (dims_map(range(rank)),) * count + (dims_map(kept),) * count
    reduced = tuple(k in over for k in range(rank))
    inputs, outputs = tuple(operands[:count]), tuple(operands[count:])
    return run_structure(scope, Structure(op, reduced, maps, inputs, outputs, op.regions[0].block))


def _map(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    *inputs, init = operands
    rank, body = len(init.shape), op.regions[0].block
    if len(body.args) == len(inputs):  # older text: the body does not see the output
        made = body_values(scope, body, inputs, loop_indices(init.shape))[0]
        return [np.array(np.broadcast_to(made, init.shape))]
    maps = (dims_map(range(rank)),) * len(operands)
    return run_structure(scope, Structure(op, (False,) * rank, maps, tuple(inputs), (init,), body))


def _broadcast(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    added, shape = ints(property_of(op, "dimensions")), operands[1].shape
    return [moved(lambda x: np.array(np.broadcast_to(np.expand_dims(x, added), shape)), operands[0])]


def _transpose(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    order = ints(property_of(op, "permutation"))
    return [moved(lambda x: x.transpose(order), operands[0])]


# -- products --------------------------------------------------------------------------------------------

# Named products, as sums over the letters that are not in the result.
PRODUCTS = {
    "linalg.dot": "i,i->",
    "linalg.matvec": "ij,j->i",
    "linalg.vecmat": "i,ij->j",
    "linalg.matmul_transpose_a": "ji,jk->ik",
    "linalg.matmul_transpose_b": "ij,kj->ik",
    "linalg.batch_matmul": "bij,bjk->bik",
    "linalg.batch_matvec": "bij,bj->bi",
    "linalg.batch_vecmat": "bi,bij->bj",
    "linalg.batch_matmul_transpose_a": "bji,bjk->bik",
    "linalg.batch_matmul_transpose_b": "bij,bkj->bik",
}


def _product(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    a, b, init = operands
    require_defined(op, operands)
    left, _, out = PRODUCTS[op.name].partition("->")
    terms = tuple(left.split(","))
    made = (as_matmul(terms, out) or _einsum(terms, out))(a.astype(init.dtype), b.astype(init.dtype))
    return [np.asarray(init + made).astype(init.dtype, copy=False)]


def _einsum(terms: tuple[str, ...], out: str) -> Callable[..., Any]:
    return lambda a, b: np.einsum(f"{terms[0]},{terms[1]}->{out}", a, b)


def tosa_matmul(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    """Return the batched matrix product of tosa, whose zero points must be zero."""
    require_defined(op, operands)
    if any(np.any(x) for x in operands[2:]):
        raise ProgramError(f"{op_text(op)} has a zero point other than 0, which is not supported.")
    dtype = dtype_of(op.results[0].type)
    return [np.matmul(operands[0].astype(dtype), operands[1].astype(dtype))]


# -- elementwise by name ---------------------------------------------------------------------------------

_KINDS: dict[str, Callable[..., Any]] = {
    **{name: UNARY[name] for name in ("exp", "log", "ceil", "floor", "round", "sqrt", "rsqrt", "tanh", "erf")},
    "abs": np.abs,
    "negf": FLOATS["negf"],
    "reciprocal": lambda x: 1 / x,
    "square": lambda x: x * x,
    "add": INTEGERS["add"],
    "sub": INTEGERS["sub"],
    "mul": INTEGERS["mul"],
    "div": lambda a, b: INTEGERS["divs"](a, b) if a.dtype.kind == "i" else a / b,
    "div_unsigned": INTEGERS["divu"],
    "max": np.maximum,
    "min": np.minimum,
    "max_signed": np.maximum,
    "min_signed": np.minimum,
    "max_unsigned": INTEGERS["maxu"],
    "min_unsigned": INTEGERS["minu"],
    "powf": BINARY["powf"],
    "select": np.where,
}


def _by_kind(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    *inputs, init = operands
    require_defined(op, inputs)
    name = symbol(property_of(op, "kind")) if op.name == "linalg.elementwise" else op.name.removeprefix("linalg.")
    given = property_of(op, "indexing_maps")
    if given is not None:  # operands may be transposed or broadcast
        maps = [list(m.data.results) for m in given.data]
        count = given.data[0].data.num_dims
        sizes = loop_sizes(op, count, maps, [x.shape for x in operands])
        inputs = [view(op, x, m, sizes).over(count) for x, m in zip(inputs, maps, strict=False)]
    made = np.broadcast_to(_KINDS[name](*inputs), init.shape)
    return [np.array(made).astype(dtype_of(op.results[0].type), copy=False)]


def _softmax(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    require_defined(op, operands[:1])
    x, dim = operands[0], integer(property_of(op, "dimension"))
    powers = np.exp(x - x.max(axis=dim, keepdims=True))
    return [(powers / powers.sum(axis=dim, keepdims=True)).astype(x.dtype, copy=False)]


def _fill(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    shape = operands[1].shape
    return [moved(lambda x: np.full(shape, x), operands[0])]


LINALGS: dict[str, Callable[[Scope, Operation, list[Value]], list[Value]]] = {
    "linalg.broadcast": _broadcast,
    "linalg.copy": lambda scope, op, operands: [operands[0]],
    "linalg.elementwise": _by_kind,
    "linalg.fill": _fill,
    "linalg.map": _map,
    "linalg.reduce": _reduce,
    "linalg.softmax": _softmax,
    "linalg.transpose": _transpose,
    "tosa.matmul": tosa_matmul,
    **dict.fromkeys(PRODUCTS, _product),
    **{f"linalg.{name}": _by_kind for name in _KINDS if not name.endswith("signed") or name == "div_unsigned"},
}
