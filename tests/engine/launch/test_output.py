"""Lines of one process: complete, begun, or held back."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.engine.launch import output
from shardwise.engine.launch.output import Stream
from shardwise.engine.launch.screen import LINE, File, Source
from tests.engine.launch.kept import Kept


def stream(prefix: str = "", holds: bool = False, output: int = 1) -> tuple[Stream, Kept]:
    to = Kept()
    return Stream(Source(prefix.encode(), output), File(to), holds=holds), to


def test_lines_are_printed_when_they_are_complete() -> None:
    one, to = stream("[1] ")
    one.take(b"one\ntw")
    assert to.data == b"[1] one\n"
    one.take(b"o\r\n\xff\nrest")
    one.end()
    assert to.data == b"[1] one\n[1] two\r\n[1] \xff\n[1] rest\n"  # bytes are passed on as they are
    one.end()
    assert to.data.endswith(b"\n[1] rest\n")


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"[rank3]: ", b"x\n\ny"]), max_size=20), st.data())
def test_what_is_printed_does_not_depend_on_how_it_comes(words: list[bytes], data: Any) -> None:
    text = b"".join(words)
    (one, whole), (two, parts) = stream("> "), stream("> ")
    one.take(text)
    one.end()
    while text:
        size = data.draw(st.integers(1, len(text)))
        two.take(text[:size])
        text = text[size:]
    two.end()
    assert parts.data == whole.data


class Counted(bytes):
    """Bytes that count how many of them are searched, split or copied."""

    touched = 0

    def _count(self) -> None:
        Counted.touched += len(self)

    def __add__(self, other: Any) -> Any:
        self._count()
        return bytes.__add__(self, other)

    def __radd__(self, other: bytes) -> bytes:
        Counted.touched += len(self) + len(other)
        return bytes(other) + bytes(self)


def test_a_long_line_costs_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a megabyte in pieces of 1 KiB every byte is searched once, joined once, and handed on once."""
    searched, count = list[int](), 512
    split, to = output.ENDS, Kept()

    class Ends:
        def split(self, data: bytes) -> list[bytes]:
            searched.append(len(data))
            return split.split(data)

    monkeypatch.setattr(output, "ENDS", Ends())
    one = Stream(Source(b"> "), File(to))
    for _ in range(count):
        one.take(Counted(b"x" * 1024))
    assert to.data == b""
    assert [len(part) for part in one._parts] == [1024] * count  # nothing is joined before the end
    one.take(b"\n")
    assert searched == [1024] * count + [1]
    assert Counted.touched == 0  # nothing is added to anything
    assert to.data == b"> " + b"x" * 1024 * count + b"\n"
    assert len(to.pieces) == 1


def test_a_line_without_an_end_is_passed_on_in_pieces_and_loses_nothing() -> None:
    one, to = stream("> ")
    pieces = [bytes([k]) * (LINE // 3) for k in range(65, 75)]
    for piece in pieces:
        one.take(piece)
        assert one._size < LINE
    one.take(b"end\nnext\n")
    assert to.data == b"> " + b"".join(pieces) + b"end\n> next\n"
    assert len(to.pieces) >= 4


def test_progress_is_printed_when_it_returns_or_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    now, (one, to) = [10.0], stream("> ")
    monkeypatch.setattr(output, "monotonic", lambda: now[0])
    one.take(b"no end")
    now[0] = 20.0
    one.look()
    assert to.data == b""  # it may be half a line
    one.take(b"\r 45%")
    assert to.data == b"> no end\r"
    now[0] = 20.1
    one.look()
    assert to.data == b"> no end\r"
    now[0] = 20.2
    one.look()
    one.look()
    assert to.data == b"> no end\r>  45%"
    one.take(b" and more")
    now[0] = 20.3
    one.look()
    assert to.data == b"> no end\r>  45%"
    one.take(b"\r 46%\rdone\nnext")
    assert to.data == b"> no end\r>  45% and more\r>  46%\r> done\n"
    now[0] = 30.0
    one.look()
    assert to.data.endswith(b"done\n")
    one.end()
    assert to.data.endswith(b"done\n> next\n")


def test_progress_that_has_no_end_gets_one_with_its_process() -> None:
    one, to = stream("> ")
    one.take(b"50%\r")
    one.end()
    assert to.data == b"> 50%\r\n"


def test_tracebacks_are_held_and_say_whom_they_blame() -> None:
    one, to = stream(holds=True)
    one.take(b"a line\n[rank1]: Traceback (most recent call last):\n[rank1]:   File ...\n")
    assert to.data == b"a line\n"
    assert one.began is not None
    one.take(b"[rank1]: ValueError: RankLost is a word\n")
    assert not one.is_consequence
    one.take(b"[rank1]: shardwise.RankLost: rank 2\n")
    assert one.is_consequence
    one.end()
    assert to.data == b"a line\n"
    one.release()
    assert to.lines[1:] == [
        "Traceback (most recent call last):",
        "  File ...",
        "ValueError: RankLost is a word",
        "shardwise.RankLost: rank 2",
    ]
    one.take(b"more\n")
    assert to.data.endswith(b"more\n")


def test_a_traceback_is_printed_when_its_process_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    one, to = stream(holds=True)
    one.take(b"Traceback (most recent call last):\n")
    one.look()
    assert to.data == b""
    monkeypatch.setattr(output, "PATIENCE", -1.0)
    one.look()
    assert to.data == b"Traceback (most recent call last):\n"


def test_patience_is_counted_from_the_beginning_of_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    now, (one, to) = [10.0], stream(holds=True)
    monkeypatch.setattr(output, "monotonic", lambda: now[0])
    one.take(b"fine\n")
    one.look()
    one.take(b"Traceback (most recent call last):\n")
    assert one.began == 10.0
    now[0] = 15.0
    one.take(b"Traceback (most recent call last):\nCollectiveError: x\n")
    assert (one.began, one.is_consequence) == (10.0, True)  # the first of those that are held
    one.look()
    assert to.data == b"fine\n"  # five seconds are not over
    now[0] = 15.1
    one.look()
    assert to.data.count(b"\n") == 4
    one.look()
    assert to.data.count(b"\n") == 4
    one.take(b"Fatal Python error: oh\n")
    assert (one.began, one.is_consequence) == (15.1, False)
    assert to.data.count(b"\n") == 4


def test_more_is_not_held_back_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MOST", 100)
    one, to = stream(holds=True)
    one.take(b"Traceback (most recent call last):\n" + b"x" * 60 + b"\n")
    assert to.data == b""
    one.take(b"1234\n")
    assert to.data == b"Traceback (most recent call last):\n" + b"x" * 60 + b"\n1234\n"
    one.take(b"free\n")
    assert to.data.endswith(b"free\n")


def test_an_output_that_does_not_hold_prints_tracebacks_at_once() -> None:
    one, to = stream("[0] ")
    assert (one.holds, one.began, one.is_consequence) == (False, None, False)
    one.take(b"  + Exception Group Traceback\nRankLost: x\n")
    assert to.data == b"[0]   + Exception Group Traceback\n[0] RankLost: x\n"
    assert (one.began, one.is_consequence) == (None, False)
    one.end()
    one.release()
    assert to.data.count(b"\n") == 2


def test_bytes_are_passed_on_whatever_they_are() -> None:
    one, to = stream("> ")
    data = bytes(range(256)) * 3
    one.take(data)
    one.end()
    assert re.sub(rb"(^|(?<=[\r\n]))> ", b"", to.data) == data + b"\n"
