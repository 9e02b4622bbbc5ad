"""The place where processes meet, where a store that others keep tells it: torchrun's, or the user's."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from datetime import timedelta
from secrets import token_hex
from threading import Thread
from time import monotonic, sleep
from typing import Any, cast

from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore, Store

from shardwise.engine.meeting.credentials import Credentials
from shardwise.engine.meeting.rendezvous import PAUSE, Address
from shardwise.errors import EngineError, printable

KEY = "place"


def is_kept_by_torchrun() -> bool:
    """Whether torchrun keeps a store at MASTER_ADDR and MASTER_PORT."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def open_store(seconds: float) -> Store:
    """Return the store that torchrun keeps."""
    host, port, rank = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), os.environ["RANK"]
    answers: list[Any] = []

    def connect() -> None:
        try:
            limit = timedelta(seconds=seconds)
            answers.append(TCPStore(host, port, is_master=False, timeout=limit, wait_for_workers=False))
        except RuntimeError as error:
            answers.append(error)

    # In a thread: it waits without end for a listener that accepts and never answers.
    thread = Thread(target=connect, name="shardwise-start", daemon=True)
    thread.start()
    thread.join(seconds + 1.0)
    store = answers[0] if answers else "no answer"
    if not isinstance(store, Store):
        raise EngineError(
            f"rank {rank} cannot reach torchrun's store at {host}:{port} (MASTER_ADDR, MASTER_PORT) within "
            f"{seconds:g} s.\n  {first_line(store)}"
        )
    return PrefixStore(f"shardwise/start/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def publish(store: Store, address: Address, credentials: Credentials) -> Credentials:
    """Tell where rank 0 can be reached and, where the environment has no secret, one to use; return the credentials."""
    made = "" if credentials.secret else token_hex(32)
    store.set(KEY, json.dumps([*address, made]))
    return replace(credentials, secret=made.encode()) if made else credentials


def look_up(store: Store, credentials: Credentials, seconds: float) -> tuple[Address, Credentials]:
    """Return where rank 0 listens, and the credentials to use."""
    end = monotonic() + seconds
    try:
        while not store.check([KEY]):
            if monotonic() > end:
                raise EngineError(f"rank 0 did not come within {seconds:g} s: the store of all has no word of it.")
            sleep(PAUSE)
        word: Any = json.loads(store.get(KEY))
    except ValueError:
        word = None
    except RuntimeError as error:
        if isinstance(error, EngineError):
            raise
        raise EngineError(f"the store that all share is gone: {first_line(error)}") from None
    if not isinstance(word, list) or list(map(type, cast("list[Any]", word))) != [str, int, str]:
        raise EngineError("what the store that all share says of rank 0 cannot be read; who else writes to it?")
    host, port, secret = cast("list[Any]", word)
    return Address(host, port), replace(credentials, secret=secret.encode()) if secret else credentials


def first_line(error: object) -> str:
    """Return the first line of what a library says, as it may be shown."""
    return printable(next(iter(str(error).splitlines()), "no reason given"), keep="")


def local_address(towards: str) -> str:
    """Return the address by which this host reaches another, or itself."""
    try:
        info = socket.getaddrinfo(towards, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(info[0], socket.SOCK_DGRAM) as probe:
            probe.connect(info[4])  # sends nothing
            return str(probe.getsockname()[0])
    except OSError as error:
        raise EngineError(f"this host knows no way to {towards} (MASTER_ADDR): {error}.") from None


def interface_of(host: str) -> str | None:
    """Return the network interface that has an address, where the system tells it."""
    import fcntl
    import struct

    for _, name in socket.if_nameindex():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                answer = fcntl.ioctl(probe, 0x8915, struct.pack("256s", name[:15].encode()))  # SIOCGIFADDR
            except OSError:  # it has no address
                continue
        if socket.inet_ntoa(answer[20:24]) == host:
            return name
    return None
