"""The host of the rendezvous: rank 0, who receives all others."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from secrets import token_hex
from time import monotonic, sleep
from typing import Any, NoReturn

from shardwise.engine.meeting.channel import KINDS, Channel
from shardwise.engine.meeting.credentials import Credentials
from shardwise.engine.meeting.gate import Gate
from shardwise.engine.meeting.rendezvous import (
    PAUSE,
    Card,
    Channels,
    Meeting,
    close_all,
    compare_cards,
    decode,
    encode,
    list_cards,
    list_seats,
    name_ranks,
    read_card,
    seat,
)
from shardwise.errors import EngineError, printable

LINGER = 5.0  # seconds that rank 0 stays at most for others to read why it refuses
BIND = "SHARDWISE_BIND"
ANYWHERE = ("0.0.0.0", "::")
BACKLOG = 128  # connections that wait to be accepted, strangers' among them
LISTENER = "SHARDWISE_LISTEN_FD"  # a socket that listens already, which whoever starts rank 0 may hand over


def listen(host: str, port: int, size: int) -> socket.socket:
    """Return a socket that listens at an address of this host and nowhere else, or the one that was handed over."""
    listener, where = _inherit(port), os.environ.get(BIND) or host
    try:
        if listener is None:
            info = socket.getaddrinfo(where, port, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(info[0], socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(info[4])
        listener.listen(max(BACKLOG, 2 * size))
    except OSError as error:
        if listener is not None:
            listener.close()
        raise EngineError(_explain_listening(where, port, error)) from None
    return listener


def _inherit(port: int) -> socket.socket | None:
    # The socket that was handed over; a program between may have closed it, and its number may be another file's.
    number = os.environ.pop(LISTENER, "")
    if not number.isdecimal() or not port:
        return None
    try:
        listener = socket.socket(fileno=int(number))
    except OSError:
        return None
    with suppress(OSError):
        if listener.type == socket.SOCK_STREAM and listener.getsockname()[1:2] == (port,):
            listener.set_inheritable(False)
            return listener
    listener.detach()
    return None


def _explain_listening(host: str, port: int, error: OSError) -> str:
    if "in use" in str(error):
        return (
            f"port {port} is taken: rank 0 cannot listen on {host}:{port} (MASTER_ADDR, MASTER_PORT).\n"
            "  another program listens there, perhaps one that has not ended; set MASTER_PORT to a free port."
        )
    return (
        f"rank 0 cannot listen on {host}:{port} (MASTER_ADDR, MASTER_PORT): {error}.\n"
        f"  MASTER_ADDR is an address of rank 0's host; where it listens at another, {BIND} says so (0.0.0.0: at all)."
    )


def receive_others(card: Card, listener: socket.socket, credentials: Credentials, seconds: float) -> Meeting:
    """Wait for all others and connect with them."""
    host = listener.getsockname()[0]
    gate = Gate(listener, credentials, card.size)
    hall = _Hall(card, gate, seconds)
    try:
        channels = hall.gather()
        if host in ANYWHERE and hall.guests:  # one of its addresses is that by which others came
            host = min(hall.guests.items())[1].socket.getsockname()[0]
    except BaseException:
        close_all(hall.channels)
        raise
    finally:
        gate.close()
        for channel in [*hall.guests.values(), *hall.others]:
            channel.close()
    return Meeting(hall.cards, channels, hall.job, host)


class _Hall:
    """Where the others are until all are connected."""

    def __init__(self, card: Card, gate: Gate, seconds: float) -> None:
        self.card, self.gate, self.seconds = card, gate, seconds
        self.cards = {card.rank: card}
        self.guests: dict[int, Channel] = {}  # by rank
        self.others: list[Channel] = []  # who will only be told why all is over
        self.channels: Channels = {kind: {} for kind in KINDS}
        self.job = token_hex(8)

    def gather(self) -> Channels:
        """Return the channels to all others, when all have come, agree, and are connected."""
        end = monotonic() + self.seconds
        while len(self.cards) < self.card.size:
            self._welcome(PAUSE)
            self._hear("while others were starting")
            if monotonic() > end:
                self._refuse(self._describe_absent(), all_others=False)
        self._tell(cards=list_cards(self.cards.values()), job=self.job)
        missing, ready = list_seats(self.guests), set[int]()
        end = monotonic() + self.seconds
        while missing or len(ready) < len(self.guests):
            newcomer = self.gate.receive(PAUSE if missing else 0.0)
            if newcomer is not None:
                seat(newcomer, self.job, missing, self.channels)
            ready |= self._hear("while all were connecting")
            if monotonic() > end:
                late = name_ranks(sorted(set(self.guests) - ready))
                self._refuse(f"{late} did not connect in {self.seconds:g} s, though they had started.")
            if not missing:
                sleep(PAUSE / 10)
        self._tell(go=True)
        for channel in self.guests.values():
            channel.finish()
        return self.channels

    def _welcome(self, seconds: float) -> None:
        newcomer = self.gate.receive(seconds)
        if newcomer is None:
            return
        connection, greeting = newcomer
        if "card" not in greeting:  # it is of another start
            connection.close()
            return
        card = read_card(greeting["card"])
        channel = Channel(connection, -1 if card is None else card.rank)
        if card is None:
            self.others.append(channel)
            self._refuse(
                "a process of this job says of itself what rank 0 cannot read.\n"
                "  perhaps it has another version of shardwise; all need the same."
            )
        before = self.cards.get(card.rank)
        if before is not None:
            self.others.append(channel)
            self._refuse(
                f"rank {card.rank} is there twice: {before.who} and {card.who}.\n"
                "  every process has its own RANK; a program that was started before may still use this MASTER_PORT."
            )
        self.guests[card.rank], self.cards[card.rank] = channel, card
        text = compare_cards(self.card, card)
        if text:
            self._refuse(text)

    def _hear(self, when: str) -> set[int]:
        # Return who says that it is connected; one that ends, or fails, ends it for all.
        ready: set[int] = set()
        for rank, channel in list(self.guests.items()):
            for body in channel.messages():
                try:
                    message = decode(body)
                except ValueError:
                    self._refuse(f"rank {rank} ({self.cards[rank].who}) sent what cannot be read {when}.")
                if "failed" in message:
                    self._refuse(str(message["failed"]))
                ready.add(rank)
            if channel.closed:
                self._refuse(f"rank {rank} ({self.cards[rank].who}) ended {when}.\n  look at its output first.")
        return ready

    def _describe_absent(self) -> str:
        names = name_ranks([rank for rank in range(self.card.size) if rank not in self.cards])
        here = ", ".join(f"{rank} ({card.who})" for rank, card in sorted(self.cards.items()))
        strangers = "".join(f"\n  turned away: {why}" for why in self.gate.turned_away)
        return (
            f"{names} of {self.card.size} did not come within {self.seconds:g} s.\n  here: rank {here}{strangers}\n"
            "  WORLD_SIZE is how many processes are started, over all hosts; SHARDWISE_START_TIMEOUT gives more time."
        )

    def _tell(self, **message: Any) -> None:
        body = encode(**message)
        for channel in [*self.guests.values(), *self.others]:
            channel.send(body)

    def _refuse(self, text: str, all_others: bool = True) -> NoReturn:
        # Who is late is waited for, so that all are told the same; who did not come in all the time is not.
        text = printable(text)
        self._tell(refused=text)
        awaited = max(card.size for card in self.cards.values()) - 1 if all_others else 0
        end = monotonic() + LINGER
        while monotonic() < end:
            newcomer = self.gate.receive(PAUSE)
            if newcomer is not None and "card" in newcomer[1]:
                self.others.append(Channel(newcomer[0], -1))
                self.others[-1].send(encode(refused=text))
            channels = [*self.guests.values(), *self.others]
            for channel in channels:
                channel.flush()
                list(channel.messages())  # until it has gone, so that nothing it was told is lost
            if len(channels) >= awaited and all(channel.closed for channel in channels):
                break
        raise EngineError(text)
