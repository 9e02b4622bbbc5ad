"""Clusters: machines that many have, with the figures that are published of their links.

Devices are numbered node by node: the first `node` of them are in the first node. The bandwidth of a link is what one
device receives over it at most, one way. Latency and overhead are what a collective takes for its first message and for
each further one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

import numpy as np

from shardwise.errors import ArgumentError, PlanError, did_you_mean, seal
from shardwise.layout.axis import Axis, merge
from shardwise.layout.device_order import RegularOrder
from shardwise.layout.mesh import DeviceMesh
from shardwise.plan.link import Link

# Seconds for the first message and for each further one. NCCL models a ring of its Simple protocol so: 8.4 us for the
# call, then 3.4 us a step over NVLink, 9.6 us over
# the network.
NVLINK, NETWORK = (11.8e-6, 3.4e-6), (18e-6, 9.6e-6)
# A hop takes about half a microsecond: one for each further message, two for the first. Those of networks between pods
# and of Ethernet are assumed.
TORUS, CENTRE = (1e-6, 0.5e-6), (30e-6, 10e-6)

LISTED = 4096  # devices up to which they are looked at one by one, whatever their order

NCCL = "NCCL, src/graph/tuning.cc (ring, Simple)"
SCALING = "How to Scale Your Model (Google DeepMind), part 2"


@seal
@dataclass(frozen=True, slots=True)
class Cluster:
    """A kind of machine: how many devices are in a node, how they talk in it and between nodes, how fast they compute.

    >>> CLUSTERS["dgx-h100"].node, CLUSTERS["dgx-h100"].inside.bandwidth / CLUSTERS["dgx-h100"].across.bandwidth
    (8, 9.0)
    """

    title: str
    node: int
    inside: Link
    across: Link
    compute: float  # multiplications a second, half of the published operations
    sources: tuple[str, ...]

    def axes_inside(self, mesh: DeviceMesh) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
        """Return the axes and sub-axes of a mesh whose neighbours share a node, and the others.

        >>> mesh = DeviceMesh((4, 16), ("dp", "tp"))
        >>> CLUSTERS["dgx-h100"].axes_inside(mesh)
        ((tp:(2)8,), (dp, tp:(1)2))
        """
        factors = [factor for name in mesh.axis_names for factor in self._split(mesh, mesh.axis(name))]
        inside, across = ([axis for axis, within in factors if within is which] for which in (True, False))
        return merge(inside), merge(across)

    def _split(self, mesh: DeviceMesh, axis: Axis) -> Iterator[tuple[Axis, bool]]:
        order, pre = mesh.order, 1
        if mesh.num_devices <= LISTED or isinstance(order, tuple):
            digits = [(axis.size, self._near_by_list(mesh, axis))]
        else:
            digits = [(size, self._near(order, size, stride)) for size, stride in mesh.factors(axis) or ()]
        for size, near in digits:
            yield Axis(axis.name, pre, size // near, axis.of), False
            yield Axis(axis.name, pre * (size // near), near, axis.of), True
            pre *= size

    def _near_by_list(self, mesh: DeviceMesh, axis: Axis) -> int:
        # How many positions side by side are always in one node: the largest such divisor.
        nodes = np.array([device.id for device in mesh.devices]).reshape(mesh.mesh_shape) // self.node
        nodes = np.moveaxis(nodes, mesh.axis_names.index(axis.name), -1)
        divisors = (k for k in range(axis.size, 0, -1) if axis.size % k == 0)
        return next(k for k in divisors if not np.ptp(nodes.reshape(-1, k), axis=1).any())

    def _near(self, order: RegularOrder, size: int, stride: int) -> int:
        # The same by the formula of the order. Blocks of so many numbers nest in nodes, and a group lies in one of them
        # if all else moves it by whole blocks, or within a stride; where it does not, nothing counts as inside.
        others = [digit for digits in order.axes for digit in digits]
        if stride < 1 or any(step < 0 for _, step in others) or self.node % stride:
            return 1
        near = gcd(size, self.node // stride)
        block = stride * near
        below = order.start % block + sum((count - 1) * step for count, step in others if step < stride)
        return near if below < stride and not any(step % block for _, step in others if step > stride) else 1


def cluster_of(name: str) -> Cluster:
    """Return a cluster by its name.

    >>> cluster_of("dgx-h10")
    Traceback (most recent call last):
    shardwise.PlanError: there is no cluster 'dgx-h10'.
      clusters: dgx-a100, dgx-h100, dgx-b200, gb200-nvl72, tpu-v4, tpu-v5e, tpu-v5p, ethernet-10g, ethernet-25g,
      ethernet-100g
      did you mean 'dgx-h100'?
    """
    if not isinstance(name, str):
        raise ArgumentError(f"a cluster is given by its name, such as 'dgx-h100', got {name!r}.")
    if name not in CLUSTERS:
        lines = f"\n  clusters: {', '.join(list(CLUSTERS)[:-1])},\n  {list(CLUSTERS)[-1]}"
        raise PlanError(f"there is no cluster {name!r}.{lines}{did_you_mean(name, CLUSTERS)}")
    return CLUSTERS[name]


def _gpus(title: str, node: int, nvlink: float, network: float, flops: float, source: str) -> Cluster:
    # NVLink is published as both directions together, a network in bits, compute as operations of two kinds.
    inside, across = Link(NVLINK[0], nvlink / 2, NVLINK[1]), Link(NETWORK[0], network / 8, NETWORK[1])
    return Cluster(title, node, inside, across, flops / 2, (source, NCCL))


def _tpus(title: str, pod: int, link: float, network: float, flops: float, *sources: str) -> Cluster:
    # Along one axis of a torus a chip receives over two links, each published one way.
    inside, across = Link(TORUS[0], 2 * link, TORUS[1]), Link(CENTRE[0], network / 8, CENTRE[1])
    return Cluster(title, pod, inside, across, flops / 2, (*sources, SCALING))


def _ethernet(title: str, network: float) -> Cluster:
    link = Link(CENTRE[0], network / 8, CENTRE[1])
    return Cluster(title, 1, link, link, 8e11, ("IEEE 802.3",))


CLUSTERS: dict[str, Cluster] = {
    "dgx-a100": _gpus(
        "8 A100 a node over NVLink 3, one HDR InfiniBand port a GPU",
        *(8, 600e9, 200e9, 312e12),
        "NVIDIA DGX A100 data sheet; NVIDIA A100 data sheet",
    ),
    "dgx-h100": _gpus(
        "8 H100 a node over NVLink 4, one NDR InfiniBand port a GPU",
        *(8, 900e9, 400e9, 989e12),
        "NVIDIA DGX H100 user guide; NVIDIA H100 data sheet",
    ),
    "dgx-b200": _gpus(
        "8 B200 a node over NVLink 5, one NDR InfiniBand port a GPU",
        *(8, 1800e9, 400e9, 2250e12),
        "NVIDIA DGX B200 user guide; NVIDIA HGX B200 data sheet",
    ),
    "gb200-nvl72": _gpus(
        "72 B200 a rack over NVLink 5, one NDR InfiniBand port a GPU",
        *(72, 1800e9, 400e9, 2500e12),
        "NVIDIA GB200 NVL72 data sheet",
    ),
    "tpu-v4": _tpus(
        "pods of 4096 chips in a 3D torus, 4 chips a host",
        *(4096, 45e9, 50e9, 275e12),
        "Google Cloud, TPU v4",
    ),
    "tpu-v5e": _tpus(
        "pods of 256 chips in a 2D torus, 8 chips a host",
        *(256, 50e9, 25e9, 197e12),
        "Google Cloud, TPU v5e",
    ),
    "tpu-v5p": _tpus(
        "pods of 8960 chips in a 3D torus, 4 chips a host",
        *(8960, 100e9, 50e9, 459e12),
        "Google Cloud, TPU v5p",
    ),
    "ethernet-10g": _ethernet("one device a host, 10 Gb/s Ethernet", 10e9),
    "ethernet-25g": _ethernet("one device a host, 25 Gb/s Ethernet", 25e9),
    "ethernet-100g": _ethernet("one device a host, 100 Gb/s Ethernet", 100e9),
}
