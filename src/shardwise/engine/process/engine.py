"""The torch engine: one process per device, which talk through torch.distributed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from operator import getitem
from time import perf_counter
from typing import Any

import numpy as np
import torch

from shardwise.caches import cache
from shardwise.engine.arrays import (
    Array,
    as_array,
    copy_into,
    identity,
    is_torch,
    pieces,
    reduce_into,
    to_numpy,
    torch_dtype,
    torch_of,
    torch_view,
)
from shardwise.engine.counters import Counters, SharedCounters
from shardwise.engine.execute import Program
from shardwise.engine.job import Job
from shardwise.engine.local_shards import LocalShards, sample
from shardwise.engine.log import active_logs, log_steps
from shardwise.engine.pool import Pool
from shardwise.engine.process.byte_buffer import ByteBuffer, bytes_of
from shardwise.engine.process.wire import Letter, Pending, Wire
from shardwise.engine.routes.route import Leg, Message, MessageRound, Out, Part
from shardwise.engine.routes.route_builder import route_of
from shardwise.engine.storage import Storage
from shardwise.errors import EngineError, MeshError, ShardwiseError
from shardwise.layout.device import Accelerator, Device
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.placement import ReduceOp
from shardwise.layout.tiling import Box
from shardwise.names import Renamed

BLOCK = 1 << 19  # bytes of a result that are reduced at a time, so that they stay in cache

Arrays = dict[int, Array]  # by slot
Dtypes = tuple[np.dtype, np.dtype, np.dtype]  # of a program, and of the arrays before and after one of its legs


class DistributedEngine:
    """Runs programs over the processes of torch.distributed: the device with number r belongs to rank r."""

    name = "torch"
    has_values = True
    holds_all = False
    talks_through_torch = True

    def __init__(self, wire: Wire, pool: Pool | None = None) -> None:
        """Use this wire to the other processes, and this pool of buffers on the host."""
        self.wire, self.rank, self.size = wire, wire.rank, wire.size
        self.pool = pool or Pool()
        self.counters: Counters = SharedCounters()
        self.library_gathers: bool | None = None  # None: where that is faster, which it is not with gloo

    def __repr__(self) -> str:
        return f"DistributedEngine(rank {self.rank} of {self.size})"

    # -- devices -----------------------------------------------------------------------------------

    def addressable(self, mesh: DeviceMesh) -> tuple[int, ...]:
        """Return the indices of the devices of a mesh that belong to this process."""
        return _own_devices(mesh, self.rank, self.size)

    def process(self, mesh: DeviceMesh, suffices: Callable[[Sequence[int]], bool]) -> tuple[int, Sequence[int]]:
        """Return the rank of this process and its devices."""
        return self.rank, self.addressable(mesh)

    def read(self, storage: Storage, arrays: Sequence[Array], index: int | None = None) -> Sequence[Array]:
        """Return the arrays as this process holds them."""
        return arrays

    def place(self, array: Array, device: Device) -> Array:
        """Return an array in the memory of a device of this process: its accelerator's, or the host's."""
        if not isinstance(device, Accelerator):
            return array.cpu() if is_torch(array) else array
        return (array if is_torch(array) else torch_of(array)).to(self.accelerator(device))

    def accelerator(self, device: Device) -> torch.device:
        """Return this process's accelerator: on every host they are counted from 0."""
        count = torch.cuda.device_count()
        local = int(os.environ.get("LOCAL_RANK", self.rank % max(1, count)))
        if local >= count:
            raise EngineError(
                f"{device!r} is not there: rank {self.rank} would use CUDA device {local} of its host, which has "
                f"{count}.\n  start one process per accelerator, or use CPU()."
            )
        return torch.device("cuda", local)

    def empty(
        self, shape: Sequence[int], dtype: np.dtype, like: Array | None = None, counters: Counters | None = None
    ) -> Array:
        """Return an array with arbitrary contents, of the library and on the device of `like`, and count its bytes."""
        counters = counters or self.counters.own
        if like is not None and is_torch(like) and like.is_cuda:
            counters.bytes_allocated += prod(shape) * dtype.itemsize
            return like.new_empty(tuple(shape), dtype=torch_dtype(dtype))
        out, fresh = self.pool.take(shape, dtype)
        counters.bytes_allocated += fresh
        return torch_view(out) if is_torch(like) else out  # torch on the host uses the pool too

    # -- kernels --------------------------------------------------------------------------------------

    work = Renamed("run_kernel")

    def run_kernel(
        self, kernel: Callable[..., Array], operands: Sequence[Sequence[Array]], job: Job, dtype: np.dtype | None = None
    ) -> LocalShards:
        """Return the arrays that a kernel makes, each of one array per operand."""
        outs: dict[int, Array] = {}
        for index, sources, boxes in _own_calls(job, self.rank, self.size):
            outs[index] = as_array(kernel(*boxes, *map(getitem, operands, sources)))
        self.counters.own.kernel_calls += len(outs)
        if outs:
            return self._shards(job.out, outs)
        if dtype is not None:
            return self._shards(job.out, outs, dtype, sample(operands[0]))
        # No device of the result is here: single elements tell its dtype.
        single = as_array(kernel(*map(sample, operands)))
        return self._shards(job.out, outs, None if is_torch(single) else single.dtype, single)

    def _shards(
        self, storage: Storage, arrays: Arrays, dtype: np.dtype | None = None, like: Array | None = None
    ) -> LocalShards:
        check = partial(self.wire.check, self.wire.sequence) if self.wire.groups.on_accelerators else None
        return LocalShards(storage, arrays, self.rank, dtype, like, check)

    def each(
        self,
        storage: Storage,
        dtype: np.dtype,
        make: Callable[[int, int], Array],
        base: Sequence[Array] | None = None,
        like: Array | None = None,
    ) -> LocalShards:
        """Return the arrays of a tensor that are here, each made by `make(which, device)`."""
        here = _own_arrays(storage, self.addressable(storage.layout.mesh))
        arrays = {i: make(i, device) for i, device in here}
        if not arrays and like is None and base is not None:
            like = sample(base)
        return self._shards(storage, arrays, dtype, like)

    def apply(self, kernel: Callable[..., Array], arrays: Sequence[Array], shape: Sequence[int]) -> Array:
        """Return what a kernel makes of local arrays: an array of this shape."""
        self.counters.own.kernel_calls += 1
        return kernel(*arrays)

    # -- programs ----------------------------------------------------------------------------------

    def run(self, program: Program, arrays: Sequence[Array]) -> LocalShards:
        """Return the arrays of the target layout that are here."""
        self.addressable(program.target.layout.mesh)
        route, like, counters = route_of(program, self.rank), sample(arrays), self.counters.own
        state: Arrays = {slot: arrays[index] for slot, index in route.starts}
        run = self._run_logged if active_logs() else self._run
        try:
            before = program.dtype
            for leg in route.legs:
                after = leg.dtype or program.dtype
                state = run(leg, state, (program.dtype, before, after), like, counters)
                before = after
        except ShardwiseError:
            raise
        except BaseException as error:  # such as no memory: the others would wait for this process
            if self.wire.guard is not None and any(round_.talks for leg in route.legs for round_ in leg.rounds):
                self.wire.guard.give_up(error)
            raise
        outs = {index: state[slot] for index, slot in route.ends}
        return self._shards(program.target, outs, program.dtype, like)

    def _run_logged(self, leg: Leg, arrays: Arrays, dtypes: Dtypes, like: Array, counters: Counters) -> Arrays:
        own, start = Counters(), perf_counter()
        try:
            out = self._run(leg, arrays, dtypes, like, own)
        finally:
            counters.add(own)
        log_steps(leg.notes, own.bytes_moved, start, perf_counter() - start, self.rank)
        return out

    def _run(self, leg: Leg, arrays: Arrays, dtypes: Dtypes, like: Array, counters: Counters) -> Arrays:
        counted, before, dtype = dtypes
        out: Arrays = {slot: _cut(arrays, part) for slot, part in leg.views}
        for new in leg.outs:
            out[new.slot] = self._fresh(new, dtype, like, counters)
            if new.blank:
                out[new.slot][...] = 0 if leg.filling is None else identity(leg.filling, dtype)
        for kind, count in leg.near:
            counters.count_moved(kind, count * counted.itemsize)
        trips: list[_Trip] = []
        for round_ in leg.rounds:
            trip = _Trip(self, round_, dtype if round_.spreads else before, arrays, out, counters)
            trip.start()
            if not trips:  # what is here is copied while the first messages are under way
                self._copy(leg, arrays, out, counters)
            trips.append(trip)
            trip.finish(leg.op or ReduceOp.SUM)
        for trip in trips:
            trip.leave()
        if not trips:
            self._copy(leg, arrays, out, counters)
        return out

    def _copy(self, leg: Leg, arrays: Arrays, out: Arrays, counters: Counters) -> None:
        for into, source in leg.copies:
            self.copy(_cut(out, into), _cut(arrays, source), counters)

    def copy(self, out: Array, source: Array, counters: Counters) -> None:
        """Copy one array into another of the same shape, and count it."""
        if is_torch(out) != is_torch(source):
            source = torch_of(source) if is_torch(out) else to_numpy(source)
        copy_into(out, source)
        counters.copies += 1
        counters.bytes_copied += out.nbytes

    def reduce(self, out: Array, terms: Sequence[Array], op: ReduceOp, counters: Counters) -> None:
        """Reduce arrays into one, in the order given, and count it."""
        counters.kernel_calls += 1
        if is_torch(out):
            reduce_into(out, terms, op)
            return
        for into, *some in pieces([out, *terms], BLOCK):
            reduce_into(into, some, op)

    def _fresh(self, out: Out, dtype: np.dtype, like: Array, counters: Counters) -> Array:
        if isinstance(out.device, Accelerator) and not (is_torch(like) and like.is_cuda):
            counters.bytes_allocated += prod(out.shape) * dtype.itemsize
            return torch.empty(out.shape, dtype=torch_dtype(dtype), device=self.accelerator(out.device))
        if not isinstance(out.device, Accelerator) and is_torch(like) and like.is_cuda:
            like = like.new_empty(0, device="cpu")
        return self.empty(out.shape, dtype, like, counters)


@cache()
def _own_arrays(storage: Storage, devices: tuple[int, ...]) -> list[tuple[int, int]]:
    # The arrays that some devices hold, each with the first of those that do.
    return sorted({storage.index(device): device for device in reversed(devices)}.items())


@cache()
def _own_devices(mesh: DeviceMesh, rank: int, size: int) -> tuple[int, ...]:
    outside = [device for device in mesh.devices if device.id >= size]
    if outside:
        raise MeshError(
            f"{mesh!r} has {outside[0]!r}, but there are {size} processes, ranks 0 to {size - 1}, "
            "and the device with number r belongs to rank r.\n"
            "  start as many processes as the mesh has devices."
        )
    return tuple(i for i, device in enumerate(mesh.devices) if device.id == rank)


@cache()
def _own_calls(job: Job, rank: int, size: int) -> list[tuple[int, tuple[int, ...], tuple[Box, ...]]]:
    # The arrays that a process makes, each with the arrays of the operands and the boxes that it is made of.
    devices = _own_devices(job.out.layout.mesh, rank, size)
    pairs = [(index, job.sources(device)) for index, device in _own_arrays(job.out, devices)]
    return [(index, sources, job.boxes_of(sources)) for index, sources in pairs]


def _cut(arrays: Arrays, part: Part) -> Array:
    return arrays[part.slot][part.where] if part.where else arrays[part.slot]


class _Trip:
    """One round under way: what is packed, sent, received, unpacked and summed."""

    __slots__ = ("arrays", "arrived", "counters", "dtype", "engine", "landing", "outs", "pending", "round")

    def __init__(
        self,
        engine: DistributedEngine,
        round_: MessageRound,
        dtype: np.dtype,
        arrays: Arrays,
        outs: Arrays,
        counters: Counters,
    ) -> None:
        self.engine, self.round, self.dtype, self.outs, self.counters = engine, round_, dtype, outs, counters
        self.arrays = outs if round_.spreads else arrays
        self.pending: Pending | None = None
        self.arrived: ByteBuffer | None = None  # all that is received, in one piece
        self.landing: list[tuple[ByteBuffer, Message]] = []  # what is received and not yet where it belongs

    def start(self) -> None:
        """Start sending and receiving."""
        engine, round_, size = self.engine, self.round, self.dtype.itemsize
        for into, source in round_.local_copies:
            engine.copy(_cut(self.outs, into), _cut(self.outs, source), self.counters)
        if not round_.talks:
            return
        self.counters.count_moved(round_.call.step, round_.received * size)
        self.counters.bytes_sent += round_.sent * size
        if not round_.straight:
            self._exchange()
        elif (
            round_.gathers
            and engine.library_gathers is not False
            and (round_.on_accelerators or engine.library_gathers)
        ):
            self._gather()
        else:
            self._send()

    @property
    def _device(self) -> torch.device | None:
        return self.engine.accelerator(Accelerator(self.engine.rank)) if self.round.on_accelerators else None

    def _buffer(self, count: int) -> ByteBuffer:
        return ByteBuffer(count * self.dtype.itemsize, self.dtype, self.engine.pool, self._device)

    def _exchange(self) -> None:
        round_, call = self.round, self.round.call
        outgoing, self.arrived = self._buffer(round_.sent), self._buffer(round_.received)
        self._pack(outgoing, [part for message in round_.sends for part in message.parts])
        sizes = {message.rank: message.size * self.dtype.itemsize for message in round_.receives}
        splits = {message.rank: message.size * self.dtype.itemsize for message in round_.sends}
        self.pending = self.engine.wire.exchange(
            call,
            self.arrived.bytes,
            [sizes.get(rank, 0) for rank in call.ranks],
            outgoing.bytes,
            [splits.get(rank, 0) for rank in call.ranks],
        )

    def _gather(self) -> None:
        round_, call = self.round, self.round.call
        (size,) = {message.size for message in (*round_.sends, *round_.receives)}
        outgoing, arrived = self._buffer(size), self._buffer(size * len(call.ranks))
        self._pack(outgoing, round_.sends[0].parts)
        for message in round_.receives:
            self.landing.append((arrived.part(call.ranks.index(message.rank) * size, size), message))
        self.pending = self.engine.wire.gather(call, arrived.bytes, outgoing.bytes)

    def _send(self) -> None:
        receives: list[Letter] = []
        sends: list[Letter] = []
        if self.round.sums:
            self.arrived = self._buffer(self.round.received)
            at = 0
            for message in self.round.receives:
                receives.append((message.rank, self.arrived.part(at, message.size).bytes))
                at += message.size
        for message in self.round.receives if not self.round.sums else ():
            flat = bytes_of(_cut(self.outs, message.parts[0])) if len(message.parts) == 1 else None
            if flat is None:
                buffer = self._buffer(message.size)
                self.landing.append((buffer, message))
                flat = buffer.bytes
            receives.append((message.rank, flat))
        packed: dict[int, Any] = {}  # what goes to several is packed once
        for message in self.round.sends:
            flat = packed.get(id(message.parts))
            if flat is None:
                flat = bytes_of(_cut(self.arrays, message.parts[0])) if len(message.parts) == 1 else None
            if flat is None:
                buffer = self._buffer(message.size)
                self._pack(buffer, message.parts)
                flat = buffer.bytes
            packed[id(message.parts)] = flat
            sends.append((message.rank, flat))
        self.pending = self.engine.wire.send(self.round.call, receives, sends, self._device)

    def _pack(self, buffer: ByteBuffer, parts: Sequence[Part]) -> None:
        at = 0
        for part in parts:
            array = _cut(self.arrays, part)
            self.engine.copy(buffer.view(at, part.shape, array), array, self.counters)
            at += prod(part.shape)

    def finish(self, op: ReduceOp) -> None:
        """Wait for what comes, and put it where it belongs."""
        if self.pending is not None:
            self.pending.arrive()
        if self.round.sums:
            self._sum(op)
        elif self.arrived is not None:
            self._unpack(self.arrived, [part for message in self.round.receives for part in message.parts])
        for buffer, message in self.landing:
            self._unpack(buffer, message.parts)

    def leave(self) -> None:
        """Wait until what was sent has been read: its memory is free then."""
        if self.pending is not None:
            self.pending.wait()

    def _unpack(self, buffer: ByteBuffer, parts: Sequence[Part]) -> None:
        at = 0
        for part in parts:
            into = _cut(self.outs, part)
            self.engine.copy(into, buffer.view(at, part.shape, into), self.counters)
            at += prod(part.shape)

    def _sum(self, op: ReduceOp) -> None:
        for part, terms in self.round.sums:
            into = _cut(self.outs, part)
            values: list[Array] = []
            for term in terms:
                if isinstance(term, Part):
                    values.append(_cut(self.arrays, term))
                else:
                    assert self.arrived is not None
                    values.append(self.arrived.view(term, part.shape, into))
            self.engine.reduce(into, values, op, self.counters)
