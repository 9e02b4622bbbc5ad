"""Costs: what a movement takes under a simple model of the links between devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real

from shardwise.errors import ArgumentError, PlanError, seal
from shardwise.layout.axis import Axis, check_disjoint, overlap
from shardwise.layout.context import current_mesh
from shardwise.layout.mesh import DeviceMesh
from shardwise.layout.slot import Slot
from shardwise.plan.cluster import cluster_of
from shardwise.plan.link import Link
from shardwise.plan.link_file import LinkRecord, Origin, PathLike, read_links, write_links

COMPUTE = 8e11  # multiplications a second: what a CPU with wide vectors does in float32; accelerators do far more


# Measures links by the processes that talk over them: of a mesh, with messages of these sizes, so often.
measure_links: Slot[[DeviceMesh | None, Sequence[int] | None, int], Links] = Slot("measure_links")
REPEATS = 9


@seal
@dataclass(frozen=True, slots=True, init=False)
class Links:
    """The link along each mesh axis, and how fast devices compute; axes that are not named have the default link.

    `compute` is how many multiplications a device does in a second. With the default link, 32 of them take as long as
    to send one byte: so much work is worth a byte when there is a choice between sending and working twice.

    A sub-axis may be named, so that an axis which spans machines has slow outer and fast inner links. Nobody uses links
    that were not given: `measure`, `load` and `cluster` return them, and what is done with them is up to you.

    >>> Links({"dp": Link(2e-5, 10e9), "tp": Link(1e-6, 400e9)}).default
    Link(latency=1e-05, bandwidth=25000000000.0)
    >>> _ = Links({"gpu:(1)4": Link(2e-5, 10e9), "gpu:(4)8": Link(1e-6, 400e9)})  # 4 machines of 8
    >>> from shardwise import DeviceMesh
    >>> mesh = DeviceMesh((2, 4), ("dp", "tp"))
    >>> links = Links.of({"dp": Link(2e-5, 10e9)})
    >>> links.on(mesh, [mesh.axis("tp"), mesh.axis("dp")])
    [(2, Link(latency=2e-05, bandwidth=10000000000.0)), (4, Link(latency=1e-05, bandwidth=25000000000.0))]
    >>> links.check(DeviceMesh((2,), ("tp",)))
    Traceback (most recent call last):
    shardwise.LayoutError: unknown mesh axis 'dp' in links.
      mesh axes: tp=2
      did you mean 'tp'?
    """

    axes: tuple[tuple[str, Link], ...]
    default: Link = field(default=Link())
    compute: float = COMPUTE
    origin: Origin | None = field(default=None, compare=False, repr=False)  # of measured ones

    def __init__(
        self,
        axes: Mapping[str, Link] | None = None,
        default: Link | None = None,
        compute: float = COMPUTE,
        origin: Origin | None = None,
    ) -> None:
        """Give the link per axis name, one for all others, and the multiplications that a device does in a second."""
        by_axis = dict(axes or {})
        for name, link in by_axis.items():
            if not isinstance(name, str) or not isinstance(link, Link):
                raise ArgumentError(f"links map axis names to Link values, got {name!r}: {link!r}.")
        if not isinstance(default, Link | None):
            raise ArgumentError(f"the default of links is a Link, got {default!r}.")
        object.__setattr__(self, "axes", tuple(sorted(by_axis.items(), key=lambda item: item[0])))
        if isinstance(compute, bool) or not isinstance(compute, Real):
            raise ArgumentError(f"compute is a number of multiplications a second, got {compute!r}.")
        if not compute > 0:
            raise PlanError(f"compute is a number of multiplications a second above 0, got {compute}.")
        object.__setattr__(self, "default", default or Link())
        object.__setattr__(self, "compute", float(compute))
        object.__setattr__(self, "origin", origin)

    @property
    def work_per_byte(self) -> float:
        """How many multiplications take as long as to send a byte over the default link.

        >>> Links().work_per_byte, Links(default=Link(bandwidth=50e9), compute=5e14).work_per_byte
        (32.0, 10000.0)
        """
        return self.compute / self.default.bandwidth

    @classmethod
    def of(cls, links: Links | Mapping[str, Link] | Link | None) -> Links:
        """Return links from what a user may give: nothing, one link for all, or one per axis."""
        if links is None or isinstance(links, Link):
            return cls(default=links)
        if isinstance(links, Links):
            return links
        if isinstance(links, Mapping):
            return cls(links)
        raise ArgumentError(f"links are a Link, a mapping from axis to Link, or Links, got {links!r}.")

    # -- where links come from ---------------------------------------------------------------------

    @classmethod
    def measure(
        cls, mesh: DeviceMesh | None = None, *, sizes: Sequence[int] | None = None, repeats: int = REPEATS
    ) -> Links:
        """Return the links along every axis of a mesh, measured by its processes; all of them call it.

        Reshards are timed along every axis, in all groups of it at once: all-gathers, reduce-scatters, all-to-alls
        and ring shifts in which a device receives `sizes` bytes (1 KiB to 64 MiB), in turn, `repeats` times. The
        numbers of a link are those that predict the medians best. All processes return the same links.

        Without a mesh it is that of the `mesh_context`, or all processes in a row, of which come links without names:
        one for all axes. The default link, which joins meshes, is the slowest one.

        >>> Links.measure()
        Traceback (most recent call last):
        shardwise.EngineError: links are measured between processes, and here all devices are in one (engine 'local').
          measure them with shardwise calibrate -n 4 -o links.json, or call it in a script under shardwise run -n 4 ...
        """
        return measure_links(mesh, sizes, repeats)

    @classmethod
    def cluster(cls, name: str, mesh: DeviceMesh | None = None) -> Links:
        """Return the links of a mesh on a cluster of this name, by published figures.

        Devices are numbered node by node. Axes and sub-axes whose neighbours share a node have the link inside a node,
        the others that across nodes.

        >>> for name, link in Links.cluster("dgx-h100", DeviceMesh((4, 16), ("dp", "tp"))).axes:
        ...     print(name, f"{link.bandwidth / 1e9:.0f} GB/s")
        dp 50 GB/s
        tp:(1)2 50 GB/s
        tp:(2)8 450 GB/s
        """
        cluster, mesh = cluster_of(name), current_mesh(mesh)
        inside, across = cluster.axes_inside(mesh)
        axes = {str(axis): cluster.inside for axis in inside} | {str(axis): cluster.across for axis in across}
        return cls(axes, cluster.across if across else cluster.inside, cluster.compute)

    @classmethod
    def load(cls, path: PathLike) -> Links:
        """Return the links that `save` or `shardwise calibrate` wrote into a file.

        >>> Links.load("nowhere.json")
        Traceback (most recent call last):
        shardwise.PlanError: nowhere.json cannot be read: No such file or directory.
        """
        record = read_links(path)
        return cls(record.axes, record.default, record.compute, record.origin)

    def save(self, path: PathLike) -> None:
        """Write the links into a small file, with when, where and on what they were measured if they were.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     Links({"x": Link(1e-3, 1e9)}).save(f"{folder}/links.json")
        ...     Links.load(f"{folder}/links.json").axes
        (('x', Link(latency=0.001, bandwidth=1000000000.0)),)
        """
        write_links(path, LinkRecord(dict(self.axes), self.default, self.compute, self.origin))

    # -- which link is where -----------------------------------------------------------------------

    def check(self, *meshes: DeviceMesh) -> None:
        """Raise a LayoutError if a name is no axis of any of the meshes, or two of them overlap."""
        if not self.axes:
            return
        for name, _ in self.axes:
            known = [mesh for mesh in meshes if name.partition(":")[0] in mesh.axis_names]
            (known or meshes)[0].axis(name, "links")
        for mesh in meshes:
            names = [name for name, _ in self.axes if name.partition(":")[0] in mesh.axis_names]
            check_disjoint([mesh.axis(name, "links") for name in names], "links")

    def among(self, meshes: Sequence[DeviceMesh]) -> Links:
        """Return the links without those of axes that none of the meshes has.

        >>> Links({"x": Link()}).among([DeviceMesh((2,), ("y",))]).axes
        ()
        """
        known = {name for mesh in meshes for name in mesh.axis_names}
        links = {name: link for name, link in self.axes if name.partition(":")[0] in known}
        return self if len(links) == len(self.axes) else Links(links, self.default, self.compute, self.origin)

    def on(self, mesh: DeviceMesh, axes: Sequence[Axis]) -> list[tuple[int, Link]]:
        """Return the (size, link) of each level that `axes` run over, slowest first."""
        if not self.axes:
            return [(size, self.default) for size in sorted([axis.size for axis in axes if axis.size > 1])]
        named = [(mesh.axis(name, "links"), link) for name, link in self.axes]
        check_disjoint([axis for axis, _ in named], "links")
        out: list[tuple[int, Link]] = []
        for axis in axes:
            left = axis.size
            for part, link in named:
                size = _common(axis, part) if overlap(axis, part) else 1
                if size > 1:
                    out.append((size, link))
                    left = -(-left // size)
            if left > 1:
                out.append((left, self.default))
        return sorted(out, key=lambda level: (level[1].bandwidth, -level[1].latency, level[0]))


def _common(a: Axis, b: Axis) -> int:
    # The positions that two overlapping factors of one axis share; where they do not nest, rounded up: some
    # neighbours along one differ in the other.
    low, high = max(a.pre, b.pre), min(a.pre * a.size, b.pre * b.size)
    return -(-high // low)


def move_time(levels: Sequence[tuple[int, Link]], received: float, messages: float | None = None) -> float:
    """Return the seconds for one round in which a device receives `received` bytes over a group.

    The group is the product of the levels, slowest first, and the bytes come evenly from its other members, in
    `messages` messages (one from each unless given): those that differ at a level travel over that level's link. The
    round takes the latency of its slowest link, the overhead of each message after the first, and the time of each
    link's bytes, one after the other.

    >>> round(move_time([(2, Link(0, 10)), (4, Link(0, 100))], 7), 3)  # 4 of 7 peers are across the slow link
    0.43
    >>> round(move_time([(4, Link(0.5, 10, overhead=0.1))], 20), 3)  # 2 messages after the first
    2.7
    """
    members, latency = 1, 0.0
    for size, link in levels:
        members *= size
        if link.latency > latency:
            latency = link.latency
    if members == 1:  # nobody to talk to
        return 0.0
    total, inner = latency, members
    further = members - 2 if messages is None else max(0, messages - 1)
    for size, link in levels:
        inner //= size
        across = (size - 1) * inner / (members - 1)  # the part of the peers that are across this level
        total += received * across / link.bandwidth + further * across * link.overhead
    return total
