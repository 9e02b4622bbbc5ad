"""The local engine: all devices live in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from time import perf_counter
from typing import TypeVarTuple

import numpy as np

from shardwise.engine.arrays import (
    Array,
    as_array,
    empty_like,
    identity,
    in_memory,
    is_torch,
    join_into,
    pieces,
    placed_along,
    reduce_into,
    runs_of,
)
from shardwise.engine.counters import Counters, SharedCounters
from shardwise.engine.execute import Program, Stage, Traffic
from shardwise.engine.grid import Grid, Regrid, blocks_of, tiles_of, whole_of
from shardwise.engine.job import Job
from shardwise.engine.local_shards import SoleProcess
from shardwise.engine.log import active_logs, log_steps
from shardwise.engine.pool import SMALLEST, Pool
from shardwise.engine.storage import Storage
from shardwise.engine.threads import share, take, thread_count
from shardwise.layout.device import Device
from shardwise.layout.placement import ReduceOp
from shardwise.names import Renamed

PARALLEL = 1 << 25  # bytes read and written above which work is shared between the cores
PIECE = 1 << 22  # bytes of a copy that a core takes on at a time; less where every core would not get some
BLOCK = 1 << 19  # bytes of a result that are reduced at a time, so that they stay in cache
WIDE = 1 << 15  # bytes above which copies go by runs of elements

BYTE = np.dtype(np.uint8)
Arguments = TypeVarTuple("Arguments")


class LocalEngine(SoleProcess):
    """Runs programs on arrays in this process, NumPy's by default or torch's.

    >>> from shardwise import CPU, DeviceMesh, Layout, P, plan_reshard, zeros
    >>> from shardwise.engine.execute import program_of
    >>> from shardwise.engine.job import Job
    >>> from shardwise.engine.storage import storage_of
    >>> mesh, engine = DeviceMesh((2,), ("x",)), LocalEngine()
    >>> engine.addressable(mesh), engine.place(np.ones(2), CPU(1)), engine.empty((3,), np.dtype("int8")).shape
    (range(0, 2), array([1., 1.]), (3,))
    >>> engine.process(mesh, any), engine.read(storage_of(Layout(mesh, ["x"]), (4,)), [])
    ((0, range(0, 2)), [])
    >>> storage = storage_of(Layout(mesh, ["x"]), (4,))
    >>> arrays = engine.each(storage, np.dtype(float), lambda which, device: np.full(2, float(device)))
    >>> engine.run_kernel(np.negative, [arrays], Job(storage, (storage,)))
    [array([-0., -0.]), array([-1., -1.])]
    >>> engine.run(program_of(plan_reshard(P("x"), P(), (4,), "float64", mesh=mesh)), arrays)
    (array([0., 0., 1., 1.]),)
    >>> out = np.empty(4)
    >>> engine.copy(out, arrays, 0, (), engine.counters)
    >>> engine.reduce(out[:2], arrays, ReduceOp.SUM, (), engine.counters)
    >>> out, engine.apply(np.sum, [out], ())
    (array([1., 1., 1., 1.]), np.float64(4.0))
    """

    name = "local"
    has_values = True
    holds_all = True
    talks_through_torch = False

    def __init__(self, pool: Pool | None = None, threads: int | None = None) -> None:
        """Use this pool of buffers and as many threads (one per core by default)."""
        self.pool = pool or Pool()
        counters = SharedCounters()
        self.counters: Counters = counters
        self._own = counters.of_thread  # often asked for
        self.threads = threads or thread_count()

    # -- verbs -------------------------------------------------------------------------------------

    def place(self, array: Array, device: Device) -> Array:
        """Return an array in the memory of a device, which must be there."""
        return in_memory(array, device)

    def empty(
        self, shape: Sequence[int], dtype: np.dtype, like: Array | None = None, counters: Counters | None = None
    ) -> Array:
        """Return an array with arbitrary contents, of the library and on the device of `like`, and count its bytes."""
        counters = counters or self._own.counters
        if like is not None and is_torch(like):
            counters.bytes_allocated += prod(shape) * dtype.itemsize
            return empty_like(like, shape, dtype)
        out, fresh = self.pool.take(shape, dtype)
        counters.bytes_allocated += fresh
        return out

    def copy(self, out: Array, parts: Sequence[Array], dim: int, traffic: Traffic, counters: Counters) -> None:
        """Copy arrays into one, side by side along a dim, and count the bytes that devices receive by it."""
        join_into(out, parts, dim)
        counters.copies += len(parts)
        counters.bytes_copied += out.nbytes
        counters.count_traffic(traffic)

    def reduce(self, out: Array, terms: Sequence[Array], op: ReduceOp, traffic: Traffic, counters: Counters) -> None:
        """Reduce arrays into one, in the order given, and count the bytes that devices receive by it."""
        reduce_into(out, terms, op)
        counters.kernel_calls += 1
        counters.count_traffic(traffic)

    work = Renamed("run_kernel")

    def run_kernel(
        self, kernel: Callable[..., Array], operands: Sequence[Sequence[Array]], job: Job, dtype: np.dtype | None = None
    ) -> Sequence[Array]:
        """Return the arrays that a kernel makes, each of one array per operand; their dtype need not be known."""
        blocks = blocks_of(operands) if job.is_aligned else None
        if blocks is not None:
            self._own.counters.kernel_calls += 1
            return Grid(kernel(*blocks))
        operands = list(map(tiles_of, operands))
        calls = job.distinct_sources
        self._own.counters.kernel_calls += len(calls)
        if job.located:
            outs = [
                kernel(*boxes, *[arrays[i] for arrays, i in zip(operands, sources, strict=False)])
                for boxes, sources in zip(job.boxes, calls, strict=True)
            ]
        elif len(operands) == 1:
            (first,) = operands
            outs = [kernel(first[i]) for (i,) in calls]
        elif len(operands) == 2:
            first, second = operands
            outs = [kernel(first[i], second[j]) for i, j in calls]
        else:
            outs = [kernel(*[arrays[i] for arrays, i in zip(operands, sources, strict=True)]) for sources in calls]
        if not job.out.shape:  # NumPy makes scalars of some 0-d arrays, perhaps of some shards only
            outs = list(map(as_array, outs))
        return outs if job.picks is None else [outs[i] for i in job.picks]

    def each(
        self,
        storage: Storage,
        dtype: np.dtype,
        make: Callable[[int, int], Array],
        base: Sequence[Array] | None = None,
        like: Array | None = None,
    ) -> Sequence[Array]:
        """Return the arrays of a tensor, each made by `make(which, device)` for one device that holds it."""
        return [make(i, device) for i, device in enumerate(storage.firsts)]

    def apply(self, kernel: Callable[..., Array], arrays: Sequence[Array], shape: Sequence[int]) -> Array:
        """Return what a kernel makes of local arrays: an array of this shape."""
        self._own.counters.kernel_calls += 1
        return kernel(*arrays)

    # -- programs ----------------------------------------------------------------------------------

    def run(self, program: Program, arrays: Sequence[Array]) -> Sequence[Array]:
        """Return the arrays of the target layout, or the grid of which they are tiles."""
        regrid, counters = program.regrid, self._own.counters
        if regrid is not None and type(arrays) is Grid and arrays.whole.shape == regrid.before and not active_logs():
            return self._regrid(
                program.stages[0], regrid, arrays.whole, program.dtype, counters
            )  # as most reshards are
        run = self._run_logged if active_logs() else self._run
        for stage in program.stages:
            arrays = run(stage, arrays, stage.dtype or program.dtype, counters)
        if program.picks is not None:
            tiles = tiles_of(arrays)
            return tuple([tiles[i] for i in program.picks])
        return tuple(arrays) if isinstance(arrays, list) else arrays

    def _run_logged(
        self, stage: Stage, arrays: Sequence[Array], dtype: np.dtype, counters: Counters
    ) -> Sequence[Array]:
        own, start = Counters(), perf_counter()
        try:
            out = self._run(stage, arrays, dtype, own)
        finally:
            counters.add(own)
        log_steps(stage.steps, own.bytes_moved, start, perf_counter() - start)
        return out

    def _run(self, stage: Stage, arrays: Sequence[Array], dtype: np.dtype, counters: Counters) -> Sequence[Array]:
        regrid = stage.regrid
        whole = None if regrid is None else whole_of(arrays)
        if regrid is None or whole is None or whole.shape != regrid.before:
            return self._by_parts(stage, tiles_of(arrays), dtype, counters)
        if stage.fresh:
            return self._regrid(stage, regrid, whole, dtype, counters)
        out = self._by_parts(stage, tiles_of(arrays), dtype, counters)
        view = regrid.view_of(whole)
        return out if view is None else Grid(view, out)

    def _by_parts(self, stage: Stage, arrays: Sequence[Array], dtype: np.dtype, counters: Counters) -> Sequence[Array]:
        if stage.is_lone:
            whole = self.empty(stage.shapes[stage.fresh[0]], dtype, arrays[0], counters)
            self._reduce(stage, arrays, {stage.fresh[0]: whole}, counters)
            return (whole,) if stage.grid_shape is None else Grid(whole.reshape(stage.grid_shape))
        out: list[Array] = [None] * len(stage.shapes)
        for target, source, where in stage.takes:
            out[target] = arrays[source][where] if where else arrays[source]
        counters.count_traffic(stage.view_traffic)
        if stage.is_small and type(arrays[0]) is np.ndarray:
            return self._join(stage, arrays, out, dtype, counters)
        if stage.fresh:
            for i, array in zip(stage.fresh, self._several(stage, dtype, arrays[0], counters), strict=True):
                out[i] = array
        for i in stage.blank:
            out[i][...] = 0 if stage.filling is None else identity(stage.filling, dtype)
        if stage.joins:
            self._copy(stage, arrays, out, counters)
        if stage.reduces:
            self._reduce(stage, arrays, out, counters)
        for target, source, where in stage.views:
            out[target] = out[source][where]
        if stage.picks is not None:
            return [out[i] for i in stage.picks]
        return out[: stage.after.count] if stage.wholes else out

    def _regrid(self, stage: Stage, regrid: Regrid, whole: Array, dtype: np.dtype, counters: Counters) -> Grid:
        out = self.empty(regrid.after, dtype, whole, counters)
        source, into = regrid.match(whole, out, stage.size > WIDE)
        if 2 * stage.size > PARALLEL and self._is_shared(stage, [whole], 2):
            self._share(self.copy, list(_copy_pieces(into, [source], 0, stage.traffic, self._piece(stage))), counters)
        else:
            self.copy(into, [source], 0, stage.traffic, counters)
            counters.copies += stage.copies - 1  # what each array takes from another is a copy
        return Grid(out)

    def _join(
        self, stage: Stage, arrays: Sequence[Array], out: list[Array], dtype: np.dtype, counters: Counters
    ) -> list[Array]:
        # Many small arrays, each put together of a few parts: new ones are as good as those of the pool.
        for target, _, dim, terms, traffic, size in stage.joins:
            parts = [arrays[i][where] if where else arrays[i] for i, where in terms]
            out[target] = np.concatenate(parts, dim) if len(parts) > 1 else parts[0].copy()
            counters.copies += len(parts)
            counters.bytes_copied += size
            counters.bytes_allocated += size
            counters.count_traffic(traffic)
        for target in stage.empties:
            out[target] = np.empty(stage.shapes[target], dtype)
        return out

    def _several(self, stage: Stage, dtype: np.dtype, like: Array, counters: Counters) -> list[Array]:
        shapes = [stage.shapes[i] for i in stage.fresh]
        size, offsets = stage.memory
        if len(shapes) == 1 or size < SMALLEST or is_torch(like):
            return [self.empty(shape, dtype, like, counters) for shape in shapes]
        # The arrays of one result live and die together as a rule: one block serves them all.
        block = self.empty((size,), BYTE, None, counters)
        return [np.ndarray(shape, dtype, block, offset) for shape, offset in zip(shapes, offsets, strict=True)]

    def _copy(self, stage: Stage, arrays: Sequence[Array], out: Sequence[Array], counters: Counters) -> None:
        joins, sources, targets = stage.joins, arrays, out
        if stage.size > WIDE and stage.rows is not None:
            length, wide = stage.rows
            runs = runs_of([*arrays, *(out[i] for i in stage.fresh)], length)
            if runs is not None:
                joins, sources = wide, runs[: len(arrays)]
                targets = dict(zip(stage.fresh, runs[len(arrays) :], strict=True))
        jobs = (
            (
                targets[target][at] if at else targets[target],
                [sources[i][where] if where else sources[i] for i, where in terms],
                dim,
                traffic,
            )
            for target, at, dim, terms, traffic, _ in joins
        )
        if not self._is_shared(stage, arrays, 2):
            for into, parts, dim, traffic in jobs:
                self.copy(into, parts, dim, traffic, counters)
            return
        self._share(self.copy, [piece for job in jobs for piece in _copy_pieces(*job, self._piece(stage))], counters)

    def _reduce(
        self, stage: Stage, arrays: Sequence[Array], out: Sequence[Array] | dict[int, Array], counters: Counters
    ) -> None:
        op = stage.op or ReduceOp.SUM
        jobs = (
            (
                out[target][at] if at else out[target],
                [arrays[i][where] if where else arrays[i] for i, where in terms],
                op,
                traffic,
            )
            for target, at, terms, traffic, _ in stage.reduces
        )
        if stage.size <= BLOCK or is_torch(arrays[0]):
            for into, terms, op, traffic in jobs:
                self.reduce(into, terms, op, traffic, counters)
            return
        parts = [piece for job in jobs for piece in _reduce_pieces(*job)]
        if self._is_shared(stage, arrays, 1 + len(stage.reduces[0].terms)):
            self._share(self.reduce, parts, counters)
            return
        for part in parts:
            self.reduce(*part, counters)

    def _is_shared(self, stage: Stage, arrays: Sequence[Array], touched: int) -> bool:
        return self.threads > 1 and stage.size * touched > PARALLEL and not is_torch(arrays[0])

    def _piece(self, stage: Stage) -> int:
        return min(PIECE, max(1, stage.size // (4 * self.threads)))

    def _share(
        self, verb: Callable[[*Arguments, Counters], None], parts: Sequence[tuple[*Arguments]], counters: Counters
    ) -> None:
        for own in share(partial(_count, verb), parts, self.threads):
            counters.add(own)


def _count(verb: Callable[[*Arguments, Counters], None], left: deque[tuple[*Arguments]]) -> Counters:
    counters = Counters()
    for part in take(left):
        verb(*part, counters)
    return counters


def _copy_pieces(
    out: Array, parts: Sequence[Array], dim: int, traffic: Traffic, most: int
) -> Iterator[tuple[Array, Sequence[Array], int, Traffic]]:
    for place, part in zip(placed_along(out, parts, dim), parts, strict=True):
        for into, piece in pieces([place, part], most):
            yield into, [piece], 0, traffic
            traffic = ()  # counted once


def _reduce_pieces(
    out: Array, terms: Sequence[Array], op: ReduceOp, traffic: Traffic
) -> Iterator[tuple[Array, Sequence[Array], ReduceOp, Traffic]]:
    for into, *some in pieces([out, *terms], BLOCK):
        yield into, some, op, traffic
        traffic = ()
