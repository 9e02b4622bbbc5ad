"""Blocks: ops one after another, as a generator that stops where a device has to wait for others."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import Block, Operation

from shardwise.errors import ProgramError
from shardwise.ir.elementwise.table import ELEMENTWISE, apply_elementwise
from shardwise.ir.interpret.communication import COMMUNICATION
from shardwise.ir.interpret.constants import constant
from shardwise.ir.interpret.linalgs import LINALGS, run_structured
from shardwise.ir.interpret.positions import POSITIONS
from shardwise.ir.interpret.request import Request
from shardwise.ir.interpret.tensors import TENSORS
from shardwise.ir.module.program import Scope, op_text, property_of, require_defined, symbol
from shardwise.ir.module.values import Value, dtype_of

Run = Generator[Request, Value, list[Value]]

DEEPEST = 100  # calls within calls


def run_block(scope: Scope, block: Block, arguments: Sequence[Value]) -> Run:
    """Run the ops of a block; return what its last op hands on."""
    values = scope.values
    values.update(zip(block.args, arguments, strict=True))
    for op in block.ops:
        try:
            operands = [values[x] for x in op.operands]
        except KeyError:
            raise ProgramError(f"{op_text(op)} uses a value before it is made.") from None
        if op is block.last_op and op.name in TERMINATORS:
            return operands
        if op.name in COMMUNICATION:
            results = yield from COMMUNICATION[op.name](scope, op, operands)
        elif op.name in CONTROL:
            results = yield from CONTROL[op.name](scope, op, operands)
        else:
            results = _run_op(scope, op, operands)
        values.update(zip(op.results, results, strict=True))
    return []


def _run_op(scope: Scope, op: Operation, operands: list[Value]) -> Sequence[Value]:
    try:
        return _compute(scope, op, operands)
    except (ValueError, IndexError) as error:  # NumPy's, where sizes known only now do not fit together
        raise ProgramError(f"{op_text(op)}: {error}") from None


def _compute(scope: Scope, op: Operation, operands: list[Value]) -> Sequence[Value]:
    name = op.name
    if name in ELEMENTWISE:
        require_defined(op, operands)
        shapes = {x.shape for x in operands if x.shape}
        if len(shapes) > 1 and not name.startswith("tosa."):  # only tosa broadcasts
            raise ProgramError(f"{op_text(op)} combines shapes {', '.join(str(list(s)) for s in sorted(shapes))}.")
        return [apply_elementwise(op, operands, dtype_of(op.results[0].type))]
    if name in CONSTANTS:
        return [constant(op)]
    if name in ROWS:
        return ROWS[name](scope, op, operands)
    if isinstance(op, LinalgStructuredOperation):
        return run_structured(scope, op, operands)
    if name == "index.sizeof":
        return [np.int64(64)]
    raise ProgramError(
        f"{op_text(op)} cannot be run: it is not among the ops that the interpreter knows.\n"
        "  it knows func, arith, math, index, tensor, linalg, scf.if, scf.for, elementwise tosa and shard"
    )


ROWS = {**TENSORS, **POSITIONS, **LINALGS}
CONSTANTS = ("arith.constant", "index.constant", "index.bool.constant", "tosa.const")
TERMINATORS = ("func.return", "scf.yield", "linalg.yield", "tensor.yield", "tosa.yield")


# -- control ---------------------------------------------------------------------------------------------


def _call(scope: Scope, op: Operation, operands: list[Value]) -> Run:
    name = symbol(property_of(op, "callee"))
    function = scope.program.functions.get(name)
    if function is None or not function.body.blocks:
        raise ProgramError(f"{op_text(op)} calls @{name}, which has no body in this module.")
    if scope.depth >= DEEPEST:
        raise ProgramError(f"{op_text(op)} is a call within {DEEPEST} calls; the functions seem to call one another.")
    inner = replace(scope, depth=scope.depth + 1, values={})
    return (yield from run_block(inner, scope.program.body(function), operands))


def _if(scope: Scope, op: Operation, operands: list[Value]) -> Run:
    condition = _number(op, operands[0])
    region = op.regions[0 if condition else 1]
    return (yield from run_block(scope, region.block, [])) if region.blocks else []


def _for(scope: Scope, op: Operation, operands: list[Value]) -> Run:
    start, stop, step = (_number(op, x) for x in operands[:3])
    if step <= 0:
        raise ProgramError(f"{op_text(op)} has the step {step}; it must be positive.")
    state, dtype = operands[3:], operands[0].dtype
    for index in range(start, stop, step):
        state = yield from run_block(scope, op.regions[0].block, [np.array(index, dtype)[()], *state])
    return state


def _number(op: Operation, x: Value) -> int:
    require_defined(op, [x])
    return int(x)


CONTROL: dict[str, Callable[[Scope, Operation, list[Value]], Generator[Any, Any, list[Value]]]] = {
    "func.call": _call,
    "scf.if": _if,
    "scf.for": _for,
    "tosa.cond_if": _if,
}
