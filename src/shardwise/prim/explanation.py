"""Explanations: what a function would communicate, and the memory that it would take, without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import optree

from shardwise.engine.abstract import AbstractEngine
from shardwise.engine.current import engine_context
from shardwise.engine.log import trace_communication
from shardwise.errors import ArgumentError
from shardwise.layout.notebook import Tabular
from shardwise.plan.record import Record
from shardwise.prim.face import public
from shardwise.prim.inference import abstract
from shardwise.prim.tensor import Tensor

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Explanation(Tabular):
    """The communication steps of a function in order, the memory of the device that needs most, and the result.

    >>> from shardwise import DeviceMesh, DistributedTensorType, P, sum
    >>> mesh = DeviceMesh((1024, 4), ("dp", "tp"))
    >>> x = DistributedTensorType("float32", (1 << 20, 4096), mesh, P("dp", "tp"))
    >>> total = explain(lambda x: sum(x * x, axis=0), x)
    >>> total.result, total.bytes, total.peak_memory
    (Tensor(float32[4096@tp] sum(dp) on dp=1024, tp=4, abstract), 0, 8392704)
    >>> [(step.kind, step.axes, step.busiest) for step in explain(lambda x: x.gather(), total.result)]
    [('reduce_scatter', ('dp', 'tp'), 4092), ('all_gather', ('dp', 'tp'), 16380)]
    >>> explain(lambda x: x.gather(), total.result).bytes_by_kind
    {'reduce_scatter': 16760832, 'all_gather': 67092480}
    """

    steps: tuple[Record, ...]
    peak_memory: int  # bytes
    result: Any  # as abstract tensors
    devices: int

    @property
    def bytes(self) -> int:
        """All bytes between devices."""
        return sum(step.bytes for step in self.steps)

    @property
    def bytes_by_kind(self) -> dict[str, int]:
        """All bytes between devices by kind of step."""
        out: dict[str, int] = {}
        for step in self.steps:
            if step.bytes:
                out[step.kind] = out.get(step.kind, 0) + step.bytes
        return out

    def __iter__(self) -> Iterator[Record]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __rich__(self) -> RenderableType:
        from shardwise.pictures.explanation import explanation_table

        return explanation_table(self.steps, self.devices, self.peak_memory)


@public()
def explain(fn: Callable[..., Any], *args: Any) -> Explanation:
    """Return what `fn(*args)` would communicate, step by step, and the memory per device, without computing it.

    Arguments are trees of tensors, of array-likes, or of `DistributedTensorType`s for tensors that need not exist;
    the mesh may be far larger than this machine.

    >>> from shardwise import DeviceMesh, DistributedTensorType, P
    >>> x = DistributedTensorType("float32", (1024, 1024), DeviceMesh((64,), ("x",)), P("x"))
    >>> square = explain(lambda x: x @ x, x)
    >>> square.result, square.bytes_by_kind
    (Tensor(float32[1024@x, 1024] on x=64, abstract), {'all_gather': 264241152})
    """
    if not callable(fn):
        raise ArgumentError(f"explain takes a function and its arguments, got {type(fn).__name__}.")
    engine = AbstractEngine()
    with engine_context(engine), trace_communication() as log:
        operands = optree.tree_map(partial(abstract, engine=engine), cast(Any, args))
        result = fn(*operands)
    meshes = [leaf.mesh for leaf in optree.tree_leaves(cast(Any, operands)) if isinstance(leaf, Tensor)]
    steps = tuple(record for record in log if record.bytes)
    return Explanation(steps, engine.peak, result, max((mesh.num_devices for mesh in meshes), default=1))
