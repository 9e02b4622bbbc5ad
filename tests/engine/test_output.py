"""Lines of several processes on one terminal."""

from io import StringIO

import pytest

from shardwise.engine import output
from shardwise.engine.output import Stream


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
    stream.take(b"[rank1]: shardwise.errors.RankLost: rank 2\n")
    assert stream.is_consequence
    stream.release()
    assert to.getvalue().splitlines()[1:] == [
        "Traceback (most recent call last):",
        "  File ...",
        "ValueError: RankLost is a word",
        "shardwise.errors.RankLost: rank 2",
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
