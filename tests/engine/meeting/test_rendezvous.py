"""What processes say of themselves at the start: read with care, compared in words, no longer than it must."""

import json
import socket
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.engine.meeting.channel import LIMIT
from shardwise.engine.meeting.handshake import MOST
from shardwise.engine.meeting.rendezvous import (
    Card,
    Channels,
    close_all,
    compare_cards,
    decode,
    encode,
    list_cards,
    list_seats,
    name_ranks,
    read_card,
    read_cards,
    seat,
)
from shardwise.engine.start import MOST_DRAWN
from tests.engine.meeting.meetings import card

CARD = card(1, host="127.0.0.1", port=1000, mesh="DeviceMesh(x=3)")


@given(
    st.builds(
        Card,
        rank=st.integers(0, 5),
        size=st.integers(6, 9),
        shardwise=st.text(),
        torch=st.text(),
        guard=st.booleans(),
        mesh=st.text(),
        who=st.text(st.characters(categories=["L", "N"])),
        host=st.text(),
        port=st.integers(0, 65535),
    )
)
def test_a_card_is_read_as_it_was_written(one: Card) -> None:
    assert read_card(json.loads(json.dumps(asdict(one)))) == one


OTHER_VALUES: list[Any] = [None, True, 1.0, 2.5, "1", -1, 1 << 20, [], {}, [1], float("nan")]


@pytest.mark.parametrize("name", list(asdict(CARD)))
@pytest.mark.parametrize("value", OTHER_VALUES)
def test_a_card_of_other_types_is_none(name: str, value: Any) -> None:
    kind = type(getattr(CARD, name))
    read = read_card(asdict(CARD) | {name: value})
    if type(value) is not kind or name == "rank":
        assert read is None
    elif name in ("size", "port"):
        assert (read is not None) == (value == 1 << 20 and name == "size")
    else:
        assert read == replace(CARD, **{name: value})


@pytest.mark.parametrize(
    "values",
    [None, 3, "card", [], ["rank"], {}, {"rank": 0}, asdict(CARD) | {"more": 1}, list(asdict(CARD).items())],
)
def test_what_is_no_card_is_none(values: Any) -> None:
    assert read_card(values) is None
    few = asdict(CARD)
    for name in asdict(CARD):
        assert read_card({key: value for key, value in few.items() if key != name}) is None


@pytest.mark.parametrize(
    ("rank", "size", "right"), [(0, 1, True), (0, 0, False), (3, 3, False), (2, 3, True), (-1, 3, False)]
)
def test_a_rank_is_one_of_its_job(rank: int, size: int, right: bool) -> None:
    assert (read_card(asdict(replace(CARD, rank=rank, size=size))) is not None) == right


def test_cards_are_compared_in_words_and_what_controls_a_terminal_is_escaped() -> None:
    assert compare_cards(card(0), card(1)) == ""
    changed = card(
        2, size=4, shardwise="0.2.0", torch="2.7", guard=False, mesh="Mesh('\x1b[2J\n  rank 0: all is well')"
    )
    assert compare_cards(card(0), changed) == (
        "ranks 0 and 2 do not agree about WORLD_SIZE, shardwise, torch, guard, mesh.\n"
        "  WORLD_SIZE: 3 in rank 0, 4 in rank 2\n"
        "  shardwise: 0.1.0 in rank 0, 0.2.0 in rank 2\n"
        "  torch: 2.6 in rank 0, 2.7 in rank 2\n"
        "  guard: True in rank 0, False in rank 2\n"
        "  mesh: none given to init in rank 0, Mesh('\\x1b[2J\\n  rank 0: all is well') in rank 2"
    )
    read = read_card(asdict(replace(CARD, who="h\x1b]0;title\x07ost\n:1")))
    assert read is not None
    assert read.who == r"h\x1b]0;title\x07ost\n:1"


def test_the_cards_of_all_are_told_in_short_and_fit_into_a_message_of_thousands() -> None:
    cards = {rank: card(rank, host="127.0.0.1", port=1000 + rank, mesh="m" * MOST_DRAWN) for rank in range(3)}
    assert read_cards(json.loads(json.dumps(list_cards(cards.values()))), cards[1]) == cards
    many = [
        card(rank, 10_000, who=f"node-{rank}.cluster:{rank}", host="10.100.100.100", port=65535)
        for rank in range(10_000)
    ]
    assert len(encode(cards=list_cards(many), job="0" * 16)) < LIMIT
    # A mesh is in what every process says of itself, cut, and in nothing that is told to all.
    assert len(json.dumps(asdict(card(0, mesh="é" * MOST_DRAWN)))) < MOST // 4


@pytest.mark.parametrize(
    "values",
    [
        None,
        {},
        [],
        [3],
        [[0, "a", "b", 1], [1, "a", "b", 1]],  # one is missing
        [[0, "a", "b", 1], [1, "a", "b", 1], [3, "a", "b", 1]],
        [[0, "a", "b", 1], [1, "a", "b", 1], [True, "a", "b", 1]],
        [[0, "a", "b", 1], [1, "a", "b", 1], [2.0, "a", "b", 1]],
        [[0, "a", "b", 1], [1, "a", "b", 1], [2, None, "b", 1]],
        [[0, "a", "b", 1], [1, "a", "b", 1], [2, "a", "b", "1"]],
        [[0, "a", "b", 1], [1, "a", "b", 1], [2, "a", "b"]],
    ],
)
def test_what_does_not_list_the_cards_of_all_is_refused(values: Any) -> None:
    with pytest.raises(ValueError, match="not "):
        read_cards(values, CARD)


def test_names_of_others_are_escaped() -> None:
    rows = [[rank, "host\x1b", "127.0.0.1", 1] for rank in range(3)]
    assert read_cards(rows, CARD)[2].who == r"host\x1b"


@pytest.mark.parametrize("body", [b"", b"[]", b"3", b"null", b"\xff", b"[" * 100_000, b"not JSON"])
def test_what_is_no_message_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(body)
    assert decode(encode(ready=True, text="é\x1b")) == {"ready": True, "text": "é\x1b"}


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


@pytest.mark.parametrize(
    "changed",
    [
        {"job": "another"},
        {"job": None},
        {"kind": "others"},
        {"kind": None},
        {"kind": ["calls"]},
        {"rank": True},
        {"rank": 1.0},
        {"rank": "1"},
        {"rank": None},
        {"rank": [1]},
        {"rank": 7},
        {"rank": -1},
    ],
)
def test_who_is_not_expected_is_sent_away(ends: tuple[socket.socket, socket.socket], changed: dict[str, Any]) -> None:
    missing, channels = list_seats([1, 2]), Channels({"calls": {}, "beats": {}})
    seat((ends[0], {"kind": "calls", "rank": 1, "job": "job"} | changed), "job", missing, channels)
    assert ends[0].fileno() == -1
    assert (missing, channels) == (list_seats([1, 2]), {"calls": {}, "beats": {}})


def test_who_is_expected_takes_a_seat_once(ends: tuple[socket.socket, socket.socket]) -> None:
    missing, channels = list_seats([1]), Channels({"calls": {}, "beats": {}})
    greeting = {"kind": "beats", "rank": 1, "job": "job"}
    seat((ends[0], greeting), "job", missing, channels)
    assert missing == {("calls", 1)}
    assert channels["beats"][1].rank == 1
    seat((ends[1], greeting), "job", missing, channels)
    assert ends[1].fileno() == -1
    close_all(channels)
    assert ends[0].fileno() == -1


def test_ranks_are_named() -> None:
    assert name_ranks([]) == "ranks "
    assert name_ranks([3]) == "rank 3"
    assert name_ranks([1, 3]) == "ranks 1, 3"
