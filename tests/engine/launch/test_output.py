"""Lines of several processes on one terminal."""

from io import StringIO

import pytest

from shardwise.engine.launch import output
from shardwise.engine.launch.output import Stream


def test_lines_are_printed_when_they_are_complete() -> None:
    to = StringIO()
    stream = Stream("[1] ", to)
    stream.take(b"one\ntw")
    assert to.getvalue() == "[1] one\n"
    stream.take(b"o\r\n\xff\nrest")
    stream.end()
    assert to.getvalue() == "[1] one\n[1] two\n[1] �\n[1] rest\n"


def test_tracebacks_are_held_and_say_whom_they_blame() -> None:
    to = StringIO()
    stream = Stream("", to, holds=True)
    stream.take(b"a line\n[rank1]: Traceback (most recent call last):\n[rank1]:   File ...\n")
    assert to.getvalue() == "a line\n"
    assert stream.began is not None
    stream.take(b"[rank1]: ValueError: RankLost is a word\n")
    assert not stream.is_consequence
    stream.take(b"[rank1]: shardwise.RankLost: rank 2\n")
    assert stream.is_consequence
    stream.release()
    assert to.getvalue().splitlines()[1:] == [
        "Traceback (most recent call last):",
        "  File ...",
        "ValueError: RankLost is a word",
        "shardwise.RankLost: rank 2",
    ]
    stream.take(b"more\n")
    assert to.getvalue().endswith("more\n")


def test_a_traceback_is_printed_when_its_process_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    to = StringIO()
    stream = Stream("", to, holds=True)
    stream.take(b"Traceback (most recent call last):\n")
    stream.look()
    assert to.getvalue() == ""
    monkeypatch.setattr(output, "PATIENCE", -1.0)
    stream.look()
    assert to.getvalue() == "Traceback (most recent call last):\n"


def test_patience_is_counted_from_the_beginning_of_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    now, to = [10.0], StringIO()
    monkeypatch.setattr(output, "monotonic", lambda: now[0])
    stream = Stream("", to, holds=True)
    stream.take(b"fine\n")
    stream.look()
    stream.take(b"Traceback (most recent call last):\n")
    assert stream.began == 10.0
    now[0] = 15.0
    stream.take(b"Traceback (most recent call last):\nCollectiveError: x\n")
    assert (stream.began, stream.is_consequence) == (10.0, True)  # the first of those that are held
    stream.look()
    assert to.getvalue() == "fine\n"  # five seconds are not over
    now[0] = 15.1
    stream.look()
    assert to.getvalue().count("\n") == 4
    stream.look()
    assert to.getvalue().count("\n") == 4
    stream.take(b"Fatal Python error: oh\n")
    assert (stream.began, stream.is_consequence) == (15.1, False)
    assert to.getvalue().count("\n") == 4


def test_an_output_that_does_not_hold_prints_tracebacks_at_once() -> None:
    to = StringIO()
    stream = Stream("[0] ", to)
    assert (stream.holds, stream.began, stream.is_consequence) == (False, None, False)
    stream.take(b"  + Exception Group Traceback\nRankLost: x\n")
    assert to.getvalue() == "[0]   + Exception Group Traceback\n[0] RankLost: x\n"
    assert (stream.began, stream.is_consequence) == (None, False)
    stream.end()
    stream.release()
    assert to.getvalue().count("\n") == 2


def test_each_line_is_on_the_terminal_at_once() -> None:
    class Terminal(StringIO):
        flushes = 0

        def flush(self) -> None:
            self.flushes += 1

    to = Terminal()
    Stream("", to).take(b"one\ntwo\nthr")
    assert to.flushes == 2
