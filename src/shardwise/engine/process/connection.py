"""The connection of a process with all others: how it is made when they have met, and how it ends."""

# torch has no public names for what its groups are made of.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import ctypes
import json
import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from time import sleep
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from shardwise.engine.guard.attempt import attempt
from shardwise.engine.guard.guard import CollectiveGuard
from shardwise.engine.guard.peer_store import KeyTable, PeerStore
from shardwise.engine.guard.stragglers import log, logger
from shardwise.engine.guard.watchdog import Watchdog
from shardwise.engine.meeting.place import interface_of
from shardwise.engine.meeting.rendezvous import Meeting
from shardwise.engine.process.groups import Groups, Ranks
from shardwise.engine.process.sockets import Address, listening_addresses, shut_connections
from shardwise.engine.process.wire import Wire
from shardwise.engine.recording.folder import folder_of, setting
from shardwise.engine.recording.recorder import Recorder
from shardwise.engine.settings import Settings

NCCL_OFF = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_FR_BUFFER_SIZE")
INTERFACE = "GLOO_SOCKET_IFNAME"
# Seconds in which gloo answers what has come: where it cannot any more, it forgets what it was to send, and whoever
# waits for that does so until the timeout.
ANSWERED = 0.25


@dataclass(frozen=True)
class Connection:
    """What a process has of the others: the wire, the watchdog that knows how they are, and perhaps a guard."""

    wire: Wire
    watchdog: Watchdog
    guard: CollectiveGuard | None
    recorder: Recorder
    is_of_user: bool  # whether the user started torch.distributed, and sees to its end
    process: int  # whose it is: a fork has no part in it

    def say_goodbye(self) -> None:
        """Tell the others that this process goes, and why."""
        error = getattr(sys, "last_value", None)  # what ends the process, if it is an error
        if self.process != os.getpid():
            return
        if error is None:
            self.wire.settle()
        if self.guard is not None:
            clean, text = self.guard.close(error)
        else:
            text, clean = "it left", error is None
            self.watchdog.end(text, clean)
        self.recorder.close(clean, text)

    def leave(self) -> None:
        """Give back what torch has of this process."""
        if self.process != os.getpid():
            return
        self.wire.close()
        if self.wire.groups.abandoned:  # NCCL would wait for those who are gone
            disown(dist.group.WORLD, self.wire)
        elif not self.is_of_user and dist.is_initialized():
            dist.destroy_process_group()

    def forget(self) -> None:
        """Have no part in it, in a fork: the threads of its groups are not there, and deleting one waits for them."""
        disown(dist.group.WORLD, self.wire)


def disown(*objects: object) -> None:
    """Never delete some objects."""
    for value in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def connect(rank: int, size: int, setup: Settings, meeting: Meeting, is_of_user: bool) -> Connection:
    """Connect the groups of torch, over keys that travel between those who have met."""
    keeps = setting()[0] is not None
    recorder = Recorder(folder_of(meeting.job), rank, size, job=meeting.job, keeps_folder=keeps)
    recorder.set_offset(meeting.clock_offset)
    recorder.dump_on()
    if recorder.trouble:
        log(logger.warning, f"what rank {rank} does is not recorded: {recorder.trouble}")
    guard, watchdog = _watch(rank, setup, meeting, recorder)
    table = KeyTable(watchdog, rank)
    watchdog.listen()  # when there is an answer to whatever others may ask, who can be ahead of this process
    store = PeerStore(table, 0, setup.timeout)
    before = listening_addresses()
    make = partial(_make_world if is_of_user else _join, PrefixStore("torch", store), rank, size, setup)
    os.environ.setdefault(INTERFACE, interface_of(meeting.host) or "")
    if not os.environ[INTERFACE]:
        del os.environ[INTERFACE]
    if guard is not None:
        guard.begin_start(size)

    def join() -> tuple[Any, tuple[set[Address], set[Address]]]:
        world = make()
        return world, _share_addresses(store, rank, size, listening_addresses() - before)

    try:
        world, others = attempt(join, watchdog, range(size), setup.timeout)
    except BaseException as error:  # who is interrupted says goodbye too
        if guard is None:
            raise
        failure = guard.start_failure(error, size) if isinstance(error, RuntimeError) else error
        recorder.close(*guard.close(failure))
        if failure is error:
            raise
        raise failure from error
    nccl = partial(_make_nccl, table, rank, size, setup, watchdog)
    wire = Wire(rank, size, world, Groups(nccl))
    wire.guard = guard

    def heed_loss(lost: Any) -> None:
        if lost is None:  # whoever waits for data waits for what may never come
            sleep(ANSWERED)
            shut_connections(*others)
        wire.groups.abandon(lost)

    if guard is not None:
        guard.end_start()
        watchdog.on_loss = heed_loss
    return Connection(wire, watchdog, guard, recorder, is_of_user, os.getpid())


def _watch(rank: int, setup: Settings, meeting: Meeting, recorder: Recorder) -> tuple[CollectiveGuard | None, Watchdog]:
    if setup.guard:
        who = {other: card.who for other, card in meeting.cards.items()}
        guard = CollectiveGuard(rank, meeting.channels, setup, who, listens=False)
        guard.recorder = recorder
        return guard, guard.watchdog
    for channel in meeting.channels["calls"].values():
        channel.close()
    return None, Watchdog(meeting.channels["beats"], setup.heartbeat, listens=False)


def _join(store: PrefixStore, rank: int, size: int, setup: Settings) -> Any:
    # Start torch.distributed; return its group of gloo.
    cuda = torch.cuda.is_available() and dist.is_nccl_available()
    if setup.guard:
        # The guard says what failed. Torch would end the process, and what it holds would be lost; and the recorder of
        # NCCL's calls would look for their lines in Python when that has ended, and crash.
        for name in NCCL_OFF:
            os.environ.setdefault(name, "0")
    limit = timedelta(seconds=setup.timeout)
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    assert dist.group.WORLD is not None, "torch.distributed is initialized"
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def _make_world(store: PrefixStore, rank: int, size: int, setup: Settings) -> Any:
    # The user's groups may be of other backends, and have other timeouts.
    return dist.ProcessGroupGloo(PrefixStore("world", store), rank, size, timedelta(seconds=setup.timeout))


def _share_addresses(store: PeerStore, rank: int, size: int, own: set[Address]) -> tuple[set[Address], set[Address]]:
    # Where gloo listens here, and at all others.
    store.set(f"gloo/{rank}", json.dumps(sorted(own)))
    texts = store.multi_get([f"gloo/{other}" for other in range(size) if other != rank])
    store.set(f"connected/{rank}", b"yes")
    if rank == 0:  # who keeps the keys, and may come to its end when nobody asks for them any more
        store.wait([f"connected/{other}" for other in range(size)])
    return own, {(host, port) for text in texts for host, port in json.loads(text)}


def _make_nccl(
    table: KeyTable, rank: int, size: int, setup: Settings, watchdog: Watchdog, ranks: Ranks, device: torch.device
) -> Any:
    # Connecting waits for all members, also for those that are gone: so it is done at once, where that is noticed.
    def make() -> Any:
        if len(ranks) == size:
            assert dist.group.WORLD is not None, "torch.distributed is initialized"
            group = dist.group.WORLD._get_backend(device)
        else:
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timedelta(seconds=setup.timeout)
            store = PeerStore(table, ranks[0], setup.timeout)
            name = f"nccl/{'_'.join(map(str, ranks))}"
            group = dist.ProcessGroupNCCL(PrefixStore(name, store), ranks.index(rank), len(ranks), options)
        group.eager_connect_single_device(device)
        return group

    return attempt(make, watchdog, ranks, setup.timeout)
