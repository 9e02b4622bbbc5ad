"""Ops of the tensor dialect, one row each; most only move elements, whether defined or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Operation

from shardwise.errors import ProgramError
from shardwise.ir.interpret.bodies import body_values
from shardwise.ir.interpret.loops import loop_indices
from shardwise.ir.module.program import (
    Scope,
    fill_lists,
    fill_open,
    int_of,
    ints,
    ints_of,
    kept_dims,
    op_text,
    property_of,
)
from shardwise.ir.module.values import (
    DYNAMIC,
    Poisoned,
    Value,
    dtype_of,
    fits,
    move,
    sizes_of,
    type_text,
    undefined_tensor,
)

Row = Callable[[Scope, Operation, list[Value]], Sequence[Value]]


def _result_shape(op: Operation, dynamic: Sequence[Any]) -> tuple[int, ...]:
    shape = fill_open(sizes_of(op.results[0].type), dynamic)
    if any(n < 0 for n in shape):
        raise ProgramError(f"{op_text(op)} has a size below zero: {list(shape)}.")
    return shape


def _empty(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    return [undefined_tensor(_result_shape(op, operands), dtype_of(op.results[0].type), op_text(op))]


def _splat(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    shape = _result_shape(op, operands[1:])
    return [move(lambda x: np.full(shape, x), operands[0])]


def _dim(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    source, dim = operands
    if isinstance(dim, Poisoned) or not 0 <= dim < len(source.shape):
        raise ProgramError(f"{op_text(op)} asks for dim {dim} of a tensor with {len(source.shape)} dims.")
    return [np.int64(source.shape[int(dim)])]


def _cast(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    if not fits(operands[0], op.results[0].type):
        raise ProgramError(f"{op_text(op)} casts {type_text(operands[0])} to {op.results[0].type}, which it is not.")
    return operands


# -- slices ----------------------------------------------------------------------------------------------


def _region(op: Operation, dynamic: list[Value], shape: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[int, ...]]:
    # The slices that offsets, sizes and strides describe, and the sizes.
    offsets, sizes, strides = fill_lists(op, ("static_offsets", "static_sizes", "static_strides"), dynamic)
    for k, (start, size, step) in enumerate(zip(offsets, sizes, strides, strict=True)):
        last = start + max(size - 1, 0) * step
        if size < 0 or start < 0 or last < 0 or max(start, last) + (size > 0) > shape[k]:
            raise ProgramError(
                f"{op_text(op)} reaches outside dim {k} of {list(shape)}: offset {start}, size {size}, stride {step}."
            )
    slices = [
        slice(start, start + size * step if step > 0 else None, step) if size else slice(0, 0)
        for start, size, step in zip(offsets, sizes, strides, strict=True)
    ]
    return tuple(slices), sizes


def _extract_slice(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    source = operands[0]
    slices, sizes = _region(op, operands[1:], source.shape)
    shape = [sizes[k] for k in kept_dims(sizes, sizes_of(op.results[0].type))]
    return [move(lambda x: x[slices].reshape(shape), source)]


def _insert_slice(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    source, dest = operands[:2]
    slices, sizes = _region(op, operands[2:], dest.shape)
    if np.prod(source.shape, dtype=int) != np.prod(sizes, dtype=int):
        raise ProgramError(f"{op_text(op)} puts {type_text(source)} into a slice of sizes {list(sizes)}.")
    return [_put(source, dest, slices, sizes)]


def _extract(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    _check_inside(op, operands[1:], operands[0].shape)
    return [move(lambda x: x[tuple(operands[1:])], operands[0])]


def _insert(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    _check_inside(op, operands[2:], operands[1].shape)
    return [_put(operands[0], operands[1], tuple(operands[2:]), ())]


def _put(x: Value, into: Value, where: tuple[Any, ...], shape: Sequence[int]) -> Value:
    # A copy of a tensor in which some elements are those of another, seen in a shape.
    def put(small: Any, large: Any) -> Any:
        out = np.array(large)
        out[where] = small.reshape(shape)
        return out

    return move(put, x, into)


def _check_inside(op: Operation, indices: list[Value], shape: tuple[int, ...]) -> None:
    for k, (index, size) in enumerate(zip(indices, shape, strict=True)):
        if np.any(index < 0) or np.any(index >= size):
            raise ProgramError(f"{op_text(op)} reads or writes element {index} of dim {k} of {list(shape)}.")


# -- shapes ----------------------------------------------------------------------------------------------


def _collapse(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    source = operands[0]
    groups = [ints(group) for group in property_of(op, "reassociation").data]
    shape = tuple(int(np.prod([source.shape[k] for k in group], dtype=int)) for group in groups)
    return [move(lambda x: x.reshape(shape), source)]


def _expand(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    static = ints_of(op, "static_output_shape")
    if static:
        shape = fill_open(static, operands[1:])
    else:  # older text leaves the open sizes to be worked out, one per group
        sizes, source = sizes_of(op.results[0].type), operands[0].shape
        groups = [ints(group) for group in property_of(op, "reassociation").data]
        shape = tuple(
            size if size != DYNAMIC else source[g] // int(np.prod([sizes[j] for j in group if j != k], dtype=int))
            for g, group in enumerate(groups)
            for k, size in ((j, sizes[j]) for j in group)
        )
    return _view_as(op, operands[0], shape)


def _reshape(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    return _view_as(op, operands[0], tuple(int(n) for n in operands[1]))


def _view_as(op: Operation, x: Value, shape: tuple[int, ...]) -> list[Value]:
    if np.prod(shape, dtype=int) != np.prod(x.shape, dtype=int):
        raise ProgramError(f"{op_text(op)} sees {type_text(x)} as shape {list(shape)}, which has other elements.")
    return [move(lambda a: a.reshape(shape), x)]


def _concat(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    dim = int_of(op, "axis" if op.name == "tosa.concat" else "dim")
    return [move(lambda parts: np.concatenate(parts, axis=dim), list(operands))]


def _from_elements(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    shape = sizes_of(op.results[0].type)
    return [move(lambda parts: np.array(parts).reshape(shape), list(operands))]


def _pad(scope: Scope, op: Operation, operands: list[Value]) -> list[Value]:
    source = operands[0]
    low, high = fill_lists(op, ("static_low", "static_high"), operands[1:])
    if min((*low, *high), default=0) < 0:
        raise ProgramError(f"{op_text(op)} pads by sizes below zero: low {list(low)}, high {list(high)}.")
    shape = tuple(a + n + b for a, n, b in zip(low, source.shape, high, strict=True))
    (filler,) = body_values(scope, op.regions[0].block, loop_indices(shape), [])
    inside = tuple(slice(a, a + n) for a, n in zip(low, source.shape, strict=True))
    return [_put(source, move(lambda x: np.broadcast_to(x, shape), filler), inside, source.shape)]


# By op name; undefined elements may go in and come out.
TENSORS: dict[str, Row] = {
    "tensor.cast": _cast,
    "tensor.collapse_shape": _collapse,
    "tensor.concat": _concat,
    "tensor.dim": _dim,
    "tensor.empty": _empty,
    "tensor.expand_shape": _expand,
    "tensor.extract": _extract,
    "tensor.extract_slice": _extract_slice,
    "tensor.from_elements": _from_elements,
    "tensor.insert": _insert,
    "tensor.insert_slice": _insert_slice,
    "tensor.pad": _pad,
    "tensor.reshape": _reshape,
    "tensor.splat": _splat,
    "tosa.concat": _concat,
}
