"""Device orders: which device stands in which slot of a mesh, without a list where a formula will do."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

import numpy as np

from shardwise.errors import seal
from shardwise.layout.device import CPU, Accelerator, Device

KINDS: dict[str, type[Device]] = {"cpu": CPU, "gpu": Accelerator}

# One mesh axis as mixed radix: (size, stride in ids) per factor, major to minor.
Factors = tuple[tuple[int, int], ...]


@seal
@dataclass(frozen=True, slots=True)
class RegularOrder:
    """Devices of one kind whose id is `start` plus one stride per factor of each mesh axis.

    >>> RegularOrder("cpu", 0, (((2, 1),), ((3, 2),))).device((1, 2))
    CPU(5)
    """

    label: str
    start: int
    axes: tuple[Factors, ...]

    def device(self, coords: Sequence[int]) -> Device:
        """Return the device at these coordinates."""
        return KINDS[self.label](self.start + sum(map(_offset, self.axes, coords)))

    def devices(self) -> tuple[Device, ...]:
        """Return all devices, in row-major order of the mesh."""
        ids = reduce(np.add.outer, [_offsets(axis) for axis in self.axes], np.array(self.start))
        kind = KINDS[self.label]
        return tuple(kind(int(i)) for i in ids.ravel())


def virtual_order(shape: Sequence[int]) -> RegularOrder:
    """Return the order of as many virtual CPU devices as the mesh has slots."""
    strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
    return RegularOrder("cpu", 0, tuple(join_factors([(n, s)]) for n, s in zip(shape, strides, strict=True)))


def join_factors(factors: Sequence[tuple[int, int]]) -> Factors:
    """Return the canonical factors: no size one, and neighbours that run on joined.

    >>> join_factors([(2, 4), (1, 9), (4, 1)])
    ((8, 1),)
    """
    out: list[tuple[int, int]] = []
    for size, stride in factors:
        if size == 1:
            continue
        if out and out[-1][1] == size * stride:
            out[-1] = (out[-1][0] * size, stride)
        else:
            out.append((size, stride))
    return tuple(out)


def fit_order(devices: tuple[Device, ...], shape: Sequence[int]) -> RegularOrder | None:
    """Return the regular order that lists exactly these devices, or None if there is none."""
    label = devices[0].label
    if any(type(d) is not KINDS.get(label) for d in devices):
        return None
    ids = np.array([d.id for d in devices]).reshape(shape)
    start = int(ids.flat[0])
    lines = [ids[tuple(slice(None) if i == k else 0 for i in range(len(shape)))] - start for k in range(len(shape))]
    if not np.array_equal(reduce(np.add.outer, lines, np.array(start)), ids):
        return None
    axes = [_factors_of(line.tolist()) for line in lines]
    return None if None in axes else RegularOrder(label, start, tuple(a for a in axes if a is not None))


def _factors_of(line: list[int]) -> Factors | None:
    # Peel the minor factor: the longest run of one stride that repeats to the end.
    if len(line) == 1:
        return ()
    stride, run = line[1], 1
    while run < len(line) and line[run] == run * stride:
        run += 1
    if len(line) % run:
        return None
    rest = line[::run]
    if any(line[i] != rest[i // run] + (i % run) * stride for i in range(len(line))):
        return None
    major = _factors_of(rest)
    return None if major is None else join_factors([*major, (run, stride)])


def _offset(factors: Factors, coord: int) -> int:
    total = 0
    for size, stride in reversed(factors):
        coord, digit = divmod(coord, size)
        total += digit * stride
    return total


def _offsets(factors: Factors) -> np.ndarray:
    out = np.zeros(1, dtype=np.int64)
    for size, stride in factors:
        out = np.add.outer(out, np.arange(size) * stride).ravel()
    return out
