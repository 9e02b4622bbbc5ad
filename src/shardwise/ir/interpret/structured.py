"""Structured ops: loops over tensors with a body, run as whole-array arithmetic.

A body that combines into its output with an associative op is reduced by NumPy; a sum of products of two operands is
one matrix product; any other body goes step by step along the reduced loops, and at once along all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr

from shardwise.engine.arrays import is_low, room_for
from shardwise.errors import ProgramError
from shardwise.ir.interpret.bodies import body_values
from shardwise.ir.interpret.loops import Map, View, loop_indices, loop_sizes, view
from shardwise.ir.module.program import Scope, op_text, require_defined
from shardwise.ir.module.reductions import BY_COMBINER
from shardwise.ir.module.values import Value, data_of, dtype_of, move
from shardwise.prim.arithmetic.contract import as_matmul
from shardwise.prim.kernel import MANY

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

# Ops that combine in any order, as what NumPy reduces with.
_COMBINERS: dict[str, np.ufunc] = {
    **{name: row.combine for name, row in BY_COMBINER.items()},
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
}


@dataclass(frozen=True)
class Structure:
    """A structured op: its loops, which of them are reduced, the maps of its operands, and its body."""

    op: Operation
    reduced: tuple[bool, ...]
    maps: tuple[Map, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    body: Block


def run_structure(scope: Scope, structure: Structure) -> list[Value]:
    """Return the results of a structured op."""
    op, values = structure.op, (*structure.inputs, *structure.outputs)
    sizes = loop_sizes(op, len(structure.reduced), structure.maps, [np.shape(data_of(x)) for x in values])
    if (copied := _forwarded_input(structure)) is not None:
        return [_arrange(structure, sizes, copied)]
    used = [bool(arg.uses) for arg in structure.body.args]
    require_defined(op, [x for x, is_used in zip(values, used, strict=True) if is_used])
    if not any(structure.reduced):
        return _parallel(scope, structure, sizes)
    if len(structure.outputs) == 1 and (combine := _combination(structure.body)) is not None:
        return [_combine(scope, structure, sizes, combine)]
    return _stepwise(scope, structure, sizes)


# -- no reduction ----------------------------------------------------------------------------------------


def _forwarded_input(structure: Structure) -> int | None:
    # Which input a body that does nothing else hands on.
    last = structure.body.last_op
    if last is None or structure.body.first_op is not last or any(structure.reduced) or len(last.operands) != 1:
        return None
    args = list(structure.body.args)
    spot = args.index(last.operands[0]) if last.operands[0] in args else len(args)  # type: ignore[arg-type]
    return spot if spot < len(structure.inputs) else None


def _arrange(structure: Structure, sizes: Sequence[int], spot: int) -> Value:
    op, into = structure.op, structure.maps[-1]

    def arrange(x: Any) -> Any:
        seen = view(op, x, structure.maps[spot], sizes).over(len(sizes))
        return _place_output(op, np.broadcast_to(seen, tuple(sizes)), into, np.shape(data_of(structure.outputs[0])))

    return move(arrange, structure.inputs[spot])


def _place_output(op: Operation, values: np.ndarray, indices: Map, shape: tuple[int, ...]) -> np.ndarray:
    # A value over the loops put where the map of an output says.
    places = [expr.position for expr in indices if isinstance(expr, AffineDimExpr)]
    if len(set(places)) != len(indices):
        raise ProgramError(f"{op_text(op)}: the map of an output must be made of different loops.")
    others = [k for k in range(values.ndim) if k not in places]
    if any(values.shape[k] != 1 for k in others):  # every iteration writes, the last one stays
        values = values[tuple(slice(-1, None) if k in others else slice(None) for k in range(values.ndim))]
    out = values.transpose([*places, *others]).reshape([values.shape[k] for k in places])
    return np.array(np.broadcast_to(out, shape))


def _views(structure: Structure, sizes: Sequence[int]) -> list[np.ndarray]:
    values = (*structure.inputs, *structure.outputs)
    pairs = zip(values, structure.maps, strict=True)
    return [view(structure.op, data_of(x), indices, sizes).over(len(sizes)) for x, indices in pairs]


def _parallel(scope: Scope, structure: Structure, sizes: Sequence[int]) -> list[Value]:
    yields = body_values(scope, structure.body, _views(structure, sizes), loop_indices(sizes))
    return _place_outputs(structure, [np.broadcast_to(value, tuple(sizes)) for value in yields])


def _place_outputs(structure: Structure, values: Sequence[np.ndarray]) -> list[Value]:
    rows = zip(values, structure.maps[len(structure.inputs) :], structure.outputs, strict=True)
    return [_place_output(structure.op, value, indices, np.shape(data_of(init))) for value, indices, init in rows]


# -- reductions ------------------------------------------------------------------------------------------


def _combination(body: Block) -> tuple[Operation, SSAValue] | None:
    # The op that combines a new value into the output, if that is all the output is used for; and the new value.
    accumulator, last = body.args[-1], body.last_op
    if last is None or len(last.operands) != 1 or len(list(accumulator.uses)) != 1:
        return None
    combiner = last.operands[0].owner
    if not isinstance(combiner, Operation) or combiner.name not in _COMBINERS or combiner.parent is not body:
        return None
    others = [x for x in combiner.operands if x is not accumulator]
    return (combiner, others[0]) if len(others) == 1 and len(combiner.operands) == 2 else None


def _combine(scope: Scope, structure: Structure, sizes: Sequence[int], how: tuple[Operation, SSAValue]) -> np.ndarray:
    combiner, new = how
    init = data_of(structure.outputs[0])
    if any(reduced and size == 0 for size, reduced in zip(sizes, structure.reduced, strict=True)):
        return np.array(init)  # a loop that never runs leaves the output as it was
    function = _COMBINERS[combiner.name]
    total = _contract(structure, sizes, new) if function is np.add else None
    if total is None:
        values = _body_value(scope, structure, sizes, new)
        full = np.broadcast_to(
            values, tuple(n if r else v for n, r, v in zip(sizes, structure.reduced, values.shape, strict=True))
        )
        over = tuple(k for k, reduced in enumerate(structure.reduced) if reduced)
        total = _reduce(function, full, over)
    return _finish(structure, function, total, init, sizes)


def _finish(structure: Structure, function: np.ufunc, total: np.ndarray, init: Any, sizes: Sequence[int]) -> np.ndarray:
    whole = np.broadcast_to(total, _kept_shape(structure, sizes))
    placed = _place_output(structure.op, whole, structure.maps[-1], np.shape(init))
    if init.dtype.kind == "b" and function is np.add:
        return placed ^ init
    return np.asarray(function(init, placed)).astype(init.dtype, copy=False)


def _reduce(function: np.ufunc, values: np.ndarray, over: tuple[int, ...]) -> np.ndarray:
    if values.dtype.kind == "b" and function is np.add:
        return np.bitwise_xor.reduce(values, axis=over, keepdims=True)
    # Floats of few bits are rounded when they are written, not at every step.
    adds = function in (np.add, np.multiply)
    dtype = room_for(values.dtype, values.size, most=0) if adds else values.dtype
    if function is np.add and dtype.kind == "f":  # a sum of nothing but -0.0 is one
        return np.add.reduce(values, axis=over, keepdims=True, dtype=dtype, initial=-0.0)
    return function.reduce(values, axis=over, keepdims=True, dtype=dtype)


def _body_value(scope: Scope, structure: Structure, sizes: Sequence[int], wanted: SSAValue) -> np.ndarray:
    # The value that is combined, over all loops; what comes before it in the body does not touch the output.
    if wanted in scope.values:
        return np.broadcast_to(scope.values[wanted], tuple(sizes))
    value = body_values(scope, structure.body, _views(structure, sizes), loop_indices(sizes), wanted)[0]
    return value if np.ndim(value) == len(sizes) else np.broadcast_to(value, tuple(sizes))


def _contract(structure: Structure, sizes: Sequence[int], new: SSAValue) -> np.ndarray | None:
    # A product of two operands summed over loops, as one matrix product or einsum.
    factor = new.owner
    if not isinstance(factor, Operation) or factor.name not in ("arith.mulf", "arith.muli"):
        return None
    operands = [_operand_of(structure, x) for x in factor.operands]
    if any(x is None for x in operands):
        return None
    dtype = dtype_of(new.type)
    if dtype.kind not in "fiu" and not is_low(dtype):
        return None
    if is_low(dtype):
        count = prod(n for n, reduced in zip(sizes, structure.reduced, strict=True) if reduced)
        dtype = room_for(dtype, count, MANY)
    seen: list[View] = []
    for spot in operands:
        assert spot is not None
        operand = view(structure.op, structure.inputs[spot], structure.maps[spot], sizes)
        seen.append(View(operand.array.astype(dtype, copy=False), operand.loops))
    left = [k for k, reduced in enumerate(structure.reduced) if not reduced]
    if {k for v in seen for k in v.loops} != set(range(len(sizes))):
        return None
    terms = tuple("".join(LETTERS[k] for k in v.loops) for v in seen)
    out = "".join(LETTERS[k] for k in left)
    fast = as_matmul(terms, out)
    product = (
        fast(*(v.array for v in seen)) if fast else np.einsum(f"{terms[0]},{terms[1]}->{out}", *(v.array for v in seen))
    )
    return product.reshape(_kept_shape(structure, sizes))


_WIDENING = ("arith.extf", "arith.extsi", "arith.sitofp")


def _operand_of(structure: Structure, x: SSAValue) -> int | None:
    # Which input a factor is, perhaps widened.
    args = list(structure.body.args)[: len(structure.inputs)]
    owner = x.owner
    if isinstance(owner, Operation) and owner.name in _WIDENING:
        x = owner.operands[0]
        if dtype_of(x.type).kind == "b":
            return None
    return args.index(x) if x in args else None  # type: ignore[arg-type]


def _stepwise(scope: Scope, structure: Structure, sizes: Sequence[int]) -> list[Value]:
    # Any other body: one step of the reduced loops after another, in order, all other loops at once.
    views = _views(structure, sizes)
    count = len(structure.inputs)
    state = [np.array(np.broadcast_to(v, _kept_shape(structure, sizes))) for v in views[count:]]
    grids = loop_indices(sizes)
    over = [range(n) if r else range(1) for n, r in zip(sizes, structure.reduced, strict=True)]
    for step in product(*over):
        at = tuple(slice(i, i + 1) if r else slice(None) for i, r in zip(step, structure.reduced, strict=True))
        inputs = [v[_within(at, v)] for v in views[:count]]
        yields = body_values(scope, structure.body, [*inputs, *state], [g[_within(at, g)] for g in grids])
        state = [np.array(np.broadcast_to(m, s.shape)) for m, s in zip(yields, state, strict=True)]
    return _place_outputs(structure, state)


def _kept_shape(structure: Structure, sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(1 if r else n for n, r in zip(sizes, structure.reduced, strict=True))


def _within(at: tuple[slice, ...], array: np.ndarray) -> tuple[slice, ...]:
    # What does not depend on a loop is the same at each of its steps.
    return tuple(slice(None) if array.shape[k] == 1 else part for k, part in enumerate(at))
