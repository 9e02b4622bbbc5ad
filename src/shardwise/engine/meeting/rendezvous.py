"""The rendezvous: where processes meet at the start, and see that all are there and agree.

Rank 0 listens, the others call it, and each leaves a card. Rank 0 compares the cards and, when all are there, gives
everybody all of them; then every two connect. Until all have, each keeps its connection to rank 0: whoever ends
meanwhile is named to all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, cast

from shardwise.engine.meeting.channel import KINDS, Channel
from shardwise.engine.meeting.gate import Newcomer
from shardwise.errors import printable

PAUSE = 0.02  # seconds between looks
MOST_PORTS = (1 << 16) - 1
KINDS_OF_FIELDS = {"int": int, "str": str, "bool": bool}

Channels = dict[str, dict[int, Channel]]  # by kind and rank


class Address(NamedTuple):
    """Where a process listens."""

    host: str
    port: int


@dataclass(frozen=True)
class Card:
    """What a process says of itself at the start; all but who and where it is must be equal."""

    rank: int
    size: int
    shardwise: str
    torch: str
    guard: bool
    mesh: str
    who: str  # the name of its host, and its number there
    host: str = ""  # where it listens, as the port
    port: int = 0

    def facts(self) -> dict[str, Any]:
        """Return what must be equal, by the words of the user."""
        mesh = self.mesh or "none given to init"
        names = {"WORLD_SIZE": self.size, "shardwise": self.shardwise, "torch": self.torch, "guard": self.guard}
        return names | {"mesh": mesh}


@dataclass(frozen=True)
class Meeting:
    """What a process has of the others when all have met."""

    cards: Mapping[int, Card]
    channels: Mapping[str, Mapping[int, Channel]]  # to all others, by kind and rank
    job: str  # a name of this start, which is no secret
    host: str  # the address of this host by which the others reach it
    clock_offset: float = 0.0  # seconds by which the clock of rank 0 is ahead of ours


def compare_cards(mine: Card, other: Card) -> str:
    """Return what two cards do not agree about, in words; nothing if they agree."""
    one, two = mine.facts(), other.facts()
    different = [name for name in one if one[name] != two[name]]
    texts = [[printable(str(facts[name]), keep="") for facts in (one, two)] for name in different]
    rows = [
        f"\n  {name}: {text} in rank {mine.rank}, {other_text} in rank {other.rank}"
        for name, (text, other_text) in zip(different, texts, strict=True)
    ]
    head = f"ranks {mine.rank} and {other.rank} do not agree about {', '.join(different)}."
    return f"{head}{''.join(rows)}" if different else ""


def read_card(values: object) -> Card | None:
    """Return the card of another process; None for anything else, whatever it is.

    >>> read_card({"rank": True, "size": 2}) is None
    True
    """
    if not isinstance(values, dict):
        return None
    card = cast("dict[str, Any]", values)
    kinds = {field.name: KINDS_OF_FIELDS[str(field.type)] for field in fields(Card)}
    # A bool is an int to Python, and 1.0 is equal to 1.
    if card.keys() != kinds.keys() or any(type(card[name]) is not kind for name, kind in kinds.items()):
        return None
    if not (0 <= card["rank"] < card["size"] and 0 <= card["port"] <= MOST_PORTS):
        return None
    return replace(Card(**card), who=printable(card["who"], keep=""))


def list_cards(cards: Iterable[Card]) -> list[list[Any]]:
    """Return what others have to be told of cards that agree."""
    return [[card.rank, card.who, card.host, card.port] for card in cards]


def read_cards(values: object, own: Card) -> dict[int, Card]:
    """Return the cards of all by rank, as they were listed; raise ValueError if that is no list of them."""
    cards: dict[int, Card] = {}
    for row in cast("list[Any]", values) if isinstance(values, list) else []:
        if not isinstance(row, list) or list(map(type, cast("list[Any]", row))) != [int, str, str, int]:
            raise ValueError("not a list of cards")
        rank, who, host, port = cast("list[Any]", row)
        cards[rank] = replace(own, rank=rank, who=printable(who, keep=""), host=host, port=port)
    if sorted(cards) != list(range(own.size)):
        raise ValueError("not the cards of all")
    return cards


def name_ranks(ranks: Sequence[int]) -> str:
    """Return ranks in words.

    >>> name_ranks([2]), name_ranks([1, 2])
    ('rank 2', 'ranks 1, 2')
    """
    return f"rank{'s' * (len(ranks) != 1)} {', '.join(map(str, ranks))}"


def list_seats(ranks: Iterable[int]) -> set[tuple[str, int]]:
    """Return the channels that are to come from some ranks."""
    return {(kind, rank) for rank in ranks for kind in KINDS}


def seat(newcomer: Newcomer, job: str, missing: set[tuple[str, int]], channels: Channels) -> None:
    """Take a newcomer as the channel that it says it is, if that is missing; who is of another job is sent away."""
    connection, greeting = newcomer
    kind, rank = str(greeting.get("kind")), greeting.get("rank")
    if greeting.get("job") != job or type(rank) is not int or (kind, rank) not in missing:
        connection.close()
        return
    missing.discard((kind, rank))
    channels[kind][rank] = Channel(connection, rank)


def close_all(channels: Channels) -> None:
    """Close the channels of a meeting that failed."""
    for some in channels.values():
        for channel in some.values():
            channel.close()


def decode(body: bytes) -> dict[str, Any]:
    """Return a message between rank 0 and another; raise ValueError if it is none."""
    try:
        message = json.loads(body)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if not isinstance(message, dict):
        raise ValueError("not a message")
    return cast("dict[str, Any]", message)


def encode(**message: Any) -> bytes:
    """Return the bytes of a message between rank 0 and another."""
    return json.dumps(message).encode()
