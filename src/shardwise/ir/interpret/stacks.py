"""Stacks: what all devices hold as one array, with a leading dim of one entry per device."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from shardwise.errors import ArgumentError
from shardwise.ir.interpret.run import GridShapes
from shardwise.ir.module.program import program_of
from shardwise.ir.module.values import check_defined, fits, sizes_of


def unstack_inputs(
    module: ModuleOp, arrays: Sequence[Any], function: str | None = None, grids: GridShapes | None = None
) -> list[list[Any]]:
    """Return one array per device for each input of a partitioned module.

    An array with a leading dim of one entry per device, or one dim per grid axis, is cut along it; an array of the
    shape that one device takes goes to all.
    """
    program = program_of(module, grids)
    called = program.function(function)
    kinds = list(called.function_type.inputs)
    if len(kinds) != len(arrays):
        raise ArgumentError(f"@{called.sym_name.data} takes {len(kinds)} inputs, got {len(arrays)}.")
    inputs: list[list[Any]] = []
    for i, (array, kind) in enumerate(zip(arrays, kinds, strict=True)):
        rank = len(sizes_of(kind))
        lead = array.shape[: array.ndim - rank]
        if array.ndim == rank and fits(array, kind):
            inputs.append([array] * program.devices)
        elif array.ndim > rank and prod(lead) == program.devices:
            inputs.append(list(array.reshape(program.devices, *array.shape[array.ndim - rank :])))
        else:
            raise ArgumentError(
                f"input {i} is {kind} on each of {program.devices} devices, got {array.dtype} of shape {array.shape}.\n"
                "  give one array for all, or one with a leading dim of an entry per device."
            )
    return inputs


def stack_result(index: int, values: Sequence[Any]) -> np.ndarray:
    """Return what the devices have of one result as one array with a leading dim of one entry per device."""
    whole = [
        np.asarray(check_defined(value, f"result {index} on device {device}")) for device, value in enumerate(values)
    ]
    if len({x.shape for x in whole}) > 1:
        shapes = ", ".join(str(list(x.shape)) for x in whole[:8])
        raise ArgumentError(f"result {index} has different shapes on the devices ({shapes}), so it is not one array.")
    return np.stack(whole)
