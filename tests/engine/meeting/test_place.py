"""Where processes meet, told by a store that others keep; and the addresses and interfaces of this host."""

import json
import os
import socket
from datetime import timedelta
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore, TCPStore

from shardwise import EngineError
from shardwise.engine.meeting import place
from shardwise.engine.meeting.credentials import Credentials
from shardwise.engine.meeting.place import (
    KEY,
    interface_of,
    is_kept_by_torchrun,
    local_address,
    look_up,
    open_store,
    publish,
)
from shardwise.engine.meeting.rendezvous import Address
from tests.engine.meeting.meetings import OURS, SECRET, SOON, address_of, listener_of


def test_torchrun_says_that_it_keeps_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, kept in [("True", True), ("False", False), ("", False)]:
        monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", value)
        assert is_kept_by_torchrun() == kept
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE")
    assert not is_kept_by_torchrun()


def test_where_the_environment_has_no_secret_one_is_made_for_all_who_read_the_store() -> None:
    store = HashStore()
    first = publish(store, Address("there", 7), Credentials())
    assert len(first.secret) == 64
    assert look_up(store, Credentials(), SOON) == (("there", 7), first)
    assert publish(HashStore(), Address("there", 7), Credentials()) != first


def test_a_secret_of_the_environment_stays_out_of_the_store() -> None:
    store = HashStore()
    assert publish(store, Address("there", 7), OURS) is OURS
    assert SECRET not in store.get(KEY)
    assert look_up(store, OURS, SOON) == (("there", 7), OURS)


def test_who_finds_no_word_of_rank_0_says_so() -> None:
    with pytest.raises(EngineError, match=r"rank 0 did not come within 0\.1 s: the store of all has no word of it\."):
        look_up(HashStore(), OURS, 0.1)


@pytest.mark.parametrize(
    "word",
    [
        b"",
        b"{",
        b"3",
        b"[]",
        b'["a", 1]',
        b'["a", "1", ""]',
        b'["a", true, ""]',
        b'[null, 1, ""]',
        b"\xff",
        b'["a", 1, 2]',
    ],
)
def test_a_word_that_cannot_be_read_is_refused(word: bytes) -> None:
    store: Any = HashStore()
    store.set(KEY, word)
    with pytest.raises(
        EngineError, match=r"^what the store that all share says of rank 0 cannot be read; who else writ"
    ):
        look_up(store, OURS, SOON)


@pytest.mark.parametrize(
    ("text", "shown"), [("Broken pipe\nmore", "Broken pipe"), ("", "no reason given"), ("\x1b[2J", r"\x1b[2J")]
)
def test_a_store_that_is_gone_is_said_to_be(text: str, shown: str) -> None:
    class Gone(HashStore):
        def check(self, keys: Any) -> bool:
            raise RuntimeError(text)

    with pytest.raises(EngineError) as caught:
        look_up(Gone(), OURS, SOON)
    assert str(caught.value) == f"the store that all share is gone: {shown}"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> TCPStore:
    """The store of torchrun."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "RANK": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    return store


def test_every_restart_meets_anew(kept: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(open_store(SOON), Address("first", 7), OURS)
    assert look_up(open_store(SOON), OURS, SOON)[0] == ("first", 7)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    again = open_store(SOON)
    assert not again.check([KEY])
    publish(again, Address("second", 7), OURS)
    assert look_up(open_store(SOON), OURS, SOON)[0] == ("second", 7)
    assert json.loads(kept.get(f"shardwise/start/1/{KEY}"))[0] == "second"


def test_a_store_that_is_not_there_or_never_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with listener_of() as listener:
        port = address_of(listener).port
        for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "2"}.items():
            monkeypatch.setenv(name, value)
        joined: list[float] = []

        class Never:
            def __init__(self, **options: Any) -> None:
                assert options["daemon"] is True

            def start(self) -> None: ...

            def join(self, seconds: float) -> None:
                joined.append(seconds)

        with monkeypatch.context() as patch:
            patch.setattr(place, "Thread", Never)
            with pytest.raises(EngineError) as caught:
                open_store(3.0)
        assert str(caught.value) == (
            f"rank 2 cannot reach torchrun's store at 127.0.0.1:{port} (MASTER_ADDR, MASTER_PORT) within 3 s.\n"
            "  no answer"
        )
        assert joined == [4.0]

    def fail(*told: Any, timeout: timedelta, **options: Any) -> Any:
        assert timeout == timedelta(seconds=3)
        raise RuntimeError("no \x1broute\nand a stack")

    monkeypatch.setattr(place, "TCPStore", fail)
    with pytest.raises(EngineError, match=r"within 3 s\.\n  no \\x1broute$"):
        open_store(3.0)


def test_a_host_reaches_itself_by_the_address_that_was_asked_for() -> None:
    assert local_address("127.0.0.1") == "127.0.0.1"
    assert local_address("localhost") in ("127.0.0.1", "::1")
    with pytest.raises(EngineError, match=r"this host knows no way to no-such-host\.invalid \(MASTER_ADDR\): "):
        local_address("no-such-host.invalid")


def test_the_interface_of_an_address_is_found() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") is None
    assert interface_of("::1") is None
    names = {name for _, name in socket.if_nameindex()}
    assert "lo" in names
    assert os.path.isdir(f"/sys/class/net/{interface_of('127.0.0.1')}")
