"""Limits of open files: raised as far as this user may, and an error that says how many are needed."""

import os
import resource

import pytest

from shardwise import EngineError
from shardwise.engine.meeting import files
from shardwise.engine.meeting.files import keep_room, make_room

NONE = resource.RLIM_INFINITY


class Limits:
    """What stands in for the limits of this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, count: int = 10) -> None:
        self.soft, self.hard, self.changes = soft, hard, 0
        monkeypatch.setattr(resource, "getrlimit", lambda kind: (self.soft, self.hard))
        monkeypatch.setattr(resource, "setrlimit", self._change)
        monkeypatch.setattr(files, "_count_open", lambda: count)

    def _change(self, kind: int, limits: tuple[int, int]) -> None:
        assert kind == resource.RLIMIT_NOFILE
        (self.soft, self.hard), self.changes = limits, self.changes + 1


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [(1024, 4096, 1024), (256, 4096, 474), (474, 474, 474), (NONE, NONE, NONE), (256, NONE, 474), (473, 474, 474)],
)
def test_there_is_room_for_the_connections_of_a_hundred(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, after: int
) -> None:
    """10 files are open, each process needs 4 for each, and there are 64 to spare."""
    limits = Limits(monkeypatch, soft, hard)
    make_room(100)
    assert (limits.soft, limits.hard) == (after, hard)
    assert limits.changes == (soft != after)


def test_a_limit_that_is_too_low_is_refused_with_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(monkeypatch, 256, 473)
    with pytest.raises(EngineError) as caught:
        make_room(100)
    assert str(caught.value) == (
        "100 processes need about 474 open files in each, and 473 is the most that one may have.\n"
        "  ulimit -n 474, or LimitNOFILE of the service that starts them, gives more."
    )
    assert limits.changes == 0


@pytest.mark.parametrize(
    ("count", "hard", "after"), [(75, 400, 100), (76, 400, 200), (76, 150, 150), (76, NONE, 200), (76, 100, 100)]
)
def test_room_is_kept_while_there_is_some(monkeypatch: pytest.MonkeyPatch, count: int, hard: int, after: int) -> None:
    limits = Limits(monkeypatch, 100, hard, count)
    text = keep_room()
    assert limits.soft == after
    full = "76 files are open in this process, and 100 is the most that it may have (ulimit -n)"
    assert text == (full if (count, hard) == (76, 100) else "")


def test_open_files_are_counted() -> None:
    before = files._count_open()
    some = [os.open(os.devnull, os.O_RDONLY) for _ in range(7)]
    assert files._count_open() == before + 7
    for number in some:
        os.close(number)
