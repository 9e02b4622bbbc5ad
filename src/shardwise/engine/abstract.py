"""The abstract engine: moves nothing, and accounts for everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from time import perf_counter
from typing import Any
from weakref import finalize

import numpy as np

from shardwise.caches import cache
from shardwise.engine.counters import Counters, SharedCounters, add_up
from shardwise.engine.execute import Program, Stage, notes
from shardwise.engine.job import Job
from shardwise.engine.local_shards import SoleProcess
from shardwise.engine.log import active_logs, log_steps
from shardwise.engine.storage import Storage, storage_of
from shardwise.errors import seal
from shardwise.layout.device import Device
from shardwise.layout.layout import Layout, Shape
from shardwise.locks import make_lock
from shardwise.names import Renamed
from shardwise.plan.record import StepNote
from shardwise.plan.steps import Step

LISTED = 64  # devices up to which the program is compiled, to count what the local engine would do
EXACT = 512  # devices up to which bytes that no formula knows are counted device by device


@seal
@dataclass(frozen=True, slots=True)
class AbstractArray:
    """The shape and dtype of an array that is not there."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def ndim(self) -> int:
        """How many dims it has."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes it would take."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class AbstractArrays(Sequence[AbstractArray]):
    """The arrays of a tensor that is not there, made up when they are looked at: there may be a million."""

    storage: Storage
    dtype: np.dtype
    base: Sequence[Any] | None = None  # what they are views of

    def __len__(self) -> int:
        return self.storage.count

    def __getitem__(self, index: Any) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return AbstractArray(self.storage.local_shape(index % len(self)), self.dtype)

    @property
    def sample(self) -> AbstractArray:
        """One of the arrays."""
        return self[0]


class AbstractEngine(SoleProcess):
    """Knows layouts, plans, bytes and memory, on meshes of any size; a tensor on it has no values.

    >>> from shardwise import CPU, DeviceMesh, Layout, P, plan_reshard
    >>> from shardwise.engine.execute import program_of
    >>> from shardwise.engine.job import Job
    >>> mesh, engine = DeviceMesh((2,), ("x",)), AbstractEngine()
    >>> engine.addressable(mesh), engine.place(3, CPU(1)), engine.empty((3,), np.dtype("int8")).nbytes
    (range(0, 2), 3, 3)
    >>> engine.process(mesh, any)
    (0, range(0, 2))
    >>> arrays = engine.blank(Layout(mesh, ["x"]), (4,), np.dtype(float))
    >>> storage = arrays.storage
    >>> engine.each(storage, np.dtype(float), lambda which, device: None)[0], engine.peak
    (AbstractArray(shape=(2,), dtype=dtype('float64')), 32)
    >>> engine.run_kernel(np.negative, [arrays], Job(storage, (storage,)))[1].shape
    (2,)
    >>> engine.run(program_of(plan_reshard(P("x"), P(), (4,), "float64", mesh=mesh)), arrays)[0].shape
    (4,)
    >>> engine.apply(np.isfinite, [arrays[0]], (2,))
    AbstractArray(shape=(2,), dtype=dtype('bool'))
    >>> engine.counters.bytes_moved, engine.read(storage, arrays) is arrays
    ({'all_gather': 32}, True)
    """

    name = "abstract"
    has_values = False
    holds_all = False
    talks_through_torch = False

    def __init__(self) -> None:
        """Start with all counters at zero."""
        self.counters: Counters = SharedCounters()
        self._lock = make_lock()
        self.live = 0  # bytes that the device with the largest shards holds
        self.peak = 0  # and the most that it ever held

    def place(self, array: Any, device: Device) -> Any:
        """Return the array itself, wherever it is to be."""
        return array

    def empty(self, shape: Sequence[int], dtype: np.dtype, like: Any = None) -> AbstractArray:
        """Return an array that is not there."""
        out = AbstractArray(tuple(shape), dtype)
        self.counters.own.bytes_allocated += out.nbytes
        return out

    work = Renamed("run_kernel")

    def run_kernel(
        self, kernel: Callable[..., Any], operands: Sequence[Sequence[Any]], job: Job, dtype: np.dtype | None = None
    ) -> AbstractArrays:
        """Return the arrays that a kernel would make; their dtype by asking it about single elements."""
        self.counters.own.kernel_calls += job.out.count
        return self._make_arrays(job.out, dtype or self._ask_dtype(kernel, [arrays[0] for arrays in operands]))

    def each(
        self,
        storage: Storage,
        dtype: np.dtype,
        make: Callable[[int, int], Any],
        base: Sequence[Any] | None = None,
        like: Any = None,
    ) -> AbstractArrays:
        """Return the arrays of a tensor, none of which is made; views of `base` take no memory."""
        return self._make_arrays(storage, dtype) if base is None else AbstractArrays(storage, dtype, base)

    def blank(self, layout: Layout, shape: Shape, dtype: np.dtype) -> AbstractArrays:
        """Return the arrays of a tensor that is given."""
        return self._make_arrays(storage_of(layout, tuple(shape)), dtype)

    def _make_arrays(self, storage: Storage, dtype: np.dtype) -> AbstractArrays:
        # Memory is that of the device with the largest shard, from when an array is made to when the last one to
        # refer to it is gone.
        out = AbstractArrays(storage, dtype)
        size = prod(storage.tiling.largest) * dtype.itemsize
        with self._lock:
            self.live += size
            self.peak = max(self.peak, self.live)
        finalize(out, self._free, size)
        return out

    def _free(self, size: int) -> None:
        with self._lock:
            self.live -= size

    def apply(self, kernel: Callable[..., Any], arrays: Sequence[Any], shape: Sequence[int]) -> AbstractArray:
        """Return the shape and dtype of what a kernel would make; the dtype by asking it about single elements."""
        self.counters.own.kernel_calls += 1
        return AbstractArray(tuple(shape), self._ask_dtype(kernel, arrays))

    def _ask_dtype(self, kernel: Callable[..., Any], arrays: Sequence[Any]) -> np.dtype:
        small = [np.ones((1,) * a.ndim, a.dtype) if isinstance(a, AbstractArray) else a for a in arrays]
        return np.asarray(kernel(*small)).dtype

    def run(self, program: Program, arrays: Sequence[Any]) -> AbstractArrays:
        """Return the arrays of the target layout, and count what moving them would take.

        Bytes between devices are exact on meshes of any size where axes nest. Where sub-axes cross, a reduction over
        more than EXACT devices is counted as if all received as much as the busiest. Copies, kernel calls and memory
        are those of the local engine (were there no pool), up to LISTED devices.
        """
        plan = program.plan
        if plan is None or plan.search.slots.count <= LISTED:
            for stage in program.stages:
                self._count(stage, (stage.dtype or program.dtype).itemsize)
        else:
            for note, total in _bytes_by_step(program):
                self._record((note,), {note.kind: total})
        return self._make_arrays(program.target, program.dtype)

    def _count(self, stage: Stage, itemsize: int) -> None:
        counters, traffic = self.counters.own, dict(stage.view_traffic)
        for job in (*stage.joins, *stage.reduces):
            add_up(traffic, job.traffic)
        counters.copies += sum(len(join.terms) for join in stage.joins)
        counters.bytes_copied += sum(join.size for join in stage.joins)
        counters.kernel_calls += len(stage.reduces)
        counters.bytes_allocated += sum(prod(stage.shapes[i]) for i in stage.fresh) * itemsize
        self._record(stage.steps, traffic)

    def _record(self, steps: Sequence[StepNote], traffic: dict[str, int]) -> None:
        self.counters.count_traffic(((kind, size) for kind, size in traffic.items() if size))
        if active_logs():
            log_steps(steps, traffic, perf_counter(), 0.0)


@cache()
def _bytes_by_step(program: Program) -> tuple[tuple[StepNote, int], ...]:
    # Counted once for each program: on a large mesh that takes longer than all the rest.
    assert program.plan is not None
    return tuple((notes([step])[0], _total(step)) for step in program.plan.steps)


def _total(step: Step) -> int:
    if step.slots.count <= EXACT or all(move.is_counted or move.count_moved() is not None for move in step.moves):
        return step.received.total
    return int(sum(step.estimates)) * step.slots.count
