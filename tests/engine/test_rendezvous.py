"""Where processes meet: threads that share a store."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore

from shardwise import EngineError
from shardwise.engine.rendezvous import Card, _unopened, addresses, meet, shared_token

CARD = Card(0, 3, "0.1.0", "2.6", True, "", "127.0.0.1", 1000, "host:1")


def cards(**changed: Any) -> list[Card]:
    """Three cards; the last is changed."""
    made = [replace(CARD, rank=rank, port=1000 + rank, who=f"host:{rank}") for rank in range(3)]
    return [*made[:2], replace(made[2], **changed)]


def met(some: list[Card], timeout: float = 20.0) -> list[Any]:
    store = HashStore()
    with ThreadPoolExecutor(len(some)) as threads:
        asked = [threads.submit(meet, store, card, timeout) for card in some]
        return [one.exception(60) or one.result() for one in asked]


def test_all_get_the_cards_of_all() -> None:
    made = cards()
    assert met(made) == [dict(enumerate(made))] * 3
    assert addresses(dict(enumerate(made)), 1) == {0: ("127.0.0.1", 1000), 2: ("127.0.0.1", 1002)}


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"size": 4}, r"ranks \d and 2 do not agree about WORLD_SIZE.\n  WORLD_SIZE: 3 in rank \d, 4 in rank 2"),
        ({"shardwise": "0.2.0"}, r"about shardwise.\n  shardwise: 0.1.0 in rank \d, 0.2.0 in rank 2"),
        ({"torch": "2.7"}, r"about torch.\n  torch: 2.6 in rank \d, 2.7 in rank 2"),
        ({"guard": False}, r"about guard.\n  guard: True in rank \d, False in rank 2"),
        (
            {"mesh": "DeviceMesh(x=3)"},
            r"about mesh.\n  mesh: none given to init in rank \d, DeviceMesh\(x=3\) in rank 2",
        ),
    ],
)
def test_who_does_not_agree_is_named_to_all(changed: dict[str, Any], text: str) -> None:
    for error in met(cards(**changed)):
        assert isinstance(error, EngineError)
        with pytest.raises(EngineError, match=text):
            raise error


def test_who_is_there_twice_is_named() -> None:
    for error in met([*cards()[:2], replace(CARD, rank=1, who="other:7")]):
        assert isinstance(error, EngineError)
        assert "rank 1 is there twice: " in str(error)
        assert "other:7" in str(error)


def test_who_is_absent_is_named() -> None:
    for error in met(cards()[:1] + cards()[2:], 0.3):
        assert str(error).startswith("rank 1 of 3 did not come within 0.3 s.\n  here: rank 0 (host:0), 2 (host:2)\n")
    assert "ranks 1, 2 of 3 did not come" in str(met(cards()[:1], 0.2)[0])


def test_a_store_that_is_gone_is_rank_0_that_left() -> None:
    class Gone(HashStore):
        def add(self, key: str, value: int) -> int:
            raise RuntimeError("Broken pipe")

    with pytest.raises(EngineError, match="rank 0, who keeps the store, left while rank 2 was starting: Broken pipe"):
        meet(Gone(), cards()[2], 1.0)


def test_a_token_is_shared() -> None:
    store = HashStore()
    first = shared_token(store, 0)
    assert len(first) == 32
    assert shared_token(store, 1) == first


@pytest.mark.parametrize(
    ("reason", "check"),
    [
        (
            "... EADDRINUSE, message: address already in use",
            lambda text: "port 7 is taken: rank 0 cannot listen" in text,
        ),
        ("timed out\nmore", lambda text: text.endswith("listens there.\n  timed out")),
    ],
)
def test_a_store_that_cannot_be_opened_is_explained(reason: str, check: Callable[[str], bool]) -> None:
    assert check(_unopened("host", 7, 1, 3.0, reason))
