"""Device numbers: what an index or a condition in the function of a device is, on all devices of a grid at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects import scf, tensor
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr
from xdsl.ir import Operation, SSAValue

from shardwise.ir.constants import constant_attribute
from shardwise.ir.elementwise.table import ELEMENTWISE, apply_elementwise
from shardwise.ir.module.program import ints
from shardwise.ir.module.values import dtype_of
from shardwise.ir.shard import ProcessLinearIndexOp, ProcessMultiIndexOp
from shardwise.ir.types import is_tensor
from shardwise.layout.mesh import DeviceMesh

MOST = 2**26  # numbers that are kept


@dataclass
class DeviceNumbers:
    """The numbers of all devices of a grid: those that follow from where each device is."""

    mesh: DeviceMesh
    known: dict[SSAValue, np.ndarray | None] = field(default_factory=dict[SSAValue, "np.ndarray | None"])

    def of(self, value: SSAValue) -> np.ndarray | None:
        """Return a number for each device, or the elements of a constant; None if they are not known."""
        if value not in self.known:
            if len(self.known) * self.mesh.num_devices > MOST:
                return None
            self.known[value] = None  # of a value that is made of itself, in a loop
            self.known[value] = self._compute(value)
        return self.known[value]

    def _compute(self, value: SSAValue) -> np.ndarray | None:
        op = value.owner
        if not isinstance(op, Operation):
            return None
        if op.name == "arith.constant":
            return _constant(op)
        if isinstance(op, ProcessMultiIndexOp | ProcessLinearIndexOp):
            return self._place(op, op.results.index(value))
        if not (isinstance(op, tensor.ExtractOp) or op.name in ELEMENTWISE) or is_tensor(value.type):
            return None
        operands = [array for array in map(self.of, op.operands) if array is not None]
        if len(operands) < len(op.operands):
            return None
        if not isinstance(op, tensor.ExtractOp):
            return apply_elementwise(op, operands, dtype_of(value.type))
        # Where a device does not use it, a place may be outside of the table.
        table, *places = operands
        return table[tuple(place.clip(0, size - 1) for place, size in zip(places, table.shape, strict=True))]

    def _place(self, op: ProcessMultiIndexOp | ProcessLinearIndexOp, result: int) -> np.ndarray | None:
        if op.grid_name != self.mesh.name:
            return None
        devices = np.arange(self.mesh.num_devices)
        if isinstance(op, ProcessLinearIndexOp):
            return devices
        axes = ints(op.axes) or range(self.mesh.ndim)
        return np.unravel_index(devices, self.mesh.mesh_shape)[axes[result]]

    def doing(self, op: Operation) -> np.ndarray | None:
        """Return which devices come to an op that may be inside of conditions; None if that is not known."""
        out = np.ones(self.mesh.num_devices, dtype=bool)
        inner, outer = op, op.parent_op()
        while outer is not None:
            if isinstance(outer, scf.IfOp):
                holds = self.of(outer.cond)
                if holds is None:
                    return None
                out = out & (holds if inner.parent_region() is outer.true_region else ~holds)
            inner, outer = outer, outer.parent_op()
        return out


def _constant(op: Operation) -> np.ndarray | None:
    attribute, kind = constant_attribute(op), op.results[0].type
    if isinstance(attribute, IntegerAttr):
        return np.array(attribute.value.data).astype(dtype_of(kind))
    if not isinstance(attribute, DenseIntOrFPElementsAttr) or not is_tensor(kind) or dtype_of(kind).kind not in "iub":
        return None
    values = np.array(attribute.get_values()).astype(dtype_of(kind))
    return np.broadcast_to(values, kind.get_shape()) if len(values) == 1 else values.reshape(kind.get_shape())
