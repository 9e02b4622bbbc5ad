"""Constants: the value that an attribute of a module holds."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr
from xdsl.ir import Operation

from shardwise.errors import ProgramError
from shardwise.ir.constants import constant_attribute
from shardwise.ir.module.program import op_text
from shardwise.ir.module.values import DYNAMIC, dtype_of
from shardwise.ir.types import is_tensor


def constant(op: Operation) -> Any:
    """Return the value of a constant op, of arith, index or tosa."""
    attribute, kind = constant_attribute(op), op.results[0].type
    dtype = dtype_of(kind)
    if isinstance(attribute, IntegerAttr | FloatAttr):
        return _scalar(attribute.value.data, dtype)
    if isinstance(attribute, DenseIntOrFPElementsAttr) and is_tensor(kind):
        return _dense(op, attribute.data.data, kind.get_shape(), dtype)
    raise ProgramError(f"{op_text(op)} has a value that cannot be run: {attribute}.")


def _scalar(value: Any, dtype: np.dtype) -> Any:
    if dtype.kind in "iu":  # written with or without a sign
        return np.array(int(value) % (1 << 8 * dtype.itemsize), f"uint{8 * dtype.itemsize}").view(dtype)[()]
    return np.array(value).astype(dtype)[()]


def _dense(op: Operation, data: bytes, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if DYNAMIC in shape:
        raise ProgramError(f"{op_text(op)} is a constant of a type with open sizes.")
    raw = np.frombuffer(data, "int8" if dtype.kind == "b" else dtype)
    values = raw != 0 if dtype.kind == "b" else raw
    if prod(shape) * dtype.itemsize >= 2**62:
        raise ProgramError(f"{op_text(op)} has {prod(shape)} elements, which no memory holds.")
    return np.broadcast_to(values[0], shape) if len(values) == 1 else values.reshape(shape)
