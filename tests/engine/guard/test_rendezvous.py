"""Where processes meet: threads that share a store."""

import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore

from shardwise import EngineError
from shardwise.engine.guard import rendezvous
from shardwise.engine.guard.rendezvous import (
    Card,
    _failure_text,
    _reach,
    addresses,
    meet,
    open_start_store,
    shared_token,
)

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
    assert check(_failure_text("host", 7, 1, 3.0, reason))


# -- one process alone, by a clock that only sleeping moves --------------------------------------------------


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.sleeps = 100.0, list[float]()
        self.events: dict[int, Callable[[], Any]] = {}  # what happens in the so-manyeth sleep
        monkeypatch.setattr(rendezvous, "monotonic", lambda: self.now)
        monkeypatch.setattr(rendezvous, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds
        self.events.pop(len(self.sleeps), lambda: None)()


def arrive(store: HashStore, card: Card) -> None:
    store.set(f"card/{card.rank}/{store.add(f'seat/{card.rank}', 1)}", json.dumps(asdict(card)))
    store.add("arrived", 1)


def test_who_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    made = cards()
    for here, there in [(made[0], made[2]), (made[2], made[0])]:
        store = HashStore()
        arrive(store, there)
        with pytest.raises(EngineError) as found:
            meet(store, here, 0.3)
        text = "rank 1 of 3 did not come within 0.3 s.\n  here: rank 0 (host:0), 2 (host:2)\n"
        assert str(found.value).startswith(text)


def test_who_waits_in_vain_gives_up_after_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, store = Clock(monkeypatch), HashStore()
    with pytest.raises(EngineError, match=r"ranks 0, 2 of 3 did not come within 1 s\.\n  here: rank 1 \(host:1\)\n"):
        meet(store, cards()[1], 1.0)
    assert clock.now == pytest.approx(101.0, abs=0.05)
    assert set(clock.sleeps) == {0.02}
    assert store.add("told", 0) == store.add("refusals", 0) == 1
    assert b"did not come" in store.get("refused")


def test_all_go_on_when_all_have_seen_all(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, store, made = Clock(monkeypatch), HashStore(), cards()
    arrive(store, made[1])
    clock.events = {
        3: lambda: arrive(store, made[2]),
        5: lambda: store.add("agreed", 1),
        7: lambda: store.add("agreed", 1),
    }
    assert meet(store, made[0], 1.0) == dict(enumerate(made))
    assert len(clock.sleeps) == 7
    assert store.add("agreed", 0) == 3


def test_who_does_not_finish_starting_is_waited_for_ten_seconds_more(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, store, made = Clock(monkeypatch), HashStore(), cards()
    arrive(store, made[0])
    arrive(store, made[2])
    with pytest.raises(EngineError, match="only 1 of 3 processes finished starting"):
        meet(store, made[1], 1.0)
    assert clock.now == pytest.approx(111.0, abs=0.05)


def test_a_refusal_is_heeded_while_waiting_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, store, made = Clock(monkeypatch), HashStore(), cards()
    arrive(store, made[0])
    arrive(store, made[2])
    clock.events = {2: lambda: store.set("refused", "rank 2 has another mesh")}
    with pytest.raises(EngineError, match="rank 2 has another mesh"):
        meet(store, made[1], 1.0)
    assert len(clock.sleeps) == 2
    assert store.add("told", 0) == 1
    assert store.add("refusals", 0) == 0


def test_rank_0_stays_until_all_who_came_are_told_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, store = Clock(monkeypatch), HashStore()
    with pytest.raises(EngineError, match="ranks 1, 2 of 3 did not come"):
        meet(store, cards()[0], 1.0)
    assert clock.now == pytest.approx(101.0, abs=0.05)  # nobody came who could be told
    store = HashStore()
    store.set("refused", "no")
    clock.now = 100.0
    with pytest.raises(EngineError, match="no"):
        meet(store, cards()[0], 1.0)
    assert clock.now == pytest.approx(110.0, abs=0.05)  # the others may still come
    store = HashStore()
    store.set("refused", "no")
    store.add("told", 1)
    clock.now, clock.sleeps = 100.0, []
    clock.events = {4: lambda: store.add("told", 1)}
    with pytest.raises(EngineError, match="no"):
        meet(store, cards()[0], 1.0)
    assert len(clock.sleeps) == 4


def test_the_first_refusal_is_what_all_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    store = HashStore()
    store.add("refusals", 1)
    with pytest.raises(EngineError, match="ranks 0, 2 of 3 did not come"):
        meet(store, cards()[1], 1.0)
    assert not store.check(["refused"])


def test_cards_are_read_only_when_someone_came(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    reads: list[str] = []

    class Store(HashStore):
        def get(self, key: str) -> bytes:
            reads.append(key)
            return super().get(key)

    with pytest.raises(EngineError, match="did not come"):
        meet(Store(), cards()[1], 1.0)
    assert reads == ["card/1/1"]


def test_at_the_very_end_of_its_time_a_process_looks_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)  # pauses that floats hold exactly
    monkeypatch.setattr(rendezvous, "PAUSE", 0.25)

    def pauses(ask: Callable[[], Any]) -> int:
        clock.now, clock.sleeps = 100.0, []
        with pytest.raises(EngineError):
            ask()
        return len(clock.sleeps)

    def refuse(place: tuple[str, int], timeout: float) -> Any:
        raise OSError("refused")

    monkeypatch.setattr(socket, "create_connection", refuse)
    assert pauses(lambda: _reach("host", 7, 2, 1.0)) == 5
    assert pauses(lambda: meet(HashStore(), cards()[1], 1.0)) == 5
    alone = replace(CARD, rank=1, size=2)
    store = HashStore()
    arrive(store, replace(alone, rank=0))
    assert pauses(lambda: meet(store, alone, 1.0)) == 4 * 11 + 1  # the other is there and never goes on
    store = HashStore()
    store.set("refused", "no")
    assert pauses(lambda: meet(store, cards()[0], 1.0)) == 4 * 10  # rank 0 stays no longer than ten seconds


@pytest.mark.parametrize("rank", [0, 1])
def test_both_who_have_one_rank_are_named_in_the_order_they_came(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    Clock(monkeypatch)
    first, second = replace(CARD, rank=rank, who="host:1"), replace(CARD, rank=rank, who="other:7")
    store = HashStore()
    arrive(store, first)
    text = (
        f"rank {rank} is there twice: host:1 and other:7.\n"
        "  every process has its own RANK; a program that was started before may still use this MASTER_PORT."
    )
    with pytest.raises(EngineError) as found:
        meet(store, second, 1.0)
    assert str(found.value) == store.get("refused").decode() == text
    with pytest.raises(EngineError) as found:
        meet(store, replace(CARD, rank=2), 1.0)
    assert str(found.value) == text  # who sees nothing wrong is told


# -- the store -----------------------------------------------------------------------------------------------


class Opened:
    """What stands in for the store of torch."""

    asked: list[Any]

    def __init__(self, *place: Any, **options: Any) -> None:
        Opened.asked.append((place, options))
        if place[0] == "broken":
            raise RuntimeError("address already in use")


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    Opened.asked = []
    monkeypatch.setattr(rendezvous, "TCPStore", Opened)
    monkeypatch.setattr(rendezvous, "Store", Opened)
    monkeypatch.setattr(rendezvous, "PrefixStore", lambda prefix, store: prefix)
    monkeypatch.setattr(rendezvous, "_reach", lambda *where: Opened.asked.append(where))
    for name, value in {"MASTER_ADDR": "host", "MASTER_PORT": "7", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    for name in ("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    return Opened.asked


def test_rank_0_keeps_the_store(opening: list[Any]) -> None:
    assert open_start_store(3.0) == "shardwise/start/0"
    options = {"is_master": True, "timeout": timedelta(seconds=3), "wait_for_workers": False}
    assert opening == [(("host", 7), options)]


@pytest.mark.parametrize(("name", "value"), [("RANK", "2"), ("TORCHELASTIC_USE_AGENT_STORE", "True")])
def test_others_reach_it_first(opening: list[Any], monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "4")
    assert open_start_store(3.0) == "shardwise/start/4"  # a restart meets anew
    reached, (_, options) = opening
    assert reached == ("host", 7, 2 if name == "RANK" else 0, 3.0)
    assert options["is_master"] is False


def test_a_store_that_fails_or_never_answers_is_refused(opening: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[float] = []

    class Never:
        def __init__(self, **options: Any) -> None:
            assert options["daemon"] is True

        def start(self) -> None: ...

        def join(self, seconds: float) -> None:
            joined.append(seconds)

    with monkeypatch.context() as patch:
        patch.setattr(rendezvous, "Thread", Never)
        with pytest.raises(EngineError, match=r"(?s)rank 0 cannot reach rank 0 at host:7 .* within 3 s.*no answer"):
            open_start_store(3.0)
    assert joined == [4.0]
    monkeypatch.setenv("MASTER_ADDR", "broken")
    with pytest.raises(EngineError, match="port 7 is taken: rank 0 cannot listen on broken:7"):
        open_start_store(3.0)


def test_a_host_is_asked_again_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, waits, closed = Clock(monkeypatch), list[float](), list[int]()

    class Connection:
        def close(self) -> None:
            closed.append(1)

    def refuse(place: tuple[str, int], timeout: float) -> Any:
        assert place == ("host", 7)
        waits.append(timeout)
        if len(waits) == 3 and clock.now < 110:
            return Connection()
        raise OSError("refused")

    monkeypatch.setattr(socket, "create_connection", refuse)
    _reach("host", 7, 2, 1.0)
    assert waits == pytest.approx([1.0, 0.98, 0.96])
    assert closed == [1]
    clock.now = 200.0
    with pytest.raises(EngineError, match=r"(?s)rank 2 cannot reach rank 0 at host:7 .* within 1 s.*\n  refused"):
        _reach("host", 7, 2, 1.0)
    assert clock.now == pytest.approx(201.0, abs=0.05)
    assert waits[-1] == 0.1


def test_a_reason_that_is_not_given_is_said_so() -> None:
    assert _failure_text("host", 7, 1, 3.0, "").endswith("\n  no reason given")
    assert "port 7 is taken" in _failure_text("host", 7, 1, 3.0, "EADDRINUSE")
