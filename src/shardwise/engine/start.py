"""Starting: which engine a process uses, by name or by how it was started."""

# torch has no public name for the store of its default group.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import atexit
import ctypes
import os
import socket
import sys
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

from shardwise.engine.current import current_engine, local_engine, use
from shardwise.engine.settings import Settings, is_strict, settings
from shardwise.errors import ArgumentError, EngineError, MeshError, did_you_mean

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

    from shardwise.engine.guard.guard import CollectiveGuard
    from shardwise.engine.process.wire import Wire
    from shardwise.engine.verbs import Engine
    from shardwise.layout.mesh import DeviceMesh

ENGINES = ("local", "torch")
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
NCCL_OFF = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_FR_BUFFER_SIZE")


def init(
    engine: str | None = None,
    *,
    timeout: float | None = None,
    heartbeat: float | None = None,
    guard: bool | None = None,
    mesh: DeviceMesh | None = None,
    strict: bool | None = None,
) -> Engine:
    """Choose the engine of this process and return it.

    Without a name it is "torch" under `shardwise run` or `torchrun`, or wherever RANK, WORLD_SIZE and MASTER_ADDR are
    set as they set them, and "local" otherwise. With "torch", the device with number r of every mesh belongs to the
    process with rank r.

    Processes are guarded: what they do is compared before any data moves, and one that is lost, or does not come
    within `timeout` seconds (60, or SHARDWISE_TIMEOUT), is named. They tell each other that they live every
    `heartbeat` seconds (5, or SHARDWISE_HEARTBEAT). `guard=False`, or SHARDWISE_GUARD=0, does without. If a mesh is
    given, all processes must give the same.

    With `strict=True`, or SHARDWISE_STRICT=1, the local engine refuses what processes would refuse, with the same text:
    to read a value that one of them would not hold. Processes themselves are always strict.

    >>> init("local").name
    'local'
    """
    if engine is not None and engine not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        raise ArgumentError(f"init: there is no engine {engine!r}; engines: {known}.{did_you_mean(engine, ENGINES)}")
    setup = settings(timeout, heartbeat, guard)
    is_launched = all(name in os.environ for name in NEEDED[:3])
    torch = engine == "torch" or (engine is None and is_launched)
    engine_in_use = _torch_engine(setup, mesh) if torch else local_engine(is_strict(strict))
    use(engine_in_use)
    return engine_in_use


def _torch_engine(setup: Settings, mesh: DeviceMesh | None) -> Engine:
    if find_spec("torch") is None:
        raise EngineError("the torch engine needs torch.\n  pip install 'shardwise[torch]'")
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore

    from shardwise.engine.guard.rendezvous import open_start_store
    from shardwise.engine.process.engine import DistributedEngine
    from shardwise.engine.process.wire import Wire

    before = current_engine()
    if isinstance(before, DistributedEngine):
        return before
    if not dist.is_available():
        raise EngineError("this build of torch has no torch.distributed.")
    is_of_user = dist.is_initialized()  # who then sees to its end
    if is_of_user:
        store = PrefixStore("shardwise/start", dist.distributed_c10d._get_default_store())
        guard = _meet_others(store, dist.get_rank(), dist.get_world_size(), setup, mesh)
    else:
        rank, size = _check_environment()
        store = open_start_store(setup.start)
        guard = _meet_others(store, rank, size, setup, mesh)
        _join(store, rank, size, setup, guard)
    wire = Wire(setup.timeout)
    atexit.register(_leave, wire, os.getpid(), is_of_user)
    if guard is not None:
        guard.watchdog.on_loss = wire.groups.abandon
        atexit.register(_say_goodbye, guard, wire)  # which comes before leaving, so that nobody has to guess
    wire.guard = guard
    os.register_at_fork(after_in_child=lambda: _disown(dist.group.WORLD, wire))
    return DistributedEngine(wire)


def _join(store: Store, rank: int, size: int, setup: Settings, guard: CollectiveGuard | None) -> None:
    # Start torch.distributed, when all processes have met.
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore

    cuda = torch.cuda.is_available() and dist.is_nccl_available()
    if guard is not None:
        # The guard says what failed. Torch would end the process, and what it holds would be lost; and the recorder of
        # NCCL's calls would look for their lines in Python when that has ended, and crash.
        for name in NCCL_OFF:
            os.environ.setdefault(name, "0")
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo",
            store=PrefixStore("torch", store),
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=setup.timeout),
        )
    except RuntimeError as error:
        if guard is None:
            raise
        failure = guard.start_failure(error, size)
        guard.close(failure)
        raise failure from error


def _meet_others(
    store: Store, rank: int, size: int, setup: Settings, mesh: DeviceMesh | None
) -> CollectiveGuard | None:
    # All processes are there and agree; with a guard, they are connected.
    import torch

    from shardwise.engine.guard.channel import connect, listen
    from shardwise.engine.guard.guard import CollectiveGuard
    from shardwise.engine.guard.rendezvous import Card, addresses, meet, shared_token

    if mesh is not None and mesh.num_devices > size:
        raise MeshError(
            f"init: {mesh!r} has {mesh.num_devices} devices, but there are {size} processes.\n"
            "  start as many processes as the mesh has devices."
        )
    listener = listen(os.environ.get("MASTER_ADDR", "localhost"), size)
    host, port = listener.getsockname()[:2]
    drawn = "" if mesh is None else f"{mesh!r} of {[device.id for device in mesh.devices]}"
    version = sys.modules["shardwise"].__version__  # of the package, which imports this file
    who = f"{socket.gethostname()}:{os.getpid()}"
    card = Card(rank, size, version, str(torch.__version__), setup.guard, drawn, host, port, who)
    with listener:
        cards = meet(store, card, setup.start)
        if not setup.guard:
            return None
        token = shared_token(store, rank)
        channels = connect(rank, listener, addresses(cards, rank), token, setup.start)
    return CollectiveGuard(rank, channels, setup)


def _disown(*objects: object) -> None:
    # In a fork the threads of process groups are not there, and whoever deletes a group would wait for them.
    for value in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def _say_goodbye(guard: CollectiveGuard, wire: Wire) -> None:
    error = getattr(sys, "last_value", None)  # what ends the process, if it is an error
    if error is None and guard.is_here:
        wire.settle()
    guard.close(error)


def _check_environment() -> tuple[int, int]:
    # The rank of this process, and how many there are.
    missing = [name for name in NEEDED if name not in os.environ]
    if missing:
        raise EngineError(
            f"the torch engine finds its processes by {', '.join(NEEDED)}; not set: {', '.join(missing)}.\n"
            "  shardwise run -n 4 script.py sets them, and so does torchrun --nproc-per-node=4 script.py."
        )
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"):
        if not os.environ[name].isdecimal():
            raise EngineError(f"{name} is a whole number, got {os.environ[name]!r}.")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank >= size:
        raise EngineError(f"RANK is {rank}, but WORLD_SIZE is {size}: ranks are 0 to {size - 1}.")
    return rank, size


def _leave(wire: Wire, pid: int, is_of_user: bool) -> None:
    import torch.distributed as dist

    if pid != os.getpid():  # a fork has no part in it
        return
    wire.close()
    if wire.groups.abandoned:  # NCCL would wait for those who are gone
        _disown(dist.group.WORLD, wire)
    elif not is_of_user and dist.is_initialized():
        dist.destroy_process_group()
