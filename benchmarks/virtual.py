"""Virtual devices of peers: JAX's devices of the CPU, and DTensor's LocalTensorMode, each eight of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

DEVICES = 8
Read = Callable[[Any], np.ndarray]  # the global value of a result


@cache
def jax_devices(count: int = DEVICES) -> Any:
    """Return jax with some devices; before anything else has asked it for one."""
    os.environ["NPROC"] = "16"  # with fewer threads than devices, collectives can deadlock
    import jax

    jax.config.update("jax_num_cpu_devices", count)
    return jax


def jax_mesh(sizes: Sequence[int], names: Sequence[str]) -> Any:
    """Return a mesh of JAX whose shardings the compiler works out."""
    jax = jax_devices()
    return jax.make_mesh(tuple(sizes), tuple(names), axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))


def jax_anew(x: Any) -> Any:
    """Return another array of the same shards: JAX keeps a gathered value with the array that it was gathered from."""
    shards = [shard.data for shard in x.addressable_shards]
    return jax_devices().make_array_from_single_device_arrays(x.shape, x.sharding, shards)


@dataclass(frozen=True, slots=True)
class Local:
    """DTensor on eight devices in this process: torch, and the mode in which its calls are made."""

    torch: Any
    mode: Any

    def mesh(self, sizes: Sequence[int], names: Sequence[str]) -> Any:
        """Return a mesh."""
        from torch.distributed.device_mesh import init_device_mesh

        with self.mode:
            return init_device_mesh("cpu", tuple(sizes), mesh_dim_names=tuple(names))

    def placed(self, array: np.ndarray, mesh: Any, placements: Any) -> Any:
        """Return an array as a DTensor."""
        from torch.distributed.tensor import distribute_tensor

        with self.mode:
            return distribute_tensor(self.torch.from_numpy(array), mesh, placements, src_data_rank=None)

    def within(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """Return a call that is made in the mode."""

        def run() -> Any:
            with self.mode:
                return call()

        return run

    def read(self, y: Any) -> np.ndarray:
        """Return the global value of a DTensor."""
        with self.mode, self.torch.no_grad():
            found = y.full_tensor()
        return next(iter(found._local_tensors.values())).numpy()


@cache
def dtensor_devices() -> Local:
    """Return DTensor with eight devices."""
    import torch
    import torch.distributed as dist
    from torch.distributed._local_tensor import LocalTensorMode
    from torch.testing._internal.distributed.fake_pg import FakeStore

    logging.disable(logging.WARNING)
    dist.init_process_group("fake", rank=0, world_size=DEVICES, store=FakeStore())
    return Local(torch, LocalTensorMode(frozenset(range(DEVICES))))
