"""Steps: what a plan is made of, each one collective or one local change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shardwise.caches import cached_property
from shardwise.errors import PlanError, as_int, check_int
from shardwise.layout.axis import Axis
from shardwise.layout.device import Device
from shardwise.layout.layout import Layout
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.tiling import Box
from shardwise.names import Renamed
from shardwise.plan.align import index_of
from shardwise.plan.crowd import Crowd
from shardwise.plan.holders import Holders
from shardwise.plan.kinds import Kind
from shardwise.plan.movement import Movement
from shardwise.plan.moves import Move, Shares
from shardwise.plan.staging import Staging
from shardwise.plan.transfer import DeviceName, Transfer, pieces
from shardwise.plan.transfers import Transfers, chain

State = Layout | Shares | Crowd  # between reducing and spreading, devices hold shares rather than a layout
COUNTED = 4096  # devices up to which bytes are counted for people; above, those of the cost model are shown

# What a step is called when it is transposed; a fill that makes partial values is its own transpose.
ADJOINTS: dict[Kind, Kind] = {
    "slice": "fill",
    "fill": "slice",
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "all_reduce": "all_reduce",
    "all_to_all": "all_to_all",
    "permute": "permute",
    "exchange": "exchange",
    "halo_exchange": "halo_accumulate",
    "halo_accumulate": "halo_exchange",
}


@dataclass(frozen=True, init=False)
class Slots:
    """The devices that take part, as slots 0 to `count` - 1; outside they go by index or, between meshes, by device."""

    count: int
    devices: DeviceMesh | tuple[Device, ...] | None = None

    def __init__(self, count: int, devices: DeviceMesh | tuple[Device, ...] | None = None) -> None:
        """Set both fields at once."""
        vars(self).update(count=count, devices=devices)

    def name(self, slot: int) -> DeviceName:
        """Return what a slot is called outside: its index, or its device."""
        if self.devices is None:
            return slot
        return self.devices[slot] if isinstance(self.devices, tuple) else self.devices.device(slot)

    def find(self, device: DeviceName) -> int:
        """Return the slot of a device index, or of a device where two meshes meet."""
        if self.devices is None:
            slot = as_int(device)
            if slot is None or not 0 <= slot < self.count:
                raise PlanError(f"the plan has devices 0 to {self.count - 1}, got {device!r}.")
            return slot
        slot = self._slot_of(device) if isinstance(device, Device) else None
        if slot is None:
            names = ", ".join(repr(self.name(first)) for first in range(min(4, self.count)))
            raise PlanError(
                f"this plan goes between two meshes, where a device is given as a Device, got {device!r}.\n"
                f"  devices: {names}{', ...' if self.count > 4 else ''}"
            )
        return slot

    def _slot_of(self, device: Device) -> int | None:
        return index_of(self.devices, device) if isinstance(self.devices, DeviceMesh) else self._slots.get(device)

    @cached_property
    def _slots(self) -> dict[DeviceName, int]:
        return {self.name(slot): slot for slot in range(self.count)}


@dataclass(frozen=True)
class Bytes:
    """Bytes per device: of one device, or the largest, the mean and the total over all.

    Nothing is computed before it is asked for.

    >>> from shardwise import DeviceMesh, P, plan_reshard
    >>> received = plan_reshard(P("x"), P(), (10,), "int8", mesh=DeviceMesh((4,), ("x",))).received
    >>> received
    Bytes(max=8, mean=7.5, total=30)
    >>> received.of(3), received.each, received.max, received.mean, received.total
    (8, array([7, 7, 8, 8]), 8, 7.5, 30)
    """

    slots: Slots
    count: Callable[[int], int]
    count_each: Callable[[], np.ndarray] | None = None
    count_total: Callable[[], int] | None = None

    def of(self, device: DeviceName) -> int:
        """Return the bytes of one device, given as its index (or as a Device where two meshes meet)."""
        return int(self.count(self.slots.find(device)))

    @cached_property
    def each(self) -> np.ndarray:
        """The bytes of every slot."""
        if self.count_each is not None:
            return self.count_each()
        return np.array([self.count(slot) for slot in range(self.slots.count)], dtype=np.int64)

    @property
    def max(self) -> int:
        """The bytes of the device that has most."""
        return int(self.each.max())

    @property
    def mean(self) -> float:
        """The mean over all devices."""
        return self.total / self.slots.count

    @property
    def total(self) -> int:
        """The sum over all devices."""
        return add_bytes(self.each) if self.count_total is None else self.count_total()

    def __repr__(self) -> str:
        return f"Bytes(max={self.max}, mean={self.mean:.1f}, total={self.total})"


def add_bytes(each: np.ndarray) -> int:
    """Return the sum of numbers of bytes, which may be more than an integer of NumPy holds.

    >>> add_bytes(np.full(4, 2**62))
    18446744073709551616
    """
    fits = int(each.max(initial=0)) * each.size < 2**63
    return int(each.sum()) if fits else sum(each.tolist())


@dataclass(frozen=True, init=False)
class Step:
    """One step of a plan: a collective over the devices that differ in `axes`, or a local change.

    `moves` are its rounds of communication: none for a local step, two for an all-reduce. `estimates` and `sends`
    are the bytes that the busiest device receives and sends in each, as the cost model sees them.

    >>> from shardwise import DeviceMesh, P, plan_reshard
    >>> mesh = DeviceMesh((2, 2), ("x", "y"))
    >>> (step,) = plan_reshard(P("x", "y"), P("x"), (4, 4), "float32", mesh=mesh).steps
    >>> str(step), step.mesh is mesh, step.groups, step.is_local
    ('all_gather over y', True, [(0, 1), (2, 3)], False)
    >>> step.width(step.moves[0])  # bytes of an element
    4
    >>> step.loads, step.received.of(0), step.sent.of(0)
    ((16.0,), 16, 16)
    >>> step.transfers(0)
    [Transfer(source=1, target=0, box=((0, 2), (2, 4))), Transfer(source=0, target=1, box=((0, 2), (0, 2)))]
    >>> [len(transfers) for transfers in step.rounds(0)], step.adjoint.kind
    ([2], 'reduce_scatter')
    >>> step.least_staging, step.staged(4).chunks
    (8, 4)
    >>> step.staged(16).staging_bytes, step.staged(16).grain, step.staged(64).grain
    (16, (1, 2), None)
    >>> (fill,) = plan_reshard(P("x"), P("x", unreduced=["y"]), (4, 4), "float32", mesh=mesh).steps
    >>> fill.kind, fill.kept(0), fill.kept(1)
    ('fill', [((0, 1), (0, 4))], [((1, 2), (0, 4))])
    """

    kind: Kind
    axes: tuple[Axis, ...]
    before: State
    after: State
    slots: Slots
    itemsize: int
    moves: tuple[Move, ...] = ()
    estimates: tuple[float, ...] = ()
    sends: tuple[float, ...] = ()
    time: float = 0.0
    staging: Staging | None = field(default=None, repr=False)  # how the step is cut into chunks, if it has a limit
    reverses: bool = False
    shares: Shares | Crowd | None = None  # of a fill that makes partial values: who keeps what
    widths: tuple[int, int] | None = None  # bytes of an element before and after, if sums are carried in a wider dtype

    def __init__(
        self,
        kind: Kind,
        axes: tuple[Axis, ...],
        before: State,
        after: State,
        slots: Slots,
        itemsize: int,
        moves: tuple[Move, ...] = (),
        estimates: tuple[float, ...] = (),
        sends: tuple[float, ...] = (),
        time: float = 0.0,
        staging: Staging | None = None,
        reverses: bool = False,
        shares: Shares | Crowd | None = None,
        widths: tuple[int, int] | None = None,
    ) -> None:
        """Set all fields at once: one by one, as frozen dataclasses do it, takes three times as long."""
        vars(self).update(
            kind=kind,
            axes=axes,
            before=before,
            after=after,
            slots=slots,
            itemsize=itemsize,
            moves=moves,
            estimates=estimates,
            sends=sends,
            time=time,
            staging=staging,
            reverses=reverses,
            shares=shares,
            widths=widths,
        )

    ground = Renamed("slots")

    def width(self, move: Movement) -> int:
        """Return the bytes of an element that travels in one of the moves: what is sent on has been reduced."""
        return self.itemsize if self.widths is None else self.widths[move.spreads]

    @property
    def _widest(self) -> int:
        return self.itemsize if self.widths is None else max(self.widths)

    def kept(self, device: DeviceName) -> list[Box] | None:
        """Return the boxes whose value a device keeps in a fill; it has identities elsewhere. None is all."""
        return None if self.shares is None else list(self.shares.boxes_to_keep(self.slots.find(device)))

    @property
    def loads(self) -> tuple[float, ...]:
        """Per round, the bytes that the busiest device receives, or sends if that is more, as the model sees it."""
        return tuple(map(max, self.estimates, self.sends))

    @property
    def is_local(self) -> bool:
        """Whether no device sends anything."""
        return not self.moves

    @property
    def groups(self) -> list[tuple[DeviceName, ...]]:
        """The groups of devices that talk to each other."""
        if self.is_local:
            return []
        if isinstance(self.slots.devices, tuple):  # two meshes meet, whose axes say nothing about each other
            return [self.slots.devices]
        return [tuple(map(self.slots.name, group)) for group in self.mesh.groups([str(a) for a in self.axes])]

    @property
    def mesh(self) -> DeviceMesh:
        """The mesh that the step begins on."""
        return (self.before if isinstance(self.before, Layout) else self.before.src.layout).mesh

    @property
    def received(self) -> Bytes:
        """The bytes that each device receives."""
        return Bytes(
            self.slots, lambda slot: self._count_bytes(slot, not self.reverses), self._count_each, self._count_total
        )

    @property
    def sent(self) -> Bytes:
        """The bytes that each device sends."""
        return Bytes(self.slots, lambda slot: self._count_bytes(slot, self.reverses), None, self._count_total)

    def _count_total(self) -> int:
        # By formulas, which do not look at devices; what is received in all is what is sent.
        total = 0
        for move in self.moves:
            moved = move.count_moved()
            if moved is None:
                return add_bytes(self._count_each())
            total += moved * self.width(move)
        return total

    def _count_bytes(self, slot: int, inward: bool) -> int:
        total = 0
        for move in self.moves:
            total += (move.count_received(slot) if inward else move.count_sent(slot)) * self.width(move)
        return total

    def _count_each(self) -> np.ndarray:
        out = np.zeros(self.slots.count, dtype=np.int64)
        for move in self.moves:
            src, dst = move.holders
            if not self.reverses and move.is_counted and src.is_on_common_mesh and dst.is_on_common_mesh:
                out += count_missing(src, dst) * self.width(move)
            else:
                step = replace(self, moves=(move,))
                sizes = [step._count_bytes(slot, not self.reverses) for slot in range(self.slots.count)]
                out += np.array(sizes, dtype=np.int64)
        return out

    def transfers(self, device: DeviceName, chunk: int | None = None) -> Sequence[Transfer[DeviceName]]:
        """Return the transfers that concern one device; with `chunk`, those of one of its `chunks` only.

        They are `Transfers`, which are listed only as far as they are looked at; those of one of several chunks a list.
        """
        rounds = list(self.rounds(self.slots.find(device)))
        if not chunk and (chunk is None or self.grain is None):
            return chain(rounds)
        return [t for transfers in rounds for t in self._chunk(transfers, chunk)]

    def rounds(self, slot: int) -> Iterator[Transfers]:
        """Yield, per round, the transfers that concern one slot: what it receives, then what it sends."""
        name = None if self.slots.devices is None else self.slots.name
        for move in self.moves[:: -1 if self.reverses else 1]:
            segments, shape = (*move.find_incoming(slot), *move.find_outgoing(slot)), move.holders[0].shape
            dtype = np.int32 if max(self.slots.count, *shape, 0) < 2**31 else np.int64
            yield Transfers(segments, len(shape), dtype, name, self.reverses)

    def _chunk(self, transfers: Transfers, chunk: int | None) -> Iterator[Transfer[DeviceName]]:
        if self.grain is None:  # there is one chunk, which is another
            return
        for transfer in transfers:
            for index, box in enumerate(pieces(transfer.box, self.grain)):
                if index == chunk:
                    yield transfer._replace(box=box)

    def staged(self, limit: int) -> Step:
        """Return the step cut into chunks so that no device stages more than `limit` bytes at once.

        The limit is at least `least_staging`.
        """
        if limit.__class__ is not int:
            limit = check_int(limit, "the limit of a step is a number of bytes")
        if not self.moves:
            return self
        step = object.__new__(Step)
        vars(step).update(vars(self), staging=Staging(self.kind, self.axes, self.moves, self._widest, limit))
        return step

    @property
    def staging_bytes(self) -> int:
        """The bytes that a device needs at once beside its shards, while it takes in a chunk."""
        return 0 if self.staging is None else self.staging.bytes

    @property
    def grain(self) -> tuple[int, ...] | None:
        """How long a box of a chunk is at most in each dim; None where the step is one chunk."""
        return None if self.staging is None else self.staging.grain

    @property
    def chunks(self) -> int:
        """How many chunks the step is cut into."""
        return 1 if self.staging is None else self.staging.chunks

    @property
    def least_staging(self) -> int:
        """The smallest limit that the step can be staged under: one element from everyone it hears at once."""
        staging = self.staging or Staging(self.kind, self.axes, self.moves, self._widest, 0)
        return staging.least

    @property
    def adjoint(self) -> Step:
        """The transposed step, as a linear map between the stacks of local arrays.

        A step (one whose reduction, if it has one, is the sum) gives each device, in every round, what it
        keeps of its own array, zero elsewhere, plus the boxes that it receives. It keeps what it has both
        before and after (between the two rounds of an all-reduce: its shares), and in a fill that makes
        partial values only its `kept` boxes. Transposed, the same boxes travel the other way, the rounds in
        reverse: what was copied is summed, what was summed is copied, what was dropped is zero. Boxes are added
        as they arrive; `staging_bytes` and `chunks` are still those of the step itself.
        """
        kind: Kind = ADJOINTS[self.kind] if self.shares is None else self.kind
        return replace(self, kind=kind, before=self.after, after=self.before, reverses=not self.reverses)

    def __str__(self) -> str:
        return f"{self.kind} over {', '.join(map(str, self.axes))}" if self.axes else self.kind


def count_missing(src: Holders, dst: Holders) -> np.ndarray:
    """Return, for every device of the mesh, how many elements of its target box it does not hold."""
    slots = np.arange(src.layout.mesh.num_devices)
    sizes = np.ones(len(slots), dtype=np.int64)
    own_sizes = np.ones(len(slots), dtype=np.int64)
    for dim in range(src.layout.rank):
        (start, stop), (first, last) = (_bounds_of(holders, dim, slots) for holders in (dst, src))
        sizes *= stop - start
        own_sizes *= np.maximum(0, np.minimum(stop, last) - np.maximum(start, first))
    return sizes - own_sizes


def _bounds_of(holders: Holders, dim: int, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    tiling = holders.tiling.dims[dim]
    table = np.array([tiling.extent(part) for part in range(tiling.parts)], dtype=np.int64).clip(0, tiling.size)
    part = np.zeros_like(slots)
    for divisor, size in holders.tiling.radix[dim]:
        part = part * size + slots // divisor % size
    return table[part, 0], table[part, 1]
