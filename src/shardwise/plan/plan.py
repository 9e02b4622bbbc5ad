"""Plans: how a tensor gets from one layout to another, as a value that can be read, costed and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np

from shardwise.caches import cache, cached_property
from shardwise.errors import PlanError, check_int
from shardwise.layout.context import current_mesh
from shardwise.layout.conversion import LayoutLike, as_layout
from shardwise.layout.layout import Layout, Shape, check_shape
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.notebook import Drawable, Tabular
from shardwise.layout.placement import ReduceOp, accumulator, check_dtype
from shardwise.layout.spec import P
from shardwise.plan.align import align_layout
from shardwise.plan.bound import lower_bound
from shardwise.plan.cost import Link, Links
from shardwise.plan.explain import Explanation, explain_plan
from shardwise.plan.search import Search
from shardwise.plan.staging import most_staging
from shardwise.plan.steps import COUNTED, Bytes, Slots, Step
from shardwise.plan.transfer import DeviceName, Transfer

MOST_BYTES = 2**62  # of a tensor, so that what a device sends and receives can be counted
STAGING = 64 * 2**20  # bytes that a device may use beside its shards, unless told otherwise

# What never changes its meaning, so that a plan can be found by what was asked for.
DTYPES: tuple[type, ...] = (str, np.dtype)
LASTING = frozenset((Layout, P))


@dataclass(frozen=True, init=False)
class Plan(Drawable, Tabular):
    """The steps that take a tensor from layout `src` to layout `dst`, with their traffic and time.

    >>> from shardwise import DeviceMesh, P
    >>> mesh = DeviceMesh((2, 4), ("dp", "tp"))
    >>> plan = plan_reshard(P("dp", "tp"), P(None, "dp"), (1024, 4096), "float32", mesh=mesh)
    >>> plan.received.max == plan.lower_bound.max
    True
    >>> plan.received.of(0), plan.sent.of(0), plan.estimate, plan.rounds, plan.staging_bytes
    (6291456, 6291456, 67108864, 1, 8388608)
    >>> f"{plan.time:.6f} s", len(plan.digest)
    ('0.000346 s', 16)
    >>> plan.transfers(0)[0][0]
    Transfer(source=1, target=0, box=((0, 512), (1024, 2048)))
    >>> plan.traffic()[0]
    array([      0, 2097152, 2097152, 2097152,       0,       0,       0,
                 0])
    >>> [alternative.name for alternative in plan.explain().alternatives]
    ['gather, then slice', 'axis by axis', 'one direct exchange']
    """

    src: Layout
    dst: Layout
    shape: Shape
    dtype: np.dtype
    links: Links
    memory_limit: int
    # What follows is computed from the fields above, so it need not be compared.
    steps: tuple[Step, ...] = field(compare=False)
    search: Search = field(repr=False, compare=False)

    def __init__(
        self,
        src: Layout,
        dst: Layout,
        shape: Shape,
        dtype: np.dtype,
        links: Links,
        memory_limit: int,
        steps: tuple[Step, ...],
        search: Search,
    ) -> None:
        """Set all fields at once, which is faster than one by one."""
        vars(self).update(
            src=src,
            dst=dst,
            shape=shape,
            dtype=dtype,
            links=links,
            memory_limit=memory_limit,
            steps=steps,
            search=search,
        )

    # -- traffic -----------------------------------------------------------------------------------

    @property
    def received(self) -> Bytes:
        """The bytes that each device receives."""
        return self._add_up([step.received for step in self.steps if not step.is_local])

    @property
    def sent(self) -> Bytes:
        """The bytes that each device sends."""
        return self._add_up([step.sent for step in self.steps if not step.is_local])

    @property
    def lower_bound(self) -> Bytes:
        """The bytes that each device must receive under any plan."""
        return lower_bound(self.search)

    def _add_up(self, parts: Sequence[Bytes]) -> Bytes:
        slots = self.search.slots
        return Bytes(
            slots,
            lambda slot: sum(part.count(slot) for part in parts),
            lambda: sum((part.each for part in parts), np.zeros(slots.count, dtype=np.int64)),
            lambda: sum(part.total for part in parts),
        )

    def transfers(self, device: DeviceName) -> list[Sequence[Transfer[DeviceName]]]:
        """Return, step by step, the transfers that concern one device: length and items at once, even of a million.

        The sequence of a step is equal to a list of its items; its `arrays()` has all of it as NumPy arrays.
        """
        return [step.transfers(device) for step in self.steps]

    def traffic(self) -> np.ndarray:
        """Return the bytes from each device (row) to each device (column); for meshes small enough to print."""
        slots = self.search.slots
        if slots.count > COUNTED:
            raise PlanError(f"a traffic matrix of {slots.count} devices is too large; ask transfers(device) of some.")
        out = np.zeros((slots.count, slots.count), dtype=np.int64)
        for step in self.steps:
            moves = step.moves[:: -1 if step.reverses else 1]
            for slot in range(slots.count):
                for move, transfers in zip(moves, step.rounds(slot), strict=True):
                    for transfer in transfers:
                        if transfer.target == slots.name(slot):
                            out[slots.find(transfer.source), slot] += transfer.size * step.width(move)
        return out

    # -- cost --------------------------------------------------------------------------------------

    @property
    def time(self) -> float:
        """The seconds that the plan takes under the model of the links."""
        return sum(step.time for step in self.steps)

    @property
    def estimate(self) -> int:
        """The bytes between all devices as the cost model sees them; `received.total` counts them."""
        return int(sum(sum(step.estimates) for step in self.steps) * self.search.slots.count)

    @property
    def staging_bytes(self) -> int:
        """The bytes that a device needs at most beside its source and target shard."""
        return max((step.staging_bytes for step in self.steps), default=0)

    @property
    def rounds(self) -> int:
        """How many rounds of messages there are, chunks not counted."""
        return sum(len(step.moves) for step in self.steps)

    @cached_property
    def digest(self) -> str:
        """A stable name for the plan: equal in every process, whatever its hash seed."""
        mesh = [(m.name, m.mesh_shape, m.axis_names, repr(m.order)) for m in (self.src.mesh, self.dst.mesh)]
        steps = [(s.kind, tuple(map(str, s.axes)), str(s.before), str(s.after), s.chunks, s.grain) for s in self.steps]
        text = repr((mesh, repr(self.src), repr(self.dst), self.shape, str(self.dtype), steps))
        return sha256(text.encode()).hexdigest()[:16]

    # -- for people --------------------------------------------------------------------------------

    def explain(self) -> Explanation:
        """Return this plan beside the obvious alternatives, with the bytes and time of each."""
        return explain_plan(self.search, self.steps, self.memory_limit)


def plan_reshard(
    src: LayoutLike,
    dst: LayoutLike,
    shape: Sequence[int],
    dtype: Any,
    *,
    mesh: DeviceMesh | None = None,
    links: Links | Mapping[str, Link] | Link | None = None,
    memory_limit: int | None = None,
) -> Plan:
    """Return the cheapest plan that takes a tensor from layout `src` to layout `dst`.

    The layouts are on one mesh or on two (of other shape or device order, subsets, disjoint, with a device in several
    slots, which then holds what each of them holds). `mesh` (or that of the
    `mesh_context`) is used for layouts that name none, such as `P(...)`. `links` gives latency and bandwidth per
    mesh axis, `memory_limit` the bytes a device may use beside its shards.

    >>> from shardwise import DeviceMesh, P
    >>> plan = plan_reshard(P("x", None), P(None, "x"), (8, 8), "int8", mesh=DeviceMesh((4,), ("x",)))
    >>> [step.kind for step in plan.steps]
    ['all_to_all']
    """
    if (
        (links is memory_limit is None)
        and shape.__class__ is tuple
        and isinstance(dtype, DTYPES)
        and (
            src.__class__ is dst.__class__ is Layout
            or (mesh is not None and LASTING.issuperset((type(src), type(dst))))
        )
    ):
        try:
            plan = _plan_as_asked(src, dst, shape, dtype, mesh)
        except TypeError:  # something that has no hash, or is wrong: below it is taken as it is, or refused
            pass
        else:
            if plan.shape is not shape:  # 8.0 and True are no sizes, and found as 8 and 1
                check_shape(shape)
            return plan
    return _convert_and_plan(src, dst, shape, dtype, mesh, links, memory_limit)


def _convert_and_plan(
    src: LayoutLike,
    dst: LayoutLike,
    shape: Sequence[int],
    dtype: Any,
    mesh: DeviceMesh | None,
    links: Links | Mapping[str, Link] | Link | None,
    memory_limit: int | None,
) -> Plan:
    sizes, kind = check_shape(shape), check_dtype(dtype)
    if (whole := prod(sizes) * kind.itemsize) > MOST_BYTES:
        raise PlanError(f"a tensor has at most 2**62 bytes, but {sizes} of {kind} has {whole}.")
    mesh = None if mesh is None else current_mesh(mesh)
    limit = STAGING if memory_limit is None else check_int(memory_limit, "memory_limit is a number of bytes")
    if limit < 0:
        raise PlanError(f"memory_limit is 0 bytes or more, got {limit}.")
    a, b = as_layout(src, len(sizes), mesh), as_layout(dst, len(sizes), mesh)
    if links is None or (own_links := Links.of(links)) == LINKS:
        own_links = None
    return _plan(a, b, sizes, kind, own_links, limit)


@cache()
def _plan_as_asked(src: Layout | P, dst: Layout | P, shape: Shape, dtype: Any, mesh: DeviceMesh | None) -> Plan:
    # What is asked again in the same words is found before anything is converted.
    return _convert_and_plan(src, dst, shape, dtype, mesh, None, None)


LINKS = Links()


@cache()
def _plan(src: Layout, dst: Layout, shape: Shape, dtype: np.dtype, own_links: Links | None, limit: int) -> Plan:
    links = own_links or LINKS  # which takes long to hash
    for layout in (src, dst):
        layout.tiling(shape)
        layout.check_dtype(dtype)
    links.check(src.mesh, dst.mesh)
    search = _search(src, dst, shape, dtype, links)
    steps, most = search.best(), most_staging(search.slots.count, len(shape)) * max(dtype.itemsize, search.wide)
    if limit < most or search.numbers is not None:
        steps = _stageable(steps, limit)
    return Plan(src, dst, shape, dtype, links, limit, tuple([step.staged(limit) for step in steps]), search)


def _stageable(steps: list[Step], limit: int) -> list[Step]:
    least = max((step.least_staging for step in steps), default=0)
    if limit >= least:
        return steps
    tight = next(step for step in steps if step.least_staging == least)
    boxes = least // max(tight.widths or (tight.itemsize,))
    raise PlanError(
        f"memory_limit={limit} is too small for {tight}: a device takes in up to {boxes} boxes "
        f"at once.\n  the smallest limit that would do is {least} bytes."
    )


def _search(src: Layout, dst: Layout, shape: Shape, dtype: np.dtype, links: Links) -> Search:
    is_rounded = src.reduce_op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PROD)
    wide = accumulator(dtype).itemsize if is_rounded else dtype.itemsize
    aligned = align_layout(dst, src.mesh)
    if aligned is not None:
        slots = Slots(src.mesh.num_devices, None if src.mesh is dst.mesh else src.mesh)
        return Search(src, aligned, shape, dtype.itemsize, links, slots, wide=wide)
    devices = tuple(dict.fromkeys((*src.mesh.devices, *dst.mesh.devices)))
    slot = {device: i for i, device in enumerate(devices)}
    numbers = tuple(slot[d] for d in src.mesh.devices), tuple(slot[d] for d in dst.mesh.devices)
    return Search(src, dst, shape, dtype.itemsize, links, Slots(len(devices), devices), numbers, wide)
