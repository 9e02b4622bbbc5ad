"""Calibration: links measured by the processes that talk over them, with the messages that reshards send."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import prod
from time import perf_counter

import numpy as np

from shardwise.engine.arrays import Array, is_torch
from shardwise.engine.current import current_engine
from shardwise.engine.execute import Program, permutation, program_of
from shardwise.engine.storage import storage_of
from shardwise.engine.verbs import Engine
from shardwise.errors import ArgumentError, EngineError, MeshError, as_tuple, check_int
from shardwise.layout.axis import Axis
from shardwise.layout.context import current_mesh
from shardwise.layout.device import default_device
from shardwise.layout.layout import Layout, Shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.plan.cost import REPEATS, Links, move_time
from shardwise.plan.fit import Sample, fit_link, fit_overhead, typical_factor
from shardwise.plan.link import Link
from shardwise.plan.link_file import Origin
from shardwise.plan.plan import Plan, plan_reshard

SIZES = tuple(1024 * 4**k for k in range(9))  # bytes that a device receives: 1 KiB to 64 MiB
DTYPE, NUMBERS = np.dtype(np.float32), np.dtype(np.float64)
LONGEST = 63  # letters of the name of a host
SIDE, SIDE_ON_ACCELERATOR = 512, 4096  # of the matrices that are multiplied
PRODUCTS = 5
FIX = "measure them with shardwise calibrate -n 4 -o links.json, or call it in a script under shardwise run -n 4 ..."

Axes = tuple[Axis, ...]
Tell = Callable[[int, int], None]  # is told how many rounds are done, and of how many


@dataclass(frozen=True)
class Trial:
    """What is timed, in all groups of some axes at once: what runs on what, and what a device receives in it."""

    axes: Axes
    program: Program
    arrays: Sequence[Array]
    rounds: int
    messages: int
    received: int

    def sample(self, seconds: float) -> Sample:
        """Return what was timed, with the seconds that it took."""
        return Sample(self.messages, self.received, seconds, self.rounds)


def measure(
    mesh: DeviceMesh | None = None,
    sizes: Sequence[int] | None = None,
    repeats: int = REPEATS,
    tell: Tell | None = None,
) -> Links:
    """Return the links of a mesh, measured by all of its processes; `tell` hears how far it is."""
    lengths, times = SIZES if sizes is None else _check_sizes(sizes), _check_count(repeats, "repeats")
    engine = current_engine()
    grid, is_named = _find_mesh(engine, mesh)
    team = _Team(engine, grid)
    axes: list[Axes] = [(axis,) for axis in map(grid.axis, grid.axis_names) if axis.size > 1]
    if len(axes) > 1:
        axes.append(tuple(axis for (axis,) in axes))
    trials = [trial for size in lengths for some in axes for trial in team.trials(some, size)]
    seconds = team.time(trials, times, tell)
    samples = {some: [t.sample(s) for t, s in zip(trials, seconds, strict=True) if t.axes == some] for some in axes}
    links, factor = fit_links(samples)
    # Other machines may add up otherwise in the last bits, and have another clock: all take the numbers of the first.
    numbers = [x for link in links.values() for x in (link.latency, link.bandwidth, link.overhead)]
    compute, now = team.compute(), datetime.now(UTC).timestamp()
    factor, compute, now, *numbers = team.share([factor, compute, now, *numbers])[0].tolist()
    links = {name: Link(*numbers[3 * k : 3 * k + 3]) for k, name in enumerate(links)}
    when = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    version = str(sys.modules["shardwise"].__version__)  # of the package, which imports this file
    origin = Origin(when, team.hosts(), version, str(grid), lengths, times, factor)
    return Links(links if is_named else {}, slowest(list(links.values())), compute, origin)


def fit_links(samples: Mapping[Axes, Sequence[Sample]]) -> tuple[dict[str, Link], float]:
    """Return the link along every axis by the rounds that were timed, and by which factor their times are off.

    Along an axis of two devices no message is a further one: what it costs is seen in the rounds over all axes.
    """
    links = {axes: fit_link(some) for axes, some in samples.items() if len(axes) == 1}
    whole = next((axes for axes in samples if len(axes) > 1), None)
    pairs = [axes for axes in links if axes[0].size == 2]
    if whole is not None and pairs:

        def predict(sample: Sample, overhead: float) -> float:
            slow = {a: Link(k.latency, k.bandwidth, overhead if a in pairs else k.overhead) for a, k in links.items()}
            return _predict(slow, whole, sample)

        base = [predict(sample, 0) for sample in samples[whole]]
        slopes = [predict(sample, 1) - least for sample, least in zip(samples[whole], base, strict=True)]
        overhead = fit_overhead(
            [s.seconds - b for s, b in zip(samples[whole], base, strict=True)], slopes, samples[whole]
        )
        links |= {axes: Link(links[axes].latency, links[axes].bandwidth, overhead) for axes in pairs}
    pairs_of_times = [(_predict(links, axes, s), s.seconds) for axes, some in samples.items() for s in some]
    return {str(axis): link for (axis,), link in links.items()}, typical_factor(*zip(*pairs_of_times, strict=True))


def _predict(links: Mapping[Axes, Link], axes: Axes, sample: Sample) -> float:
    levels = sorted(((axis.size, links[(axis,)]) for axis in axes), key=lambda level: level[1].bandwidth)
    return move_time(levels, sample.received, sample.messages)


def slowest(links: Sequence[Link]) -> Link:
    """Return a link that is as slow as the slowest of several in everything.

    >>> slowest([Link(1e-3, 1e9), Link(1e-5, 1e8)])
    Link(latency=0.001, bandwidth=100000000.0)
    """
    return Link(
        max(link.latency for link in links),
        min(link.bandwidth for link in links),
        max(link.overhead for link in links),
    )


class _Team:
    """The processes of a mesh, as one of them sees them; they agree on numbers by gathering those of all."""

    def __init__(self, engine: Engine, mesh: DeviceMesh) -> None:
        self.engine, self.mesh = engine, mesh
        own = engine.addressable(mesh)
        if len(own) != 1:
            raise EngineError(
                f"links of {mesh!r} are measured by processes with one of its devices each; this one has {len(own)}.\n"
                "  start as many processes as the mesh has devices, and call it in all of them."
            )
        self.own = own[0]
        self.names = list(mesh.axis_names)
        self.base = engine.place(np.ones(0, DTYPE), mesh.device(self.own))

    # -- what is timed -----------------------------------------------------------------------------

    def trials(self, axes: Axes, size: int) -> Iterator[Trial]:
        """Yield the trials along some axes in which a device receives about `size` bytes."""
        names, count, elements = [str(axis) for axis in axes], prod(axis.size for axis in axes), size / DTYPE.itemsize
        rows, columns, whole = (Layout(self.mesh, dims) for dims in ([names, None], [None, names], [None, None]))
        terms = Layout(self.mesh, [None, None], names)
        shares = count / (count - 1)  # of what a device holds it receives all but its own
        for src, dst, total in (
            (rows, whole, elements * shares),
            (terms, rows, elements * shares),
            (rows, columns, elements * shares * count),
        ):
            shape = _square(total, count)
            plan = plan_reshard(src, dst, shape, DTYPE)
            messages = max(_count_messages(plan, device) for device in range(self.mesh.num_devices))
            program, arrays = program_of(plan), self._ones(src, shape)
            yield Trial(axes, program, arrays, plan.rounds, messages, plan.received.max)
        shape = _square(elements * count, count)
        received = prod(rows.local_shape(shape, self.own)) * DTYPE.itemsize
        yield Trial(axes, self._shift(rows, names, shape), self._ones(rows, shape), 1, 1, received)

    def _shift(self, layout: Layout, names: Sequence[str], shape: Shape) -> Program:
        # Every device takes what the one before it in its group has.
        storage, sources = storage_of(layout, shape), [0] * self.mesh.num_devices
        for group in self.mesh.groups(names):
            for device, source in zip(group, (group[-1], *group[:-1]), strict=True):
                sources[device] = source
        picks = tuple(storage.index(sources[storage.holder(index)]) for index in range(storage.count))
        return permutation(storage, picks, tuple(map(len, storage.holders)), DTYPE, tuple(sources))

    def _ones(self, layout: Layout, shape: Shape) -> Sequence[Array]:
        # The arrays of all trials are parts of one, so that they take the memory of the largest.
        local = layout.local_shape(shape, self.own)
        if len(self.base) < prod(local):
            self.base = self.engine.place(np.ones(prod(local), DTYPE), self.mesh.device(self.own))
        return self._hold(layout, shape, self.base[: prod(local)].reshape(local))

    def _hold(self, layout: Layout, shape: Shape, array: Array) -> Sequence[Array]:
        def make(which: int, device: int) -> Array:
            return array

        return self.engine.each(storage_of(layout, shape), np.dtype(str(array.dtype).removeprefix("torch.")), make)

    def time(self, trials: Sequence[Trial], repeats: int, tell: Tell | None) -> list[float]:
        """Return the seconds of each trial: the median of what the slowest process took, all trials in turn."""
        rounds: list[list[float]] = []
        for done in range(repeats + 1):  # the first, in which buffers and connections are made, does not count
            rounds.append([self._time(trial) for trial in trials])
            if tell is not None:
                tell(done + 1, repeats + 1)
        seconds = self.share([second for row in rounds[1:] for second in row])
        return np.median(seconds.max(axis=0).reshape(repeats, len(trials)), axis=0).tolist()

    def _time(self, trial: Trial) -> float:
        self.share([0.0])  # so that all begin together
        start = perf_counter()
        arrays = self.engine.run(trial.program, trial.arrays)
        _wait(arrays[trial.program.target.index(self.own)])
        return perf_counter() - start

    def compute(self) -> float:
        """Return the multiplications that the slowest device does in a second, while all are busy."""
        side = SIDE_ON_ACCELERATOR if is_torch(self.base) and self.base.is_cuda else SIDE
        matrix = self.engine.place(np.ones((side, side), DTYPE), self.mesh.device(self.own))
        seconds: list[float] = []
        self.share([0.0])
        for _ in range(PRODUCTS):
            start = perf_counter()
            _wait(matrix @ matrix)
            seconds.append(perf_counter() - start)
        return side**3 / float(self.share([float(np.median(seconds))]).max())

    # -- agreement ---------------------------------------------------------------------------------

    def share(self, numbers: Sequence[float]) -> np.ndarray:
        """Return the numbers of all processes, a row each, in the order of the mesh."""
        shape = (self.mesh.num_devices, len(numbers))
        src, dst = Layout(self.mesh, [self.names, None]), Layout(self.mesh, [None, None])
        own = self.engine.place(np.array([numbers], NUMBERS), self.mesh.device(self.own))
        program = program_of(plan_reshard(src, dst, shape, NUMBERS))
        whole = self.engine.run(program, self._hold(src, shape, own))[0]
        return np.array(whole.tolist(), NUMBERS)

    def hosts(self) -> tuple[str, ...]:
        """Return the names of the hosts of all processes, each once."""
        name = socket.gethostname().encode("ascii", "replace")[:LONGEST]
        rows = self.share(list(name.ljust(LONGEST, b"\0")))
        return tuple(dict.fromkeys(bytes(map(int, row)).rstrip(b"\0").decode("ascii") for row in rows))


def _wait(array: Array) -> None:
    array.reshape(-1)[:1].tolist()  # which an accelerator can only tell when it is done


def _square(elements: float, count: int) -> Shape:
    side = max(1, round(elements**0.5 / count)) * count
    return side, side


def _count_messages(plan: Plan, device: int) -> int:
    rounds = [transfers for step in plan.steps for transfers in step.rounds(device)]
    return sum(len({t.source for t in transfers if t.target == device}) for transfers in rounds)


def _find_mesh(engine: Engine, mesh: DeviceMesh | None) -> tuple[DeviceMesh, bool]:
    # The mesh that is measured, and whether somebody named its axes.
    if engine.holds_all or not engine.has_values or not engine.talks_through_torch:
        raise EngineError(
            f"links are measured between processes, and here all devices are in one (engine {engine.name!r}).\n  {FIX}"
        )
    is_named = True
    try:
        mesh = current_mesh(mesh)
    except MeshError:
        import torch.distributed as dist

        kind, count = type(default_device()), dist.get_world_size()
        mesh, is_named = DeviceMesh((count,), ("all",), [kind(rank) for rank in range(count)]), False
    if mesh.num_devices < 2:
        raise EngineError(f"{mesh!r} has one device, which has no links to measure.\n  {FIX}")
    return mesh, is_named


def _check_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    out = tuple(_check_count(size, "a size in bytes") for size in as_tuple(sizes, "sizes is a list of bytes"))
    if not out:
        raise ArgumentError("sizes is a list of bytes that a device receives, got none.")
    return out


def _check_count(value: object, what: str) -> int:
    number = check_int(value, f"{what} is a whole number")
    if number < 1:
        raise ArgumentError(f"{what} is a whole number above 0, got {number}.")
    return number
