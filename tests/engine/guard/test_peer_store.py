"""Keys that travel between processes: against torch's own store, from several of them, and when one is gone."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch._C._distributed_c10d import HashStore
from torch.distributed import DistStoreError
from torch.distributed.distributed_c10d import PrefixStore, Store

from shardwise.engine.guard.peer_store import MOST, KeyTable, PeerStore
from shardwise.errors import RankLost
from tests.engine.guard.watchdogs import watchdogs

SOON = 20.0

keys, values = st.sampled_from(["a", "b", "rank/0"]), st.binary(max_size=12)
verbs = st.one_of(
    st.tuples(st.just("set"), keys, values),
    st.tuples(st.just("append"), keys, values),
    st.tuples(st.just("add"), st.just("number"), st.integers(-5, 5)),
    st.tuples(st.just("check"), st.lists(keys, min_size=1, max_size=3)),
    st.tuples(st.just("compare_set"), keys, values.filter(bool), values),
    st.tuples(st.just("delete_key"), keys),
    st.tuples(st.just("num_keys")),
)


def do(store: Store, verb: str, *args: Any) -> Any:
    return getattr(store, verb)(*args)


def test_it_answers_what_torchs_own_store_answers() -> None:
    """In one process and from another, asked by Python."""
    with watchdogs(2) as dogs:
        tables = [KeyTable(dog, rank) for rank, dog in enumerate(dogs)]

        @given(st.lists(st.tuples(st.integers(0, 1), verbs), max_size=12))
        def check(program: list[tuple[int, tuple[Any, ...]]]) -> None:
            theirs = HashStore()
            tables[0]._values.clear()
            stores = [PeerStore(table, 0, SOON) for table in tables]
            for who, (verb, *args) in program:
                if verb == "compare_set" and not theirs.check([args[0]]):
                    continue  # stores of torch differ in what they say of a key that is not there
                assert do(stores[who], verb, *args) == do(theirs, verb, *args), program
            for key in ("a", "b", "rank/0", "number"):
                if theirs.check([key]):
                    assert stores[0].get(key) == stores[1].get(key) == theirs.get(key)

        check()


def test_torch_asks_it_too_for_all_that_it_asks_of_stores() -> None:
    with watchdogs(2) as dogs:
        tables = [KeyTable(dog, rank) for rank, dog in enumerate(dogs)]
        some: list[Any] = [PrefixStore("p", PeerStore(table, 0, SOON)) for table in tables]
        one, two = some
        with ThreadPoolExecutor(2) as threads:
            waits = threads.submit(one.get, "late"), threads.submit(two.wait, ["late"], timedelta(seconds=SOON))
            two.set("late", "x")
            assert [wait.result() for wait in waits] == [b"x", None]
        one.multi_set(["c", "d"], ["1", "2"])
        assert two.multi_get(["c", "d"]) == [b"1", b"2"]
        assert (one.has_extended_api(), two.add("n", 2), one.add("n", 3)) == (True, 2, 5)
        assert (two.delete_key("n"), two.delete_key("n"), one.num_keys()) == (True, False, 3)
        assert two.compare_set("new", "", "first") == b"first"
        assert one.compare_set("new", "", "second") == b"first"
        assert one.compare_set("new", "first", "second") == b"second"


def test_whoever_asks_one_that_is_gone_is_told_and_nobody_waits_longer_than_asked() -> None:
    with watchdogs(2) as dogs:
        table = KeyTable(dogs[1], 1)
        KeyTable(dogs[0], 0)
        store = PeerStore(table, 0, SOON)
        with pytest.raises(DistStoreError, match=r"timed out: rank 0 had no word of nothing within 0\.2 s"):
            store.wait(["nothing"], timedelta(seconds=0.2))
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(store.get, "nothing")
            start = monotonic()
            dogs[0].end("it failed", clean=False)
            with pytest.raises(RankLost, match="rank 0, who keeps nothing, was lost") as caught:
                waiting.result(SOON)
        assert caught.value.ranks == (0,)
        assert monotonic() - start < SOON / 2


def test_what_is_too_long_for_a_message_is_refused() -> None:
    with watchdogs(2) as dogs:
        store = PeerStore(KeyTable(dogs[1], 1), 0, SOON)
        with pytest.raises(ValueError, match=f"the values of big take .* this store takes {MOST} at a time"):
            store.set("big", b"x" * MOST)


@pytest.mark.parametrize(
    "changed",
    [
        {"do": None},
        {"do": "destroy"},
        {"do": ["wait"]},
        {"keys": None},
        {"keys": "late"},
        {"keys": [3]},
        {"keys": [["late"]]},
        {"values": None},
        {"number": None},
        {"number": True},
        {"number": [1]},
        {"do": "add", "values": ["x"]},
        {"do": "set", "values": [3]},
        {"do": "set", "values": []},
        {"do": "append", "values": ["a", "b"]},
        {"do": "compare and set", "values": ["a"]},
    ],
)
def test_who_asks_nonsense_is_lost_and_the_others_are_served_as_ever(changed: dict[str, Any]) -> None:
    with watchdogs(3) as dogs:
        tables = [KeyTable(dog, rank) for rank, dog in enumerate(dogs)]
        dogs[1].tell(0, **({"kind": "ask key", "number": 1, "do": "wait", "keys": ["late"], "values": []} | changed))
        assert [peer.rank for peer in dogs[0].find_gone([1], SOON)] == [1]
        stores = [PeerStore(table, 0, SOON) for table in tables]
        with ThreadPoolExecutor(1) as threads:
            waits = threads.submit(stores[2].get, "late")
            stores[2].set("late", "x")
            assert waits.result(SOON) == b"x" == stores[0].get("late")
        assert dogs[0].peers[2].gone is None
