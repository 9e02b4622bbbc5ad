"""Starting: which engine a process uses, by name or by how it was started."""

# torch has no public name for the store of its default group.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from ipaddress import ip_address
from typing import TYPE_CHECKING

from shardwise.engine.current import local_engine, use
from shardwise.engine.settings import Settings, is_strict, settings
from shardwise.errors import ArgumentError, EngineError, MeshError, did_you_mean
from shardwise.layout.mesh import DeviceMesh

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

    from shardwise.engine.meeting.rendezvous import Meeting
    from shardwise.engine.verbs import Engine

ENGINES = ("local", "torch")
MOST_DRAWN = 1000  # characters of a mesh in what a process says of itself
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class _Start:
    # What the processes of a job have agreed about, once; and the engine that each has since.
    engine: Engine
    settings: Settings
    mesh: DeviceMesh | None


_started: list[_Start] = []


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
    given, all processes must give the same. Processes meet once: a later `init` returns to the same engine, and one
    that asks for other settings is refused.

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
    if engine == "local" or (engine is None and not is_launched):
        engine_in_use: Engine = local_engine(is_strict(strict))
    elif _started:
        engine_in_use = _started[0].engine
        _refuse_others(_started[0], timeout=timeout, heartbeat=heartbeat, guard=guard, mesh=mesh)
    else:
        engine_in_use = _torch_engine(setup, mesh)
        _started.append(_Start(engine_in_use, setup, mesh))
    use(engine_in_use)
    return engine_in_use


def _refuse_others(before: _Start, **arguments: object) -> None:
    # What is not given may be as it is.
    agreed = {name: getattr(before.settings, name, before.mesh) for name in arguments}
    rows = [
        f"\n  {name}: {_describe(agreed[name])} before, {_describe(value)} now"
        for name, value in arguments.items()
        if value is not None and value != agreed[name]
    ]
    if rows:
        raise EngineError(
            f"init: this process has met the others already, with other settings.{''.join(rows)}\n"
            "  processes agree about them once: give them to the first init."
        )


def _describe(value: object) -> str:
    if isinstance(value, DeviceMesh):
        return f"{value!r} of {[device.id for device in value.devices]}"
    return "none given" if value is None else str(value)


def _torch_engine(setup: Settings, mesh: DeviceMesh | None) -> Engine:
    if find_spec("torch") is None:
        raise EngineError("the torch engine needs torch.\n  pip install 'shardwise[torch]'")
    import torch.distributed as dist

    if not dist.is_available():
        raise EngineError("this build of torch has no torch.distributed.")
    from shardwise.engine.process.connection import connect
    from shardwise.engine.process.engine import DistributedEngine

    is_of_user = dist.is_initialized()  # who then sees to its end
    rank, size = (dist.get_rank(), dist.get_world_size()) if is_of_user else _check_environment()
    meeting = _meet_others(rank, size, setup, mesh, is_of_user)
    connection = connect(rank, size, setup, meeting, is_of_user)
    atexit.register(connection.leave)
    atexit.register(connection.say_goodbye)  # which comes before leaving, so that nobody has to guess
    os.register_at_fork(after_in_child=connection.forget)
    return DistributedEngine(connection.wire)


def _meet_others(rank: int, size: int, setup: Settings, mesh: DeviceMesh | None, is_of_user: bool) -> Meeting:
    # All processes are there, agree, and are connected.
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

    from shardwise.engine.meeting import place
    from shardwise.engine.meeting.credentials import plain_connections, read_credentials
    from shardwise.engine.meeting.files import make_room
    from shardwise.engine.meeting.guest import visit
    from shardwise.engine.meeting.host import ANYWHERE, listen, receive_others
    from shardwise.engine.meeting.rendezvous import Address, Card

    if mesh is not None and mesh.num_devices > size:
        raise MeshError(
            f"init: {mesh!r} has {mesh.num_devices} devices, but there are {size} processes.\n"
            "  start as many processes as the mesh has devices."
        )
    make_room(size)
    version = sys.modules["shardwise"].__version__  # of the package, which imports this file
    who = f"{socket.gethostname()}:{os.getpid()}"
    card = Card(rank, size, version, str(torch.__version__), setup.guard, _draw(mesh), who)
    credentials = read_credentials()
    if text := plain_connections(credentials, torch.cuda.is_available() and dist.is_nccl_available()):
        logging.getLogger("shardwise").warning(text)
    store: Store | None = None
    if is_of_user:
        store = PrefixStore("shardwise/start", _get_default_store())
    elif place.is_kept_by_torchrun():
        store = place.open_store(setup.start)
    host = os.environ.get("MASTER_ADDR", "localhost")
    master = Address(host, 0 if store is not None else int(os.environ["MASTER_PORT"]))
    if rank == 0:
        listener = listen(host if store is None else place.local_address(host), master.port, size)
        if store is None and not credentials.secret:
            _warn_of_strangers(*listener.getsockname()[:2])
        if store is not None:
            address = Address(*listener.getsockname()[:2])
            if address.host in ANYWHERE:
                address = address._replace(host=place.local_address(host))
            credentials = place.publish(store, address, credentials)
        return receive_others(card, listener, credentials, setup.start)
    if store is not None:
        master, credentials = place.look_up(store, credentials, setup.start)
    return visit(card, master, credentials, setup.start)


def _warn_of_strangers(host: str, port: int) -> None:
    if not ip_address(host).is_loopback:
        logging.getLogger("shardwise").warning(
            f"SHARDWISE_SECRET is not set: whoever reaches {host}:{port} can take part in this job."
        )


def _draw(mesh: DeviceMesh | None) -> str:
    # What must be equal of a mesh, as far as it can be shown.
    text = "" if mesh is None else _describe(mesh)
    if len(text) <= MOST_DRAWN:
        return text
    return f"{text[:MOST_DRAWN]}... (sha256 {sha256(text.encode()).hexdigest()})"


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
