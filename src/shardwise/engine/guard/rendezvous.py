"""The rendezvous: where processes meet at the start, and see that all are there and agree.

Each takes the seat of its rank in a store and leaves a card. Who finds a seat taken, or a card that does not fit its
own, refuses for all; who waits in vain names the seats that are empty.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from threading import Thread
from time import monotonic, sleep
from typing import Any

from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore, Store

from shardwise.engine.guard.channel import Address
from shardwise.errors import EngineError

PAUSE = 0.02  # seconds between looks
LINGER = 10.0  # seconds that rank 0, who keeps the store, stays at most for others to read why it refuses


@dataclass(frozen=True)
class Card:
    """What a process says of itself at the start; all but who and where it is must be equal."""

    rank: int
    size: int
    shardwise: str
    torch: str
    guard: bool
    mesh: str
    host: str  # where it listens, as the port
    port: int
    who: str  # the name of its host, and its number there

    def facts(self) -> dict[str, Any]:
        """Return what must be equal, by the words of the user."""
        mesh = self.mesh or "none given to init"
        names = {"WORLD_SIZE": self.size, "shardwise": self.shardwise, "torch": self.torch, "guard": self.guard}
        return names | {"mesh": mesh}


def open_start_store(timeout: float) -> Store:
    """Return the store that MASTER_ADDR and MASTER_PORT name; rank 0 keeps it, or torchrun does."""
    host, port, rank = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), int(os.environ["RANK"])
    is_keeper = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    if not is_keeper:
        _reach(host, port, rank, timeout)
    answers: list[Any] = []

    def open_store() -> None:
        limit = timedelta(seconds=timeout)
        try:
            answers.append(TCPStore(host, port, is_master=is_keeper, timeout=limit, wait_for_workers=False))
        except RuntimeError as error:
            answers.append(error)

    # In a thread: it waits without end for a listener that accepts and never answers.
    thread = Thread(target=open_store, name="shardwise-start", daemon=True)
    thread.start()
    thread.join(timeout + 1.0)
    store = answers[0] if answers else "no answer"
    if not isinstance(store, Store):
        raise EngineError(_failure_text(host, port, rank, timeout, str(store)))
    return PrefixStore(f"shardwise/start/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _reach(host: str, port: int, rank: int, timeout: float) -> None:
    # Return when somebody listens. The store itself is only asked then: what waits in it cannot be stopped.
    end = monotonic() + timeout
    while True:
        try:
            socket.create_connection((host, port), timeout=max(0.1, end - monotonic())).close()
            return
        except OSError as error:
            if monotonic() > end:
                raise EngineError(_failure_text(host, port, rank, timeout, str(error))) from None
        sleep(PAUSE)


def _failure_text(host: str, port: int, rank: int, timeout: float, reason: str) -> str:
    if "EADDRINUSE" in reason or "in use" in reason:
        return (
            f"port {port} is taken: rank 0 cannot listen on {host}:{port} (MASTER_ADDR, MASTER_PORT).\n"
            "  another program listens there, perhaps one that has not ended; set MASTER_PORT to a free port."
        )
    first = reason.splitlines()[0] if reason else "no reason given"
    return (
        f"rank {rank} cannot reach rank 0 at {host}:{port} (MASTER_ADDR, MASTER_PORT) within {timeout:g} s: rank 0 is "
        f"absent, or something else listens there.\n  {first}"
    )


def meet(store: Store, card: Card, timeout: float) -> dict[int, Card]:
    """Return the cards of all processes, when all are there and agree."""
    try:
        return _Meeting(store, card).cards(timeout)
    except EngineError:
        raise
    except RuntimeError as error:  # the store is gone
        raise EngineError(f"rank 0, who keeps the store, left while rank {card.rank} was starting: {error}") from None


def shared_token(store: Store, rank: int) -> bytes:
    """Return a secret that only these processes know."""
    if rank == 0:
        store.set("token", secrets.token_hex(16))
    return bytes(store.get("token"))


class _Meeting:
    def __init__(self, store: Store, card: Card) -> None:
        self.store, self.card = store, card
        self.known: dict[int, Card] = {}
        self.arrived = 0  # how many had come at the last look

    def cards(self, timeout: float) -> dict[int, Card]:
        store, card, end = self.store, self.card, monotonic() + timeout
        store.set(f"card/{card.rank}/{store.add(f'seat/{card.rank}', 1)}", json.dumps(asdict(card)))
        store.add("arrived", 1)
        while True:
            self._read()
            self._heed()
            if len(self.known) == card.size:
                return self._leave_together(end)
            if monotonic() > end:
                self._refuse(self._absent(timeout))
            sleep(PAUSE)

    def _read(self) -> None:
        arrived = self._count("arrived")
        if arrived == self.arrived:
            return
        self.arrived = arrived
        for rank in range(self.card.size):
            key = f"card/{rank}"
            if rank not in self.known and self.store.check([f"{key}/1"]):
                card = Card(**json.loads(self.store.get(f"{key}/1")))
                self._compare(card)
                self.known[rank] = card
        if self.store.check([f"card/{self.card.rank}/2"]):
            who = [json.loads(self.store.get(f"card/{self.card.rank}/{i}"))["who"] for i in (1, 2)]
            self._refuse(
                f"rank {self.card.rank} is there twice: {' and '.join(who)}.\n"
                "  every process has its own RANK; a program that was started before may still use this MASTER_PORT."
            )

    def _compare(self, other: Card) -> None:
        mine, theirs = self.card.facts(), other.facts()
        different = [name for name in mine if mine[name] != theirs[name]]
        if different:
            (a, one), (b, two) = sorted([(self.card.rank, mine), (other.rank, theirs)], key=lambda pair: pair[0])
            rows = [f"\n  {name}: {one[name]} in rank {a}, {two[name]} in rank {b}" for name in different]
            self._refuse(f"ranks {a} and {b} do not agree about {', '.join(different)}.{''.join(rows)}")

    def _absent(self, timeout: float) -> str:
        absent = [rank for rank in range(self.card.size) if rank not in self.known]
        names = f"rank{'s' * (len(absent) > 1)} {', '.join(map(str, absent))}"
        here = ", ".join(f"{rank} ({card.who})" for rank, card in sorted(self.known.items()))
        return (
            f"{names} of {self.card.size} did not come within {timeout:g} s.\n  here: rank {here}\n"
            "  WORLD_SIZE is how many processes are started, over all hosts; SHARDWISE_START_TIMEOUT gives more time."
        )

    def _refuse(self, text: str) -> None:
        if int(self.store.add("refusals", 1)) == 1:  # the first is what all are told
            self.store.set("refused", text)
        self._end(text)

    def _heed(self) -> None:
        if self.store.check(["refused"]):
            self._end(self.store.get("refused").decode())

    def _end(self, text: str) -> None:
        with suppress(RuntimeError):  # rank 0 may leave as soon as all are told, and the store with it
            self.store.add("told", 1)
        if self.card.rank == 0:
            self._linger(self._count("arrived") if "did not come" in text else self.card.size)
        raise EngineError(text)

    def _linger(self, others: int) -> None:
        # Who is late is waited for; who did not come in all the time is not.
        end = monotonic() + LINGER
        while self._count("told") < others and monotonic() < end:
            sleep(PAUSE)

    def _count(self, key: str) -> int:
        return int(self.store.add(key, 0))

    def _leave_together(self, end: float) -> dict[int, Card]:
        # Nobody goes on until all have seen all, so that whoever refuses refuses for all.
        self.store.add("agreed", 1)
        while self._count("agreed") < self.card.size:
            self._heed()
            if monotonic() > end + LINGER:
                self._refuse(f"only {self._count('agreed')} of {self.card.size} processes finished starting.")
            sleep(PAUSE)
        return self.known


def addresses(cards: Mapping[int, Card], rank: int) -> dict[int, Address]:
    """Return where the others listen."""
    return {other: Address(card.host, card.port) for other, card in cards.items() if other != rank}
