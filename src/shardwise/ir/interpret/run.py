"""Running: a module on global values, or on every device of its grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from shardwise.errors import ArgumentError
from shardwise.ir.interpret.blocks import Run, run_block
from shardwise.ir.interpret.scheduler import Scheduler
from shardwise.ir.module.program import Scope, program_of
from shardwise.ir.module.values import Poisoned, Value, check_defined, dtype_of, fits

GridShapes = Mapping[str, Sequence[int]]


def execute(module: ModuleOp, *inputs: Any, function: str | None = None, grids: GridShapes | None = None) -> Any:
    """Run a module that is not partitioned on global values; annotations do not matter.

    `function` is by default `main`, or the first one. `grids` gives the shapes of grids with open sizes. One result
    is returned by itself, several as a tuple, none as None.

    >>> from shardwise.ir.text import parse_module
    >>> module = parse_module('''
    ... shard.grid @g(shape = 2)
    ... func.func @double(%x: tensor<4xf32>) -> tensor<4xf32> {
    ...   %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
    ...   %0 = shard.shard %x to %s : tensor<4xf32>
    ...   %1 = arith.addf %0, %0 : tensor<4xf32>
    ...   return %1 : tensor<4xf32>
    ... }''')
    >>> execute(module, np.arange(4, dtype="float32"))
    array([0., 2., 4., 6.], dtype=float32)
    """
    program = program_of(module, grids)
    called = program.function(function)
    values = arguments(called, inputs)
    run = run_block(Scope(program), program.body(called), values)
    with np.errstate(all="ignore"):
        results = Scheduler([run]).finish()[0]
    return as_result([check_defined(value, f"result {i}") for i, value in enumerate(results)])


def execute_on_devices(
    module: ModuleOp, *inputs: Sequence[Any], function: str | None = None, grids: GridShapes | None = None
) -> list[Any]:
    """Run a partitioned module on every device of its grid; each input is a list with one array per device.

    Returns, per device, what `execute` returns. Parts of a result that the program leaves undefined stay undefined:
    such a result is `Poisoned`.

    >>> from shardwise.ir.text import parse_module
    >>> module = parse_module('''
    ... shard.grid @g(shape = 2)
    ... func.func @total(%x: tensor<1xi32>) -> tensor<1xi32> {
    ...   %0 = shard.all_reduce %x on @g grid_axes = [0] : tensor<1xi32> -> tensor<1xi32>
    ...   return %0 : tensor<1xi32>
    ... }''')
    >>> execute_on_devices(module, [np.array([1], "int32"), np.array([2], "int32")])
    [array([3], dtype=int32), array([3], dtype=int32)]
    """
    program = program_of(module, grids)
    called = program.function(function)
    for i, arrays in enumerate(inputs):
        if not isinstance(arrays, Sequence | np.ndarray) or len(arrays) != program.devices:
            count = len(arrays) if isinstance(arrays, Sequence | np.ndarray) else type(arrays).__name__
            raise ArgumentError(f"input {i} needs one array for each of {program.devices} devices, got {count}.")
    runs: list[Run] = []
    for device in range(program.devices):
        values = arguments(called, [arrays[device] for arrays in inputs], f" of device {device}")
        runs.append(run_block(Scope(program, device), program.body(called), values))
    with np.errstate(all="ignore"):
        results = Scheduler(runs).finish()
    return [as_result(values) for values in results]


def as_result(values: Sequence[Value]) -> Any:
    """Return the results of a run: one by itself, several as a tuple, none as None."""
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


# -- inputs ----------------------------------------------------------------------------------------------


def arguments(function: FuncOp, inputs: Sequence[Any], of: str = "") -> list[Value]:
    """Return the inputs of a function as values of its types; `of` says whose they are."""
    kinds, name = list(function.function_type.inputs), function.sym_name.data
    if len(kinds) != len(inputs):
        listed = ", ".join(map(str, kinds)) or "none"
        raise ArgumentError(f"@{name} takes {len(kinds)} inputs ({listed}), got {len(inputs)}.")
    return [
        _argument(x, kind, f"input {i}{of} of @{name}") for i, (x, kind) in enumerate(zip(inputs, kinds, strict=True))
    ]


def _argument(value: Any, kind: Attribute, what: str) -> Value:
    if isinstance(value, Poisoned):
        return value
    dtype = dtype_of(kind)
    array = np.asarray(value, dtype=None if hasattr(value, "dtype") else dtype)  # plain numbers have no dtype
    if not fits(array, kind):
        raise ArgumentError(
            f"{what} is {kind}, got {array.dtype} of shape {array.shape}."
            + (f"\n  convert it: x.astype({str(dtype)!r})" if array.dtype != dtype else "")
        )
    return array if isinstance(kind, TensorType) else array[()]
