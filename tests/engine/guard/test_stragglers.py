"""Stragglers: who is late by a multiple of what is usual is asked and named, again and again, and greeted."""

import logging
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

import pytest

from shardwise.engine.call import Call
from shardwise.engine.guard import stragglers as module
from shardwise.engine.guard.stragglers import ANSWER, FACTOR, LEAST, MOST, NEW, Pace, Stragglers, Wait

CALL = Call("all_gather", (0, 1, 2), (8,), "float32", "[x]", "[-]", None, None, "ab12")
PLACE = "train.py:3", "ab12"


def paced(*times: float) -> Pace:
    pace = Pace()
    for now in times:
        pace.arrive(*PLACE, now)
    return pace


def test_what_is_usual_is_the_time_since_the_call_before() -> None:
    assert Pace().usual(*PLACE) is None
    assert paced(5.0).usual(*PLACE) is None  # it came after none
    assert paced(5.0, 7.0).usual(*PLACE) == 2.0
    assert paced(5.0, 7.0, 11.0).usual(*PLACE) == pytest.approx(2.5)
    pace = paced(5.0, 7.0)
    pace.arrive("train.py:4", "ab12", 7.5)
    pace.arrive(*PLACE, 9.5)
    assert (pace.usual("train.py:4", "ab12"), pace.usual(*PLACE)) == (0.5, 2.0)
    assert pace.usual("train.py:3", "other") is None


def test_one_that_was_very_late_changes_little() -> None:
    pace = paced(0.0, 2.0, 1000.0)
    assert pace.usual(*PLACE) == pytest.approx(2.0 + 0.25 * (FACTOR * 2.0 + LEAST - 2.0))


def test_places_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLACES", 3)
    pace = Pace()
    for now in range(9):
        pace.arrive(f"train.py:{now}", "ab12", float(now))
        assert pace.usual(f"train.py:{now}", "ab12") == (None if now == 0 else 1.0)
        assert len(pace._usual) <= 3


@pytest.mark.parametrize(
    ("times", "since", "due"),
    [
        ((), 100.0, 100.0 + NEW * 60),  # nothing is known
        ((90.0, 92.0), 93.0, 92.0 + FACTOR * 2.0),
        ((90.0, 92.0), 99.0, 99.0 + LEAST),  # this process came late itself
        ((90.0, 90.1), 90.2, 90.2 + LEAST),
        ((20.0, 90.0), 91.0, 91.0 + MOST * 60),  # before the time is up, whatever is usual
    ],
)
def test_when_somebody_is_late(times: tuple[float, ...], since: float, due: float) -> None:
    wait = paced(*times).wait(CALL, 7, "train.py:3", since, 60.0)
    assert wait.due == pytest.approx(due)
    assert (wait.since, wait.end, wait.usual) == (since, since + 60, paced(*times).usual(*PLACE))
    assert str(wait) == "all_gather (sequence 7, at train.py:3)"


def test_it_is_asked_at_doubling_times_and_just_before_the_end() -> None:
    wait = Wait(CALL, 7, "", 0.0, 2.0, 60.0)
    times = [2.0]
    while times[-1] < 60:
        times.append(wait.next_due(times[-1]))
    assert times == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0 - 2 * ANSWER, 2 * (60.0 - 2 * ANSWER)]


class Watch:
    """Looks at times that the test says; ranks answer when it says so."""

    def __init__(self) -> None:
        self.asked = list[list[int]]()
        self.answers = set[int]()
        self.stragglers = Stragglers(lambda ranks: self.asked.append(list(ranks)), lambda rank, _: rank in self.answers)

    def look(self, now: float) -> list[str]:
        return self.stragglers.look(now, lambda rank: f"busy at net.py:{rank}")


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    out = list[tuple[str, str]]()

    def log(write: Callable[..., Any], text: str) -> None:
        out.append((write.__name__, text))

    monkeypatch.setattr(module, "log", log)
    return out


def test_who_is_late_is_asked_then_named_and_then_greeted(lines: list[tuple[str, str]]) -> None:
    watch = Watch()
    assert watch.look(0.0) == []
    watch.stragglers.wait = wait = Wait(CALL, 7, "train.py:3", 1.0, 5.0, 61.0, [1, 2], usual=1.5)
    assert watch.look(1.0) == watch.look(4.9) == []
    assert watch.asked == []
    assert watch.look(5.0) == []
    assert watch.asked == [[1, 2]]
    watch.answers = {1}
    assert watch.look(5.1) == []  # the other may answer
    watch.answers = {1, 2}
    texts = watch.look(5.2)
    assert texts == [
        f"rank {rank} is late: all_gather (sequence 7, at train.py:3) has waited 4.2 s for it, which usually comes "
        f"1.5 s after the one before; busy at net.py:{rank}"
        for rank in (1, 2)
    ]
    assert lines == [("warning", text) for text in texts]
    assert watch.stragglers.late == {rank: (pytest.approx(4.2), f"busy at net.py:{rank}") for rank in (1, 2)}
    assert watch.look(9.0) == []
    wait.ranks = [2]
    came = "rank 1, which was late, has come: all_gather (sequence 7, at train.py:3) has waited 8.2 s for it"
    assert watch.look(9.2) == [came]
    assert lines[-1] == ("info", came)
    assert watch.look(9.4) == []
    assert watch.asked == [[1, 2], [2]]
    watch.answers = set()
    assert watch.look(9.4 + ANSWER) == []
    (text,) = watch.look(9.5 + ANSWER)  # it has not answered
    assert text.startswith("rank 2 is late: all_gather (sequence 7, at train.py:3) has waited 9.2")
    watch.stragglers.wait = None
    assert watch.look(12.0) == [
        "rank 2, which was late, has come: all_gather (sequence 7, at train.py:3) has waited 11.0 s for it"
    ]
    assert watch.stragglers.late == {}
    assert watch.look(13.0) == []
    assert len(lines) == 5


def test_one_of_those_who_wait_writes_and_all_know(lines: list[tuple[str, str]]) -> None:
    watch = Watch()
    watch.stragglers.wait = Wait(CALL, 7, "", 1.0, 5.0, 61.0, [2], tells=False)
    watch.look(5.0)
    (text,) = watch.look(5.0 + 2 * ANSWER)
    assert "at an unknown line" in text
    assert "usually" not in text
    assert lines == []
    assert list(watch.stragglers.late) == [2]


def test_a_wait_that_ends_in_time_asks_nobody(lines: list[tuple[str, str]]) -> None:
    watch = Watch()
    for start in (0.0, 10.0, 20.0):
        watch.stragglers.wait = Wait(CALL, 7, "", start, start + 5.0, start + 60.0, [2])
        assert watch.look(start + 4.0) == []
    watch.stragglers.wait = Wait(CALL, 8, "", 25.0, 30.0, 90.0, [])
    assert watch.look(31.0) == []  # nobody is missing
    assert (watch.asked, lines) == ([], [])


def test_after_an_error_nothing_more_is_said(lines: list[tuple[str, str]]) -> None:
    watch = Watch()
    watch.stragglers.wait = Wait(CALL, 7, "", 1.0, 5.0, 61.0, [2])
    watch.look(5.0)
    watch.look(5.0 + 2 * ANSWER)
    watch.stragglers.forget()
    assert watch.look(8.0) == []
    assert watch.stragglers.late == {}
    assert len(lines) == 1


def test_whoever_writes_does_not_hold_up_who_tells() -> None:
    written, may = list[str](), threading.Event()

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            may.wait(20)
            written.append(record.getMessage())

    handler = Slow()
    module.logger.addHandler(handler)
    try:
        module.log(module.logger.warning, "100 % late")
        assert written == []  # and it has been told all the same
        may.set()
        end = monotonic() + 20
        while not written and monotonic() < end:
            sleep(0.01)
        assert written == ["100 % late"]
    finally:
        may.set()
        module.logger.removeHandler(handler)


def test_lines_are_written_in_order_and_one_that_nobody_reads_keeps_one_thread() -> None:
    """Each line has a thread that may be the one that writes; while one does, the others have nothing to do."""
    written, may = list[str](), threading.Event()

    def write(form: str, text: str) -> None:
        assert form == "%s"
        may.wait(20)
        written.append(text)

    texts = [str(k) for k in range(300)]
    for text in texts:
        module.log(write, text)
    end = monotonic() + 20
    while count_writers() > 1 and monotonic() < end:
        sleep(0.01)
    assert (count_writers(), written) == (1, [])
    may.set()
    while len(written) < len(texts) and monotonic() < end:
        sleep(0.01)
    assert written == texts


def count_writers() -> int:
    return sum(thread.name == "shardwise-log" for thread in threading.enumerate())


def test_a_line_that_comes_when_the_writer_is_about_to_end_is_written() -> None:
    for k in range(300):
        written = list[str]()
        module.log(lambda form, text, written=written: written.append(text), f"first {k}")
        if k % 3:
            sleep(k % 7 / 20_000)
        module.log(lambda form, text, written=written: written.append(text), f"second {k}")
        end = monotonic() + 20
        while len(written) < 2 and monotonic() < end:
            sleep(0.0001)
        assert written == [f"first {k}", f"second {k}"]
