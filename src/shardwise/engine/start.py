"""Starting: which engine a process uses, by name or by how it was started."""

from __future__ import annotations

import atexit
import os
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

from shardwise.engine.current import current_engine, local_engine, use
from shardwise.errors import ArgumentError, EngineError, did_you_mean

if TYPE_CHECKING:
    from shardwise.engine.verbs import Engine

ENGINES = ("local", "torch")
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def init(engine: str | None = None, *, timeout: float = 60.0) -> Engine:
    """Choose the engine of this process and return it.

    Without a name it is "torch" under `torchrun`, or wherever RANK, WORLD_SIZE and MASTER_ADDR are set as it sets
    them, and "local" otherwise. With "torch", the device with number r of every mesh belongs to the process with rank
    r; an operation between processes that takes more than `timeout` seconds is an error.

    >>> init("local").name
    'local'
    """
    if engine is not None and engine not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        raise ArgumentError(f"init: there is no engine {engine!r}; engines: {known}.{did_you_mean(engine, ENGINES)}")
    started = all(name in os.environ for name in NEEDED[:3])
    found = _torch_engine(timeout) if engine == "torch" or (engine is None and started) else local_engine()
    use(found)
    return found


def _torch_engine(timeout: float) -> Engine:
    before = current_engine()
    if before.name == "torch":
        return before
    if find_spec("torch") is None:
        raise EngineError("the torch engine needs torch.\n  pip install 'shardwise[torch]'")
    import torch
    import torch.distributed as dist

    from shardwise.engine.distributed import DistributedEngine
    from shardwise.engine.wire import Wire

    if not dist.is_available():
        raise EngineError("this build of torch has no torch.distributed.")
    if not dist.is_initialized():
        _check_environment()
        cuda = torch.cuda.is_available() and dist.is_nccl_available()
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=timedelta(seconds=timeout))
        atexit.register(_leave)
    return DistributedEngine(Wire(timeout))


def _check_environment() -> None:
    missing = [name for name in NEEDED if name not in os.environ]
    if missing:
        raise EngineError(
            f"the torch engine finds its processes by {', '.join(NEEDED)}; not set: {', '.join(missing)}.\n"
            "  start the program with torchrun --nproc-per-node=4 script.py, which sets them."
        )
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"):
        if not os.environ[name].isdecimal():
            raise EngineError(f"{name} is a whole number, got {os.environ[name]!r}.")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank >= size:
        raise EngineError(f"RANK is {rank}, but WORLD_SIZE is {size}: ranks are 0 to {size - 1}.")


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
