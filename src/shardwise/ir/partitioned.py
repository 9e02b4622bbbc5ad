"""Partitioned runs: a module cut into the programs of its devices, run there, and compared with the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from shardwise.errors import ProgramError
from shardwise.ir.interpret.run import GridShapes, arguments, as_result, execute, execute_on_devices
from shardwise.ir.interpret.shards import cut, join, own_part
from shardwise.ir.module.program import program_of
from shardwise.ir.module.values import Poisoned, Value
from shardwise.ir.passes import partition, propagate
from shardwise.ir.passes.boundaries import Boundary, boundary_of
from shardwise.ir.passes.layouts import Grids
from shardwise.layout.layout import Layout

SHOWN = 5  # differences listed

# How far two runs may be apart, in parts of the largest element: sums are taken in different orders.
TOLERANCES = {
    "float16": 1e-2,
    "bfloat16": 5e-2,
    "float32": 1e-4,
    "float64": 1e-9,
    "complex64": 1e-4,
    "complex128": 1e-9,
}


@dataclass(frozen=True)
class Difference:
    """Where a device holds something else than its part of the whole.

    >>> print(Difference(0, 3, "element (1,) is 2.0, not 3.0"))
    result 0 on device 3: element (1,) is 2.0, not 3.0
    """

    result: int
    device: int
    what: str

    def __str__(self) -> str:
        return f"result {self.result} on device {self.device}: {self.what}"


@dataclass(frozen=True)
class Comparison:
    """The results of the run on the whole, and where those of the devices differ from them.

    >>> same = Comparison((np.zeros(2),), 4)
    >>> same.agree, str(same)
    (True, '1 result agrees on 4 devices')
    """

    results: tuple[np.ndarray, ...]
    devices: int
    differences: tuple[Difference, ...] = field(default=())

    @property
    def agree(self) -> bool:
        """Whether both runs gave the same."""
        return not self.differences

    def __str__(self) -> str:
        if self.agree:
            results = "1 result agrees" if len(self.results) == 1 else f"{len(self.results)} results agree"
            return f"{results} on {self.devices} devices"
        lines = [f"{len(self.differences)} of {len(self.results) * self.devices} shards differ:"]
        lines += [f"  {difference}" for difference in self.differences[:SHOWN]]
        return "\n".join(lines)


def execute_partitioned(
    module: ModuleOp, *inputs: Any, function: str | None = None, grids: GridShapes | None = None
) -> Any:
    """Partition a module, run it on every device of its grid, and return the whole results.

    >>> from shardwise import DeviceMesh, P, shard
    >>> from shardwise.ir import trace
    >>> x = shard(np.arange(4, dtype="float32"), DeviceMesh((2,), ("x",)), P("x"))
    >>> module = trace(lambda x: x + x, x)
    >>> execute_partitioned(module, np.arange(4, dtype="float32"))
    array([0., 2., 4., 6.], dtype=float32)
    """
    results, boundary = _run(module, inputs, function, grids)
    columns = [[values[i] for values in results] for i in range(len(boundary.results))]
    whole = [join(shards, boundary.results[i], f"result {i}") for i, shards in enumerate(columns)]
    return as_result(whole)


def check_partition(
    module: ModuleOp, *inputs: Any, function: str | None = None, grids: GridShapes | None = None
) -> Comparison:
    """Run a module on the whole and, partitioned, on every device, and compare what each device returns.

    >>> from shardwise import DeviceMesh, P, shard
    >>> from shardwise.ir import trace
    >>> x = shard(np.arange(4, dtype="float32"), DeviceMesh((2,), ("x",)), P("x"))
    >>> module = trace(lambda x: x + x, x)
    >>> print(check_partition(module, np.arange(4, dtype="float32")))
    1 result agrees on 2 devices
    """
    whole = _as_list(execute(module, *inputs, function=function, grids=grids))
    results, boundary = _run(module, inputs, function, grids)
    differences = [
        difference
        for i, (value, layout) in enumerate(zip(whole, boundary.results, strict=True))
        for device, values in enumerate(results)
        if (difference := _difference(i, device, values[i], value, layout)) is not None
    ]
    return Comparison(tuple(whole), len(results), tuple(differences))


def _as_list(results: Any) -> list[Any]:
    if results is None:
        return []
    return list(cast("tuple[Any, ...]", results)) if isinstance(results, tuple) else [results]


def _run(
    module: ModuleOp, inputs: Sequence[Any], function: str | None, grids: GridShapes | None
) -> tuple[list[list[Value]], Boundary]:
    annotated = propagate(module, grids=grids)
    local, whole = partition(annotated, grids), program_of(annotated, grids)
    called = whole.function(function)
    boundary = boundary_of(called, Grids(whole.grids))
    kinds = (*called.function_type.inputs, *called.function_type.outputs)
    for kind, layout in zip(kinds, (*boundary.arguments, *boundary.results), strict=True):
        if layout is not None and layout.partial:
            raise ProgramError(f"{kind} is still to be reduced, so no device holds its part of the whole.")
    arrays = [np.asarray(x) for x in arguments(called, inputs)]
    cuts = [cut(x, layout, whole.devices) for x, layout in zip(arrays, boundary.arguments, strict=True)]
    results = execute_on_devices(local, *cuts, function=called.sym_name.data, grids=grids)
    return [_as_list(values) for values in results], boundary


def _difference(result: int, device: int, value: Value, whole: Any, layout: Layout | None) -> Difference | None:
    part = whole if layout is None else whole[tuple(slice(a, b) for a, b in layout.box(whole.shape, device))]
    own = own_part(value, layout, np.shape(whole), device)
    if isinstance(own, Poisoned):
        return Difference(result, device, f"undefined: {own.origin} left it so")
    if np.shape(own) != np.shape(part):
        return Difference(result, device, f"shape {np.shape(own)} instead of {np.shape(part)}")
    far = _far(np.asarray(own), np.asarray(part), np.asarray(whole))
    if not far.any():
        return None
    first = tuple(int(i[0]) for i in np.nonzero(far)) if far.ndim else ()
    pair = f"{np.asarray(own)[first]}, not {np.asarray(part)[first]}"
    return Difference(result, device, f"{far.sum()} of {far.size} elements differ, the first at {first}: {pair}")


def _far(own: np.ndarray, part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    tolerance = TOLERANCES.get(str(whole.dtype))
    if tolerance is None:
        return own != part
    wide = "complex128" if whole.dtype.kind == "c" else "float64"
    a, b, all_ = own.astype(wide), part.astype(wide), whole.astype(wide)
    finite = np.abs(all_[np.isfinite(all_)])
    return ~np.isclose(a, b, rtol=tolerance, atol=tolerance * (finite.max() if finite.size else 0), equal_nan=True)
