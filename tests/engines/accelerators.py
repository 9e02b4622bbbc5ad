"""Run the programs of this folder on accelerators, by hand, and compare them with the local engine on the host.

    shardwise run -n 4 tests/engines/accelerators.py

Where there are fewer accelerators than processes they share them. NCCL refuses that, unless it takes every process for
a host of its own, which then talk through sockets: slow, but the same calls in the same order.
"""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def share_accelerators() -> None:
    import torch

    if torch.cuda.device_count() < SIZE:
        os.environ |= {"LOCAL_RANK": "0", "NCCL_HOSTID": f"rank{RANK}", "NCCL_SOCKET_IFNAME": "lo"}
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


@contextmanager
def on_accelerators(programs: Any) -> Iterator[None]:
    """Inside, the meshes of the programs consist of accelerators."""
    from shardwise import Accelerator, DeviceMesh

    def mesh(shape: Any, names: Any, devices: Any = None) -> DeviceMesh:
        return DeviceMesh(shape, names, devices or [Accelerator(i) for i in range(int(np.prod(shape)))])

    before = programs.DeviceMesh, programs.CPU
    programs.DeviceMesh, programs.CPU = mesh, Accelerator
    try:
        yield
    finally:
        programs.DeviceMesh, programs.CPU = before


def arrays(tree: Any) -> list[dict[int, np.ndarray]]:
    """What every tensor of a tree holds in this process, by device."""
    import optree

    from shardwise import Accelerator, Tensor
    from shardwise.engine.arrays import to_numpy

    leaves = [leaf for leaf in optree.tree_leaves(tree) if isinstance(leaf, Tensor)]
    kinds = {(isinstance(s.device, Accelerator), getattr(s.array, "is_cuda", False)) for x in leaves for s in x.shards}
    assert kinds <= {(True, True), (False, False)}, "what an accelerator holds is in its memory"
    return [{s.index: np.array(to_numpy(s.array)) for s in leaf.shards} for leaf in leaves]


def compare(program: Callable[[int], Any], exact: bool) -> int:
    """Run a program on both engines and return how many arrays were compared."""
    from shardwise import current_engine
    from shardwise.engine.current import engine_context, local_engine
    from tests.engines import programs

    with engine_context(local_engine()):
        want = arrays(program(SIZE))
    with on_accelerators(programs):
        found = arrays(program(SIZE))
    assert current_engine().name == "torch"
    tolerance = 0.0 if exact else 1e-9
    same = partial(np.allclose, rtol=tolerance, atol=tolerance, equal_nan=True)
    for leaf, expected in zip(found, want, strict=True):
        for device, array in leaf.items():
            other = expected[device]
            assert (array.dtype, array.shape) == (other.dtype, other.shape), (array, other)
            wide = "complex128" if other.dtype.kind == "c" else "float64"
            assert same(array.astype(wide), other.astype(wide)), (array, other)
    return sum(map(len, found))


def host_copies() -> dict[str, int]:
    """Return the copies between host and accelerators that reshards of every kind make, by name."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from shardwise import Accelerator, DeviceMesh, P, all_reduce, shard, shift

    mesh = DeviceMesh((SIZE,), ("x",), [Accelerator(i) for i in range(SIZE)])
    rows = shard(np.ones((64, 48), "float32"), mesh, P("x"))
    pending = shard(rows, mesh, P(unreduced=["x"]))

    def every() -> list[Any]:
        columns = shard(rows, mesh, P(None, "x"))
        return [
            columns,
            rows.gather(),
            all_reduce(pending),
            shard(pending, mesh, P("x")),
            shift(rows, "x"),
            rows + rows,
        ]

    every()  # makes the groups
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
        every()
        torch.cuda.synchronize()
    names = [event.name for event in seen.events() or ()]
    assert any("nccl" in name.lower() for name in names) or SIZE == 1, names
    return {name: names.count(name) for name in set(names) if name.startswith("Memcpy ") and "DtoD" not in name}


def main(names: list[str]) -> int:
    share_accelerators()
    import torch
    from torch.cuda import nccl

    import shardwise
    from tests.engines.programs import EXACT, NEAR

    engine = shardwise.init("torch")
    failed = []
    for name, program in {**EXACT, **NEAR}.items():
        if names and name not in names:
            continue
        try:
            count = compare(program, name in EXACT)
        except shardwise.CollectiveError:
            raise
        except Exception:
            failed.append(name)
            print(f"{name}: FAILED\n{traceback.format_exc(limit=-6)}", flush=True)
        else:
            if RANK == 0:
                print(f"{name}: {count} arrays equal", flush=True)
    copies = host_copies()
    if copies:
        failed.append(f"copies to or from the host: {copies}")
    if RANK == 0:
        print(f"{SIZE} processes, {torch.cuda.device_count()} accelerators, {engine}, NCCL {nccl.version()}")
        print(f"failed: {', '.join(failed) or 'none'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
