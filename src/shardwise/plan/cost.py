"""Costs: what a movement takes under a simple model of the links between devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real

from shardwise.errors import ArgumentError, PlanError, seal
from shardwise.layout.axis import Axis, check_disjoint, overlap
from shardwise.layout.mesh import DeviceMesh


@seal
@dataclass(frozen=True, slots=True)
class Link:
    """How fast neighbours along one mesh axis talk: seconds per message round, bytes per second.

    >>> Link(2e-6, 400e9)
    Link(latency=2e-06, bandwidth=400000000000.0)
    """

    latency: float = 1e-5
    bandwidth: float = 25e9

    def __post_init__(self) -> None:
        for value in (self.latency, self.bandwidth):
            if isinstance(value, bool) or not isinstance(value, Real):
                raise ArgumentError(f"a Link is made of two numbers, seconds and bytes per second, got {value!r}.")
        if not self.latency >= 0 or not self.bandwidth > 0:  # not a number fails too
            raise PlanError(
                f"a Link needs a latency of 0 or more and a bandwidth above 0, got {self.latency} and {self.bandwidth}."
            )


COMPUTE = 8e11  # multiplications a second: what a CPU with wide vectors does in float32; accelerators do far more


@seal
@dataclass(frozen=True, slots=True, init=False)
class Links:
    """The link along each mesh axis, and how fast devices compute; axes that are not named have the default link.

    `compute` is how many multiplications a device does in a second. With the default link, 32 of them take as long as
    to send one byte: so much work is worth a byte when there is a choice between sending and working twice.

    A sub-axis may be named, so that an axis which spans machines has slow outer and fast inner links.

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

    def __init__(
        self, axes: Mapping[str, Link] | None = None, default: Link | None = None, compute: float = COMPUTE
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
        return self if len(links) == len(self.axes) else Links(links, self.default, self.compute)

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


def move_time(levels: Sequence[tuple[int, Link]], received: float) -> float:
    """Return the seconds for one round in which a device receives `received` bytes over a group.

    The group is the product of the levels, slowest first, and the bytes come evenly from its other members:
    those that differ at a level travel over that level's link. The round takes the latency of its slowest
    link and the time of each link's bytes, one after the other.

    >>> round(move_time([(2, Link(0, 10)), (4, Link(0, 100))], 7), 3)  # 4 of 7 peers are across the slow link
    0.43
    """
    members, latency = 1, 0.0
    for size, link in levels:
        members *= size
        if link.latency > latency:
            latency = link.latency
    if members == 1:  # nobody to talk to
        return 0.0
    total, inner = latency, members
    for size, link in levels:
        inner //= size
        total += received * (size - 1) * inner / (members - 1) / link.bandwidth
    return total
