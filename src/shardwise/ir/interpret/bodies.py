"""Bodies: the region of a structured op, run once for all iterations, an array standing for each scalar."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from shardwise.errors import ProgramError
from shardwise.ir.elementwise.table import ELEMENTWISE, apply_elementwise
from shardwise.ir.interpret.constants import constant
from shardwise.ir.module.program import Scope, int_of, op_text, require_defined
from shardwise.ir.module.values import Value, dtype_of


def body_values(
    scope: Scope,
    block: Block,
    arguments: Sequence[Value],
    indices: Sequence[np.ndarray],
    wanted: SSAValue | None = None,
) -> list[Value]:
    """Return what a body yields for arrays of arguments, or the one value of it that is wanted.

    `indices` are those of the loops around it.
    """
    known: dict[SSAValue, Value] = dict(zip(block.args, arguments, strict=True))
    for op in block.ops:
        if wanted is not None and wanted in known:
            return [known[wanted]]
        operands = [known[x] if x in known else scope.values[x] for x in op.operands]
        if op is block.last_op:
            return operands
        known |= zip(op.results, _run(op, operands, indices), strict=True)
    raise ProgramError("the body of a structured op yields nothing.")


def _run(op: Operation, operands: list[Value], indices: Sequence[np.ndarray]) -> list[Value]:
    require_defined(op, operands)
    if op.name in ELEMENTWISE:
        return [apply_elementwise(op, operands, dtype_of(op.results[0].type))]
    if op.name in ("arith.constant", "index.constant"):
        return [constant(op)]
    if op.name == "linalg.index":
        return [indices[int_of(op, "dim")]]
    if op.name == "tensor.extract":
        return [operands[0][tuple(operands[1:])]]
    if op.name == "tensor.dim":
        return [np.int64(operands[0].shape[int(operands[1])])]
    raise ProgramError(
        f"{op_text(op)} cannot be run inside a structured op.\n"
        "  a body may hold arith and math ops, linalg.index, tensor.extract and tensor.dim"
    )
