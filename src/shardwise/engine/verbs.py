"""Verbs: what every engine can do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from shardwise.engine.arrays import Array
from shardwise.engine.counters import Counters
from shardwise.engine.execute import Program
from shardwise.engine.job import Job
from shardwise.engine.storage import Storage
from shardwise.layout.device import Device
from shardwise.layout.mesh import DeviceMesh


@runtime_checkable
class Engine(Protocol):
    """What runs programs and kernels on the arrays that devices hold.

    This is all that an engine must do: a class with these members is one, and nobody asks for more or for its name.

    >>> from shardwise import LocalEngine
    >>> isinstance(LocalEngine(), Engine)
    True
    """

    counters: Counters  # of bytes moved, copied and allocated, and of kernels called, which the engine counts

    @property
    def name(self) -> str:
        """What the engine is called where it is shown to people: local, abstract or torch."""
        ...

    @property
    def has_values(self) -> bool:
        """Whether its arrays have values; without, tensors have layouts and shapes only."""
        ...

    @property
    def holds_all(self) -> bool:
        """Whether all arrays of its tensors are in this process with their values, whichever devices hold them."""
        ...

    @property
    def talks_through_torch(self) -> bool:
        """Whether its processes are those of torch.distributed, so that their shards can be those of a DTensor."""
        ...

    def addressable(self, mesh: DeviceMesh) -> Sequence[int]:
        """Return the indices of the devices of a mesh whose arrays are in this process."""
        ...

    def process(self, mesh: DeviceMesh, suffices: Callable[[Sequence[int]], bool]) -> tuple[int, Sequence[int]]:
        """Return the rank and the devices of the process that runs a line for which devices must suffice.

        Where one process stands for several, it is the first whose devices do not.
        """
        ...

    def read(self, storage: Storage, arrays: Sequence[Array], index: int | None = None) -> Sequence[Array]:
        """Return the arrays of a tensor as a process reads them all (or one); where it lacks some, the local shards."""
        ...

    def place(self, array: Array, device: Device) -> Array:
        """Return an array in the memory of a device, which must be there."""
        ...

    def empty(self, shape: Sequence[int], dtype: np.dtype, like: Array | None = None) -> Array:
        """Return an array with arbitrary contents, of the library and on the device of `like`."""
        ...

    def run_kernel(
        self, kernel: Callable[..., Array], operands: Sequence[Sequence[Array]], job: Job, dtype: np.dtype | None = None
    ) -> Sequence[Array]:
        """Return the arrays that a kernel makes, each of one array per operand.

        Where none is made, the dtype is asked for with single elements, unless it is given.
        """
        ...

    def each(
        self,
        storage: Storage,
        dtype: np.dtype,
        make: Callable[[int, int], Array],
        base: Sequence[Array] | None = None,
        like: Array | None = None,
    ) -> Sequence[Array]:
        """Return the arrays of a tensor, each made by `make(which, device)` for one device that holds it.

        Views of `base` take no memory. A process that holds none of the arrays takes the others' to be of the library
        of `base` or `like`.
        """
        ...

    def apply(self, kernel: Callable[..., Array], arrays: Sequence[Array], shape: Sequence[int]) -> Array:
        """Return what a kernel makes of local arrays: an array of this shape."""
        ...

    def run(self, program: Program, arrays: Sequence[Array]) -> Sequence[Array]:
        """Return the arrays of the target layout of a program."""
        ...
