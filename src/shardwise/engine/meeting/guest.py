"""A guest of the rendezvous: every process but rank 0."""

from __future__ import annotations

import socket
import struct
from dataclasses import asdict, replace
from time import monotonic, sleep
from typing import Any

from shardwise.engine.meeting.channel import KINDS, Channel
from shardwise.engine.meeting.credentials import Credentials
from shardwise.engine.meeting.gate import DEADLINE, Gate
from shardwise.engine.meeting.handshake import StrangerError, call
from shardwise.engine.meeting.host import BACKLOG, LINGER
from shardwise.engine.meeting.rendezvous import (
    PAUSE,
    Address,
    Card,
    Channels,
    Meeting,
    close_all,
    decode,
    encode,
    list_seats,
    name_ranks,
    read_cards,
    seat,
)
from shardwise.errors import EngineError, printable

PATIENCE = 3 * DEADLINE  # seconds for a handshake of one who calls: who answers gives up first, and they agree
AGAIN = 0.2  # seconds after which a stranger is asked again whether it is rank 0
UNREADABLE = "rank 0 sent what cannot be read"


def visit(card: Card, master: Address, credentials: Credentials, seconds: float) -> Meeting:
    """Find rank 0, wait until all are there, and connect with them."""
    end = monotonic() + seconds
    connection, gate, (host, there), offset = _reach(card, master, credentials, end, seconds)
    channel = Channel(connection, 0)
    channels: Channels = {kind: {} for kind in KINDS}
    try:
        # Rank 0 may have started later than this process, and counts from then.
        message = _await(channel, "while others were starting", monotonic() + seconds + LINGER)
        cards, job = _read_start(message, card)
        addresses = {rank: Address(each.host, each.port) for rank, each in cards.items()}
        addresses[0] = Address(there, master.port)
        try:
            _connect(card.rank, addresses, job, gate, channel, credentials, seconds, channels)
        except EngineError as error:
            channel.send(encode(failed=str(error)))
            raise
        channel.send(encode(ready=True))
        _await(channel, "while all were connecting", monotonic() + seconds + LINGER)
        return Meeting(cards, channels, job, host, offset)
    except BaseException:
        close_all(channels)
        raise
    finally:
        gate.close()
        channel.close()


def _reach(
    card: Card, master: Address, credentials: Credentials, end: float, seconds: float
) -> tuple[socket.socket, Gate, tuple[str, str], float]:
    # Rank 0 may start later than others. A process listens where it reaches rank 0 from.
    reason, refusal = "no answer", ""
    while monotonic() < end:
        try:
            connection = socket.create_connection(master, timeout=max(0.05, min(DEADLINE, end - monotonic())))
            host, there = _ends(connection)
        except OSError as error:
            reason = str(error)
            sleep(PAUSE)
            continue
        listener = socket.create_server((host, 0), family=connection.family, backlog=max(BACKLOG, 2 * card.size))
        greeting = {"card": asdict(replace(card, host=host, port=listener.getsockname()[1]))}
        try:
            connection, offset = call(connection, greeting, credentials, min(end, monotonic() + PATIENCE))
        except (StrangerError, OSError, ValueError) as error:
            listener.close()
            if not (refusal and isinstance(error, TimeoutError)):  # the time may just be over: that tells less
                refusal = str(error)  # tells more than that nobody listens any more
            sleep(AGAIN)
            continue
        return connection, Gate(listener, credentials, card.size), (host, there), offset
    raise EngineError(
        f"rank {card.rank} cannot reach rank 0 at {master.host}:{master.port} (MASTER_ADDR, MASTER_PORT) within "
        f"{seconds:g} s: rank 0 is absent, or something else listens there.\n  {printable(refusal or reason)}"
    )


def _ends(connection: socket.socket) -> tuple[str, str]:
    # Return the addresses of both ends.
    try:
        here, there = connection.getsockname(), connection.getpeername()
        if here == there:
            # Nobody listens, and the port that the system chose for this end is that of the other: it met itself.
            # Rank 0 can listen there if it does not linger.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise ConnectionRefusedError("nobody listens there")
    except OSError:
        connection.close()
        raise
    return here[0], there[0]


def _read_start(message: dict[str, Any], own: Card) -> tuple[dict[int, Card], str]:
    # What rank 0 says when all are there.
    job = message.get("job")
    try:
        cards = read_cards(message.get("cards"), own)
    except ValueError as error:
        raise EngineError(f"{UNREADABLE}: {error}.") from None
    if not isinstance(job, str):
        raise EngineError(f"{UNREADABLE}: the job has no name.")
    return cards, job


def _await(channel: Channel, when: str, end: float) -> dict[str, Any]:
    while (body := channel.receive()) is None:
        if channel.closed:
            raise EngineError(f"rank 0 ended {when}.\n  look at its output first.")
        if monotonic() > end:
            raise EngineError(f"rank 0 said nothing any more {when}: it is stopped, or cut off from the network.")
        sleep(PAUSE / 4)
    return _heed(body)


def _connect(
    rank: int,
    addresses: dict[int, Address],
    job: str,
    gate: Gate,
    rank_0: Channel,
    credentials: Credentials,
    seconds: float,
    channels: Channels,
) -> None:
    # To lower ranks it connects, higher ones come.
    end = monotonic() + seconds
    for other in range(rank):
        for kind in KINDS:
            greeting = {"kind": kind, "rank": rank, "job": job}
            channels[kind][other] = _call(greeting, other, addresses[other], rank_0, credentials, end)
    missing = list_seats(other for other in addresses if other > rank)
    while missing:
        newcomer = gate.receive(PAUSE)
        if newcomer is not None:
            seat(newcomer, job, missing, channels)
        _look_at(rank_0)
        if monotonic() > end:
            late = name_ranks(sorted({other for _, other in missing}))
            raise EngineError(f"{late} did not connect in {seconds:g} s, though they had started.")


def _call(
    greeting: dict[str, Any], other: int, address: Address, rank_0: Channel, credentials: Credentials, end: float
) -> Channel:
    while True:
        try:
            connection = socket.create_connection(address, timeout=max(0.05, min(DEADLINE, end - monotonic())))
            connection, _ = call(connection, greeting, credentials, min(end, monotonic() + PATIENCE))
            return Channel(connection, other)
        except (StrangerError, OSError, ValueError) as error:
            _look_at(rank_0)
            if monotonic() > end:
                where, why = printable(f"{address.host}:{address.port}"), printable(str(error))
                raise EngineError(f"rank {greeting['rank']} cannot reach rank {other} at {where}: {why}.") from None
            sleep(PAUSE)


def _heed(body: bytes) -> dict[str, Any]:
    # Return what rank 0 says, unless it refuses.
    try:
        message = decode(body)
    except ValueError as error:
        raise EngineError(f"{UNREADABLE}: {error}.") from None
    if "refused" in message:
        raise EngineError(printable(str(message["refused"])))
    return message


def _look_at(rank_0: Channel) -> None:
    # Rank 0 knows who has ended.
    body = rank_0.receive()
    if body is not None:
        _heed(body)
    if rank_0.closed:
        raise EngineError("rank 0 ended while all were connecting.\n  look at its output first.")
