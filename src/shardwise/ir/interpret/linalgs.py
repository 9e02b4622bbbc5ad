"""Ops of linalg, and those of tosa that are not elementwise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Operation

from shardwise.engine.arrays import room_for
from shardwise.errors import ProgramError
from shardwise.ir.interpret.loops import dims_map
from shardwise.ir.interpret.structured import Structure, run_structure
from shardwise.ir.module.program import Scope, int_of, ints_of, op_text, require_defined
from shardwise.ir.module.values import Value, dtype_of, move
from shardwise.prim.kernel import MANY


def run_structured(scope: Scope, op: LinalgStructuredOperation, operands: list[Value]) -> list[Value]:
    """Return the results of linalg.generic, or of a named op that has maps and a body."""
    if not op.res:
        raise ProgramError(f"{op_text(op)} works on buffers; only tensors can be run.")
    maps = tuple(list(m.data.results) for m in op.get_indexing_maps())
    reduced = tuple(str(kind.data) != "parallel" for kind in op.get_iterator_types())
    count = len(op.inputs)
    inputs, outputs = tuple(operands[:count]), tuple(operands[count:])
    return run_structure(scope, Structure(op, reduced, maps, inputs, outputs, op.body.block))


def _reduce(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    count = len(operands) // 2
    over, rank = ints_of(op, "dimensions"), len(operands[0].shape)
    left = [k for k in range(rank) if k not in over]
    maps = (dims_map(range(rank)),) * count + (dims_map(left),) * count
    reduced = tuple(k in over for k in range(rank))
    inputs, outputs = tuple(operands[:count]), tuple(operands[count:])
    return run_structure(scope, Structure(op, reduced, maps, inputs, outputs, op.regions[0].block))


def _broadcast(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    added, shape = ints_of(op, "dimensions"), operands[1].shape
    return [move(lambda x: np.array(np.broadcast_to(np.expand_dims(x, added), shape)), operands[0])]


def _transpose(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    order = ints_of(op, "permutation")
    return [move(lambda x: x.transpose(order), operands[0])]


def _tosa_matmul(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    require_defined(op, operands)
    if any(np.any(x) for x in operands[2:]):
        raise ProgramError(f"{op_text(op)} has a zero point other than 0, which is not supported.")
    dtype = dtype_of(op.results[0].type)
    room = room_for(dtype, operands[0].shape[-1], MANY)
    return [np.matmul(operands[0].astype(room), operands[1].astype(room)).astype(dtype, copy=False)]


_TOSA_REDUCTIONS = {
    "tosa.reduce_all": np.all,
    "tosa.reduce_any": np.any,
    "tosa.reduce_max": np.max,
    "tosa.reduce_min": np.min,
    "tosa.reduce_product": np.prod,
    "tosa.reduce_sum": np.sum,
}


def _tosa_reduce(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    require_defined(op, operands)
    x = operands[0]
    if op.name in ("tosa.reduce_sum", "tosa.reduce_product"):
        x = x.astype(room_for(x.dtype, x.size, most=0), copy=False)
    result = _TOSA_REDUCTIONS[op.name](x, axis=int_of(op, "axis"), keepdims=True)
    return [result.astype(dtype_of(op.results[0].type), copy=False)]


# Ops without maps and a body of their own; the others are structured.
LINALGS: dict[str, Callable[[Scope, Operation, list[Value]], list[Value]]] = {
    "linalg.broadcast": _broadcast,
    "linalg.reduce": _reduce,
    "linalg.transpose": _transpose,
    "tosa.matmul": _tosa_matmul,
    **dict.fromkeys(_TOSA_REDUCTIONS, _tosa_reduce),
}
