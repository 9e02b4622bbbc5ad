"""Communication ops, one row each: a generator that yields what the device waits for and is sent the result."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
from xdsl.ir import Operation

from shardwise.engine.arrays import accumulator
from shardwise.errors import ProgramError
from shardwise.ir.interpret.halos import fill_halos
from shardwise.ir.interpret.positions import own_group, take_piece
from shardwise.ir.interpret.request import Collective, Receiving, Request, Sending
from shardwise.ir.module.groups import Group
from shardwise.ir.module.program import (
    Scope,
    fill_open,
    int_of,
    integer,
    ints_of,
    op_text,
    property_of,
    require_defined,
    symbol,
)
from shardwise.ir.module.reductions import BY_WORD
from shardwise.ir.module.values import Value, dtype_of, fits, move, type_text, undefined_tensor
from shardwise.ir.shard.attributes import split_dims

Run = Generator[Request, Value, list[Value]]
Row = Callable[[Scope, Operation, list[Value]], Run]
# What makes the results of a group of its values, in the order of the group.
Finish = Callable[[Sequence[Value]], Sequence[Value]]
Prepared = tuple[tuple[Any, ...], Finish]
# Of an op, a group and the values that name a root: what all members have to agree on, and how they finish.
Prepare = Callable[[Operation, Group, Sequence[Value]], Prepared]


def _await_group(
    scope: Scope, op: Operation, group: Group, value: Value, details: tuple[Any, ...], finish: Finish
) -> Run:
    assert scope.device is not None
    named = (symbol(property_of(op, "grid")), ints_of(op, "grid_axes"), *details)
    result = yield Collective(op, scope.device, group.devices, value, named, finish)
    return [_check_result(op, result)]


def _collective(prepare: Prepare) -> Row:
    # A row for an op of which the whole group takes part at once.
    def run(scope: Scope, op: Operation, operands: list[Value]) -> Run:
        group = own_group(scope, op, ints_of(op, "grid_axes"))
        details, finish = prepare(op, group, operands[1:])
        return (yield from _await_group(scope, op, group, operands[0], details, finish))

    return run


def _check_result(op: Operation, result: Value) -> Value:
    if not fits(result, op.results[0].type):
        raise ProgramError(f"{op_text(op)} makes {type_text(result)}, but its type is {op.results[0].type}.")
    return result


def _concatenate(values: Sequence[Value], dim: int) -> Value:
    return move(lambda parts: np.concatenate(parts, axis=dim), list(values))


def _pieces(x: Value, dim: int, parts: int) -> list[Value]:
    return [take_piece(x, dim, part, parts) for part in range(parts)]


# -- the whole group -------------------------------------------------------------------------------------


def _all_gather(op: Operation, group: Group, dynamic: Sequence[Value]) -> Prepared:
    dim = int_of(op, "gather_axis")
    return (dim,), lambda values: [_concatenate(values, dim)] * len(values)


def _all_reduce(op: Operation, group: Group, dynamic: Sequence[Value]) -> Prepared:
    kind = _kind(op)
    return (kind,), lambda values: [_combine(op, values, kind)] * len(values)


def _reduce_scatter(op: Operation, group: Group, dynamic: Sequence[Value]) -> Prepared:
    kind, dim = _kind(op), _scatter_dim(op)
    return (kind, dim), lambda values: _pieces(_combine(op, values, kind), dim, len(values))


def _all_to_all(op: Operation, group: Group, dynamic: Sequence[Value]) -> Prepared:
    split, concat = int_of(op, "split_axis"), int_of(op, "concat_axis")

    def finish(values: Sequence[Value]) -> Sequence[Value]:
        rows = [_pieces(x, split, len(values)) for x in values]
        return [_concatenate(parts, concat) for parts in zip(*rows, strict=True)]

    return (split, concat), finish


def _shift(op: Operation, group: Group, dynamic: Sequence[Value]) -> Prepared:
    axes, axis, offset = ints_of(op, "grid_axes"), int_of(op, "shift_axis"), int_of(op, "offset")
    if axis not in axes:
        raise ProgramError(f"{op_text(op)} shifts along axis {axis}, which is not among its grid_axes {list(axes)}.")
    spot, rotate = axes.index(axis), property_of(op, "rotate") is not None
    size = group.sizes[spot]
    step = group.at([int(k == spot) for k in range(len(axes))])

    def finish(values: Sequence[Value]) -> Sequence[Value]:
        results: list[Value] = []
        for i, own in enumerate(values):
            at = i // step % size
            source = (at - offset) % size if rotate else at - offset
            if 0 <= source < size:
                results.append(values[i + (source - at) * step])
            else:
                results.append(_undefined_value(op, own, "no device shifts to it"))
        return results

    return (axis, offset, rotate), finish


def _undefined_value(op: Operation, like: Value, why: str) -> Value:
    return undefined_tensor(like.shape, dtype_of(op.results[0].type), f"{op_text(op)} ({why})")


def _update_halo(scope: Scope, op: Operation, operands: list[Value]) -> Run:
    value, halos = operands[0], list(fill_open(ints_of(op, "static_halo_sizes"), operands[1:]))
    # One dim after the other, so that corners come from the neighbours of neighbours.
    for dim, axes in enumerate(split_dims(property_of(op, "split_axes"))):
        if not axes or not halos:
            continue
        low, high = halos.pop(0), halos.pop(0)
        finish = partial(fill_halos, op, dim=dim, low=low, high=high)
        group = own_group(scope, op, axes)
        (value,) = yield from _await_group(scope, op, group, value, (dim, axes, low, high), finish)
    return [value]


# -- reductions ------------------------------------------------------------------------------------------


def _kind(op: Operation) -> str:
    attribute = property_of(op, "reduction")
    kind = "sum" if attribute is None else str(getattr(attribute.data, "value", attribute.data))
    floats = dtype_of(op.results[0].type).kind not in "iub"
    if kind not in BY_WORD:
        raise ProgramError(f"{op_text(op)}: the reduction {kind} does not say what to do; {_words(floats)}.")
    if kind.startswith("bitwise") if floats else kind == "average":
        raise ProgramError(f"{op_text(op)}: {kind} is not defined for {op.results[0].type}; {_words(floats)}.")
    return kind


def _words(floats: bool) -> str:
    names = [n for n in BY_WORD if not (n.startswith("bitwise") if floats else n == "average")]
    return f"use {', '.join(names[:-1])} or {names[-1]}"


def _combine(op: Operation, values: Sequence[Value], kind: str) -> Value:
    require_defined(op, values)
    for x in values:
        if x.shape != values[0].shape:
            raise ProgramError(f"{op_text(op)} reduces {type_text(values[0])} with {type_text(x)}.")
    dtype = dtype_of(op.results[0].type)
    # What is added up has the type of the sum; one of few bits is rounded to once.
    terms, wide = [np.asarray(x).astype(dtype) for x in values], accumulator(dtype)
    if wide != dtype:
        terms = [x.astype(wide) for x in terms]
    combine = np.bitwise_xor if kind == "sum" and dtype.kind == "b" else BY_WORD[kind].combine
    total = reduce(combine, terms)
    total = total / wide.type(len(terms)) if kind == "average" else total
    return total.astype(dtype, copy=False)


# -- from or to one device -------------------------------------------------------------------------------


def _scatter_dim(op: Operation) -> int:
    attribute = property_of(op, "scatter_axis")
    return integer(property_of(op, "scatter_dim") if attribute is None else attribute)


def _coordinates(op: Operation, name: str, group: Group, dynamic: Sequence[Value]) -> tuple[int, ...]:
    index = fill_open(ints_of(op, name), dynamic)
    if len(index) != len(group.sizes) or any(i >= n for i, n in zip(index, group.sizes, strict=True)):
        raise ProgramError(
            f"{op_text(op)}: {name} {list(index)} is not in its groups, whose axes have sizes {list(group.sizes)}."
        )
    return index


def _root(op: Operation, group: Group, dynamic: Sequence[Value]) -> int:
    index = _coordinates(op, "root", group, dynamic)
    if min(index, default=0) < 0:
        raise ProgramError(f"{op_text(op)}: root {list(index)} is not in its groups.")
    return group.at(index)


def _on_root(op: Operation, result: Value, root: int, count: int) -> list[Value]:
    # What is undefined off the root.
    return [result if i == root else _undefined_value(op, result, "only the root has the result") for i in range(count)]


def _broadcast(op: Operation, group: Group, dynamic: Sequence[Value]) -> Prepared:
    root = _root(op, group, dynamic)
    return (root,), lambda values: [values[root]] * len(values)


def _gather(op: Operation, group: Group, dynamic: Sequence[Value]) -> Prepared:
    root, dim = _root(op, group, dynamic), int_of(op, "gather_axis")
    return (root, dim), lambda values: _on_root(op, _concatenate(values, dim), root, len(values))


def _reduce(op: Operation, group: Group, dynamic: Sequence[Value]) -> Prepared:
    root, kind = _root(op, group, dynamic), _kind(op)
    return (root, kind), lambda values: _on_root(op, _combine(op, values, kind), root, len(values))


def _scatter(op: Operation, group: Group, dynamic: Sequence[Value]) -> Prepared:
    root, dim = _root(op, group, dynamic), _scatter_dim(op)
    return (root, dim), lambda values: _pieces(values[root], dim, len(values))


def _send(scope: Scope, op: Operation, operands: list[Value]) -> Run:
    group = own_group(scope, op, ints_of(op, "grid_axes"))
    index = _coordinates(op, "destination", group, operands[1:])
    assert scope.device is not None
    if min(index, default=0) >= 0:  # below zero there is no neighbour, and nothing is sent
        yield Sending(op, scope.device, group.devices[group.at(index)], operands[0])
    return [operands[0]]


def _recv(scope: Scope, op: Operation, operands: list[Value]) -> Run:
    group = own_group(scope, op, ints_of(op, "grid_axes"))
    assert scope.device is not None
    nothing = _undefined_value(op, operands[0], "nothing was sent to it")
    if property_of(op, "source") is None and len(operands) == 1:
        others = tuple(d for d in group.devices if d != scope.device)
        return [_check_result(op, (yield Receiving(op, scope.device, others, nothing, anyone=True)))]
    index = _coordinates(op, "source", group, operands[1:])
    if min(index, default=0) < 0:
        return [nothing]
    source = group.devices[group.at(index)]
    return [_check_result(op, (yield Receiving(op, scope.device, (source,), nothing)))]


COMMUNICATION: dict[str, Row] = {
    "shard.all_gather": _collective(_all_gather),
    "shard.all_reduce": _collective(_all_reduce),
    "shard.all_to_all": _collective(_all_to_all),
    "shard.broadcast": _collective(_broadcast),
    "shard.gather": _collective(_gather),
    "shard.recv": _recv,
    "shard.reduce": _collective(_reduce),
    "shard.reduce_scatter": _collective(_reduce_scatter),
    "shard.scatter": _collective(_scatter),
    "shard.send": _send,
    "shard.shift": _collective(_shift),
    "shard.update_halo": _update_halo,
}
