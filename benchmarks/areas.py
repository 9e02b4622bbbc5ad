"""Areas: what is measured, by which module, beside which peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, cast

from benchmarks.clock import Effort
from benchmarks.row import Row

EXTRAS = {"torch": "torch", "jax": "jax", "xdsl": "mlir", "numba": "fast"}  # which extra of shardwise brings a package


class AreaError(Exception):
    """An area that does not exist, or lacks a package."""


class Module(Protocol):
    """What the module of an area has."""

    def count(self, effort: Effort) -> int:
        """Return how many rows there will be."""
        ...

    def rows(self, effort: Effort) -> Iterator[Row]:
        """Measure, and yield the rows as they are done."""
        ...


@dataclass(frozen=True, slots=True)
class Area:
    """One part of the report."""

    name: str
    title: str
    needs: tuple[str, ...]
    text: str

    @property
    def module(self) -> Module:
        """What measures it."""
        return cast(Module, import_module(f"benchmarks.{self.name}"))


AREAS = [
    Area(
        "traffic",
        "Bytes against the lower bound",
        ("torch",),
        "Every transition of a tensor of rank 2, 8192x8192 float32, between placements on a mesh: the bytes that all "
        "devices receive, beside the least that any plan can do with. DTensor's collectives are counted as well done "
        "as they can be. Partial are the transitions that reduce something.",
    ),
    Area(
        "planning",
        "Planning",
        ("torch",),
        "Seconds of a plan: cold of random transitions that were never asked for before, of tensors of rank 1 to 5 "
        "by axes and 1 to 3 by devices; warm of the same ones again. DTensor's graph search is given fewer. The last "
        "rows are what is asked for often, on a mesh of a million devices.",
    ),
    Area(
        "local",
        "Reshards and collectives in one process",
        ("torch", "jax"),
        "Eight virtual devices, float32. The floor is the fastest of several ways to write the same by hand in NumPy, "
        "with all views and buffers ready: copies of the parts in common, one strided copy, wide elements, sums in "
        "blocks, buffers that begin apart in their pages. Cold is the first call in the process, once. A letter is a "
        "mesh axis: [x|y] splits dim 0 by x and "
        "dim 1 by y; S0 is split in dim 0, R replicated, P eight arrays to be added up. JAX is given 16 threads: with "
        "fewer than devices its collectives can deadlock.",
    ),
    Area(
        "dispatch",
        "What a call costs",
        ("torch", "jax"),
        "Ops on 16x16 and reshards of 64x64 float32 over eight virtual devices, so small that nothing else matters. "
        "The floor is the same calls of NumPy on the same shards, made by hand. Cold is the first call in the process, "
        "once; JAX compiles in it.",
    ),
    Area(
        "training",
        "Training steps",
        ("torch", "jax"),
        "A step (forward, backward, update) of a network of two layers, float32: batch over two devices, hidden units "
        "over four, in one process. The floor is the step in NumPy on one device, derivatives written by hand. The "
        "last row is the most memory that transformer layers take at once, forward and backward, on one device, beside "
        "torch: ours on torch arrays too, both by the allocations that torch's profiler saw.",
    ),
    Area(
        "drawing",
        "Random numbers",
        ("torch", "numba"),
        "Numbers in an array, on one core and on two: ours by the position of each element, so that every layout and "
        "number of devices gets the same, compiled by numba (the extra `fast`); those of NumPy and torch come one "
        "after the other. NumPy has no dropout: it is a mask of uniform numbers and two products.",
    ),
    Area(
        "gloo",
        "Between processes",
        ("torch",),
        "Four processes on this machine over gloo, one thread each, float32; ours guarded, as it is by default, where "
        "nothing else is said. By hand is the best of the collectives that a person would call, with the packing that "
        "they need: one all_to_all_single of just the bytes that are needed, all_gather, all_reduce, reduce_scatter. "
        "DTensor has its axes flattened, so that it merges collectives. A round's time is that of the slowest process.",
    ),
    Area(
        "links",
        "Predicted times between processes",
        ("torch",),
        "The reshards of the area before it, as what the plan says they take over links that the same four processes "
        "have measured first (`Links.measure`), beside what they took then: the ratio is predicted / measured. In the "
        "last rows, by which factor predictions are off, whichever way: the geometric mean and the worst.",
    ),
    Area(
        "dialect",
        "Passes over modules of the shard dialect",
        ("xdsl",),
        "Modules of MLIR's shard dialect, from text to text, by the number of their ops: layers of a network that is "
        "annotated once a layer, and a chain in which every second op changes the sharding. mlir-opt-19 reads and "
        "prints the same module in its own words (the mesh dialect); its times are those that it takes itself, without "
        "starting. It is compiled C++, ours is Python.",
    ),
    Area(
        "growth",
        "How it grows",
        ("torch", "jax"),
        "One change of layout, S0 -> S1, by the bytes of the tensor on eight devices, and by the number of devices at "
        "64 KiB a device; and a tensor split by every axis of a mesh of two devices an axis, whose axes change "
        "places. Fits are lines through the logarithms of all points, constant costs included. Where other areas have "
        "rows by size, their fits are with them.",
    ),
]
NAMES = tuple(area.name for area in AREAS)


def chosen(names: Sequence[str]) -> list[Area]:
    """Return areas by their names, in the order of the report; all without names.

    >>> [area.name for area in chosen(["traffic"])]
    ['traffic']
    """
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise AreaError(f"unknown area {unknown[0]!r}.\n  areas: {', '.join(NAMES)}")
    return [area for area in AREAS if not names or area.name in names]


def require(areas: Sequence[Area]) -> None:
    """Refuse areas whose peers are not installed."""
    lacking = {need: area for area in reversed(areas) for need in area.needs if find_spec(need) is None}
    if not lacking:
        return
    extras = ",".join(sorted(EXTRAS[need] for need in lacking))
    lines = [f"the area {area.name!r} compares with {need}, which is not installed." for need, area in lacking.items()]
    fix = f"  pip install 'shardwise[{extras}]', or `make bench` in a checkout, which installs the pinned versions"
    raise AreaError("\n".join([*sorted(lines), fix]))
