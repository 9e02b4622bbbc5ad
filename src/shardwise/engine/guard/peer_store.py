"""The peer store: the keys and values by which torch's groups find each other, kept by one of their processes.

They travel over the connections of the watchdogs. So nothing listens for them, whoever asks has proved who it is, and
nobody waits for an answer of one that is gone.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from time import monotonic
from typing import Any

from torch.distributed import DistStoreError
from torch.distributed.distributed_c10d import Store

from shardwise.engine.guard.watchdog import Watchdog
from shardwise.engine.meeting.channel import LIMIT
from shardwise.errors import RankLost, is_sequence_of

MOST = LIMIT // 2  # bytes of values in one message


class KeyTable:
    """What this process keeps for others, and for itself; every process has one."""

    def __init__(self, watchdog: Watchdog, rank: int) -> None:
        """Answer what comes over the connections of a watchdog."""
        self.rank, self.watchdog, self.stores = rank, watchdog, list[PeerStore]()
        self._values: dict[str, bytes] = {}
        self._waiting: list[tuple[int, dict[str, Any]]] = []  # who asked for keys that are not there yet
        self._answers: dict[int, Any] = {}
        self._open: set[int] = set()  # questions that somebody waits for the answer of
        self._numbers = count()
        watchdog.handlers["ask key"] = self._serve
        watchdog.handlers["key"] = self._note

    def ask(self, owner: int, do: str, keys: Sequence[str], values: Sequence[Any], seconds: float) -> Any:
        """Have the owner of some keys do something with them; return its answer."""
        size = sum(len(str(value)) for value in values)
        if size > MOST:
            raise ValueError(f"the values of {', '.join(keys)} take {size} bytes; this store takes {MOST} at a time.")
        number = next(self._numbers)
        question = {"number": number, "do": do, "keys": list(keys), "values": list(values)}
        with self.watchdog.changed:
            self._open.add(number)
            if owner == self.rank:
                self._serve(owner, question)
            else:
                self.watchdog.tell(owner, kind="ask key", **question)
            end = monotonic() + seconds
            self.watchdog.changed.wait_for(lambda: number in self._answers or self._is_over(owner), seconds)
            self._open.discard(number)
            if number in self._answers:
                return self._answers.pop(number)
        if monotonic() >= end:
            raise DistStoreError(f"timed out: rank {owner} had no word of {', '.join(keys)} within {seconds:g} s")
        raise RankLost(f"rank {owner}, who keeps {', '.join(keys)}, was lost.", ranks=(owner,), step="init")

    def _is_over(self, owner: int) -> bool:
        if self.watchdog.stopped is not None:
            return True
        return owner != self.rank and self.watchdog.peers[owner].gone is not None

    # -- with the lock of the watchdog held, in whichever thread ---------------------------------------

    def _serve(self, rank: int, question: dict[str, Any]) -> None:
        _check_question(question)  # before it waits here, where others are served too
        gone = {peer.rank for peer in self.watchdog.peers.values() if peer.gone is not None}
        self._waiting = [entry for entry in self._waiting if entry[0] not in gone] + [(rank, question)]
        is_changed = True
        while is_changed:  # what one sets another may wait for
            is_changed = False
            for entry in list(self._waiting):
                asker, one = entry
                if one["do"] == "wait" and not all(key in self._values for key in one["keys"]):
                    continue
                self._waiting.remove(entry)
                is_changed = True
                answer = VERBS[one["do"]](self._values, one["keys"], one["values"])
                if asker == self.rank:
                    self._note(asker, {"number": one["number"], "answer": answer})
                else:
                    self.watchdog.tell(asker, kind="key", number=one["number"], answer=answer)

    def _note(self, rank: int, message: dict[str, Any]) -> None:
        if message["number"] in self._open:
            self._answers[message["number"]] = message["answer"]
        self.watchdog.changed.notify_all()


def _check_question(question: dict[str, Any]) -> None:
    keys, values = question.get("keys"), question.get("values")
    is_right = question.get("do") in VERBS and type(question.get("number")) is int and isinstance(values, list)
    if not is_right or not is_sequence_of(keys, str):
        raise ValueError("not a question")


def _text(value: bytes) -> str:
    return b64encode(value).decode()


def _set(table: dict[str, bytes], keys: Sequence[str], values: Sequence[str]) -> None:
    table.update({key: b64decode(value) for key, value in zip(keys, values, strict=True)})


def _get(table: dict[str, bytes], keys: Sequence[str], values: Sequence[Any]) -> list[str]:
    return [_text(table[key]) for key in keys]


def _add(table: dict[str, bytes], keys: Sequence[str], values: Sequence[int]) -> int:
    (key,), (number,) = keys, values
    table[key] = str(int(table.get(key, b"0")) + number).encode()
    return int(table[key])


def _compare_and_set(table: dict[str, bytes], keys: Sequence[str], values: Sequence[str]) -> str:
    (key,), (expected, wanted) = keys, map(b64decode, values)
    before = table.get(key)
    if (before is None and not expected) or before == expected:
        table[key] = wanted
    return _text(table.get(key, expected))


def _check(table: dict[str, bytes], keys: Sequence[str], values: Sequence[Any]) -> bool:
    return all(key in table for key in keys)


def _append(table: dict[str, bytes], keys: Sequence[str], values: Sequence[str]) -> None:
    (key,), (value,) = keys, values
    table[key] = table.get(key, b"") + b64decode(value)


def _delete(table: dict[str, bytes], keys: Sequence[str], values: Sequence[Any]) -> bool:
    return table.pop(keys[0], None) is not None


def _count(table: dict[str, bytes], keys: Sequence[str], values: Sequence[Any]) -> int:
    return len(table)


VERBS: dict[str, Callable[[dict[str, bytes], Sequence[str], Sequence[Any]], Any]] = {
    "set": _set,
    "wait": _get,
    "add": _add,
    "compare and set": _compare_and_set,
    "check": _check,
    "append": _append,
    "delete": _delete,
    "count": _count,
}


class PeerStore(Store):
    """A store of torch.distributed whose values one process of a group keeps, and all others ask for."""

    def __init__(self, table: KeyTable, owner: int, seconds: float) -> None:
        """Keep the values in the table of a process; wait for them this long."""
        super().__init__()
        self._table, self._owner, self._seconds = table, owner, seconds
        table.stores.append(self)  # torch keeps what is below, and asks for this

    def _ask(self, do: str, keys: Sequence[str], values: Sequence[Any] = (), limit: timedelta | None = None) -> Any:
        seconds = self._seconds if limit is None else limit.total_seconds()
        return self._table.ask(self._owner, do, keys, values, seconds)

    def set(self, key: str, value: str | bytes) -> None:
        """Set a value."""
        self._ask("set", [key], [_encode(value)])

    def get(self, key: str) -> bytes:
        """Return a value when it is there."""
        return self.multi_get([key])[0]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set several values."""
        self._ask("set", keys, [_encode(value) for value in values])

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Return several values when all are there."""
        return [b64decode(text) for text in self._ask("wait", keys)]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until some values are there."""
        self._ask("wait", keys, limit=timeout)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether some values are there."""
        return self._ask("check", keys)

    def add(self, key: str, value: int) -> int:
        """Add to a number, and return the sum."""
        return self._ask("add", [key], [value])

    def append(self, key: str, value: str | bytes) -> None:
        """Append to a value."""
        self._ask("append", [key], [_encode(value)])

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Set a value if it is the one expected, or not there and none is; return what is there then."""
        return b64decode(self._ask("compare and set", [key], [_encode(expected_value), _encode(desired_value)]))

    def delete_key(self, key: str) -> bool:
        """Delete a value; return whether it was there."""
        return self._ask("delete", [key])

    def num_keys(self) -> int:
        """Return how many values there are."""
        return self._ask("count", [])

    def has_extended_api(self) -> bool:
        """Whether several values can be asked for at once."""
        return True

    def clone(self) -> PeerStore:
        """Return the store itself, which any thread may use."""
        return self

    deleteKey, getNumKeys = delete_key, num_keys  # as C++ asks for them


def _encode(value: str | bytes) -> str:
    return _text(value if isinstance(value, bytes) else value.encode())
