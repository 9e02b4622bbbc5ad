"""Lines of several sources in one file, and on one terminal."""

import os
import pty
import re
import socket
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.engine.launch import screen as screens
from shardwise.engine.launch.screen import File, Screen, Source, Terminal, find_live, open_screens
from shardwise.engine.launch.sink import Sink
from tests.engine.launch.kept import Kept, shown

A, B = Source(b"[0] "), Source(b"[1] ")
SEGMENTS = st.tuples(
    st.sampled_from([A, B]), st.text("xyz", max_size=3).map(str.encode), st.sampled_from([b"\n", b"\r", b""])
)


def data(screen: Screen) -> bytes:
    assert isinstance(screen.sink, Kept)
    return screen.sink.data


def write(screen: Any, *segments: tuple[Source, bytes, bytes]) -> Any:
    for segment in segments:
        screen.put(*segment)
    return screen


def test_in_a_file_a_line_that_others_cut_goes_on_with_its_prefix() -> None:
    file = File(Kept())
    write(file, (A, b"one", b""), (A, b" more", b"\n"), (A, b"two", b""), (B, b"other", b"\n"), (A, b" more", b"\n"))
    assert data(file) == b"[0] one more\n[0] two\n[1] other\n[0]  more\n"


def test_in_a_file_returns_are_passed_on() -> None:
    file = File(Kept())
    write(file, (A, b"1%", b"\r"), (A, b"2%", b"\r"), (A, b"3%", b"\n"), (A, b"crlf", b"\r"), (A, b"", b"\n"))
    assert data(file) == b"[0] 1%\r[0] 2%\r[0] 3%\n[0] crlf\r\n"


def test_in_a_file_a_line_that_was_cut_at_its_end_is_not_ended_twice() -> None:
    file = File(Kept())
    write(file, (A, b"1%", b"\r"), (B, b"x", b"\n"), (A, b"", b"\n"), (A, b"", b"\n"), (B, b"", b"\r"), (B, b"y", b""))
    assert data(file) == b"[0] 1%\r\n[1] x\n[0] \n[1] y"
    file.end(A)
    assert data(file).endswith(b"y")
    file.end(B)
    file.end()
    assert data(file).endswith(b"y\n")


def test_nothing_changes_nothing() -> None:
    segments = (A, b"1%", b"\r"), (A, b"", b""), (B, b"", b""), (A, b"2%", b"")
    assert data(write(File(Kept()), *segments)) == b"[0] 1%\r[0] 2%"
    assert draw(write(Terminal(Kept()), *segments)) == ["[0] 2%"]


@given(st.lists(SEGMENTS, max_size=12))
def test_in_a_file_every_byte_of_a_source_follows_its_prefix(segments: list[tuple[Source, bytes, bytes]]) -> None:
    file = File(Kept())
    write(file, *segments)
    file.end()
    for source in (A, B):
        pieces = [piece for piece in re.split(rb"[\r\n]+", data(file)) if piece.startswith(source.prefix)]
        wanted = b"".join(text for who, text, _ in segments if who == source)
        assert b"".join(piece.removeprefix(source.prefix) for piece in pieces) == wanted
    assert all(piece[:4] in (b"[0] ", b"[1] ", b"") for piece in re.split(rb"[\r\n]+", data(file)))


def draw(screen: Terminal) -> list[str]:
    screen._due = 0.0
    screen.look()
    return shown(data(screen))


def test_on_a_terminal_lines_without_an_end_stay_below() -> None:
    screen = write(Terminal(Kept()), (B, b" 10%", b""), (A, b"old", b"\r"), (A, b"new", b""))
    assert draw(screen) == ["[0] new", "[1]  10%"]
    write(screen, (A, b"", b"\r"), (B, b"", b"\r"), (B, b" 20%", b""), (Source(b"[0] ", 2), b"a line", b"\n"))
    assert draw(screen) == ["[0] a line", "[0] new", "[1]  20%"]
    screen.live = "all are well"
    write(screen, (B, b"", b"\n"))
    assert draw(screen) == ["[0] a line", "[1]  20%", "[0] new", "all are well"]
    screen.end(A)
    assert draw(screen) == ["[0] a line", "[1]  20%", "[0] new", "all are well"]
    screen.end()
    assert shown(data(screen)) == ["[0] a line", "[1]  20%", "[0] new", ""]


def test_on_a_terminal_a_bar_that_clears_itself_leaves_nothing() -> None:
    screen = write(Terminal(Kept()), (A, b"", b"\r"), (A, b"100%", b"\r"))
    assert draw(screen) == ["[0] 100%"]
    write(screen, (A, b"    ", b"\r"))
    assert draw(screen) == [""]
    screen.end()
    assert shown(data(screen)) == [""]


@given(st.lists(SEGMENTS, max_size=12), st.lists(st.booleans(), min_size=12, max_size=12))
def test_on_a_terminal_lines_are_whole_whatever_was_drawn_between(
    segments: list[tuple[Source, bytes, bytes]], draws: list[bool]
) -> None:
    screen, state, wanted = Terminal(Kept()), {A: ("", False), B: ("", False)}, list[str]()
    for (source, text, end), drawn in zip(segments, draws, strict=False):
        screen.put(source, text, end)
        row, is_returned = state[source]
        row = text.decode() if is_returned and text else row + text.decode()
        state[source] = (row, end == b"\r")
        if end == b"\n":
            wanted.append((source.prefix.decode() + row).rstrip())
            state[source] = ("", False)
        if drawn:
            below = [source.prefix.decode() + row for source, (row, _) in state.items() if row]
            assert draw(screen) == (wanted + below or [""]) + [""] * (bool(wanted) and not below)
    screen.end()
    wanted += [source.prefix.decode() + row for source, (row, _) in state.items() if row]
    assert shown(data(screen)) == [*wanted, ""]


def test_what_is_drawn_fits_on_one_row_and_changes_nothing_else() -> None:
    screen = write(Terminal(Kept()), (A, "\x1b[31mré中".encode() * 30 + b"\x1b]0;title\x07\x1bM\x08", b""))
    (row,) = draw(screen)
    assert row == "[0] " + "ré中" * 18 + "ré"  # 中 takes two columns of the 79
    assert b"\x1b" not in data(screen)
    write(screen, (A, b"", b"\n"))
    assert data(screen).endswith(b"\x07\x1bM\x08\n")  # a line that is complete is passed on as it is


def test_many_lines_without_an_end_do_not_fill_the_terminal() -> None:
    screen = write(Terminal(Kept()), *[(Source(b"[%2d] " % k), b"x", b"") for k in reversed(range(20))])
    assert draw(screen) == [f"[{k:2}] x" for k in range(screens.MOST)]


def test_what_is_live_takes_as_many_rows_as_it_needs_up_to_a_third_of_the_terminal() -> None:
    screen = write(Terminal(Kept()), (A, b"50%", b"\r"))
    screen.live = "4 ranks \u00b7 all_gather\n" + "rank 2 is late: " + "word " * 20
    assert draw(screen) == ["[0] 50%", "4 ranks \u00b7 all_gather", "rank 2 is late: " + "word " * 11 + "word", *ROWS]
    screen.live = "4 ranks"
    assert draw(screen) == ["[0] 50%", "4 ranks"]
    screen.live = "\n".join("abcdefghijklmnopq")
    assert draw(screen) == ["[0] 50%", *"abcdefgh"]
    screen.live = "x" * 100
    assert draw(screen) == ["[0] 50%", "x" * 79, "x" * 21]
    screen.end()
    assert shown(data(screen)) == ["[0] 50%", ""]
    assert b"\x1b[J" not in data(screen)


ROWS = ["word word word word word word word word"]


@pytest.mark.parametrize(("height", "rows"), [(1, 1), (5, 1), (9, 3), (24, 8), (0, 8)])
def test_a_terminal_that_is_not_high_has_little_that_is_live(
    monkeypatch: pytest.MonkeyPatch, height: int, rows: int
) -> None:
    monkeypatch.setattr(screens.os, "isatty", lambda descriptor: True)
    monkeypatch.setattr(screens.os, "get_terminal_size", lambda descriptor: (20, height))
    monkeypatch.setattr(screens, "_is_ours", lambda descriptor: True)
    screen = Terminal(Kept())
    screen.sink.descriptor = 1
    screen.live = "\n".join("abcdefghijklmnopq")
    write(screen, *[(Source(b"[%2d] " % k), b"x", b"") for k in range(20)])
    drawn = draw(screen)
    assert drawn[-rows:] == [*"abcdefgh"][:rows]
    assert len(drawn) - rows == max(0, min(screens.MOST, (height or 24) - 2 - rows))


def test_what_is_live_stands_on_a_terminal_that_nothing_else_may_come_out_on(tmp_path: Path) -> None:
    """Not beside a pipe: `shardwise run ... | tee log` writes on the same terminal."""
    terminal, other = Terminal(Kept()), Terminal(Kept())
    nothing, closed = File(Kept()), File(Sink(None, "standard output"))
    assert find_live((terminal, terminal)) is terminal
    assert find_live((other, terminal)) is terminal
    assert find_live((terminal, nothing)) is find_live((nothing, terminal)) is find_live((closed, terminal)) is terminal
    assert find_live((nothing, nothing)) is None
    read, write = os.pipe()
    left, right = socket.socketpair()
    with (tmp_path / "out").open("w") as file, left, right:
        for descriptor, is_live in ((file.fileno(), True), (write, False), (left.fileno(), False)):
            nothing.sink.descriptor = descriptor
            assert (find_live((nothing, terminal)) is terminal) == is_live
            assert (find_live((terminal, nothing)) is terminal) == is_live
    os.close(read)
    os.close(write)


def test_a_line_that_is_too_long_for_a_terminal_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screens, "LINE", 10)
    screen = write(Terminal(Kept()), (A, b"x" * 8, b""), (A, b"y" * 8, b""), (A, b"z", b"\n"))
    assert data(screen) == b"[0] xxxxxxxxyyyyyyyy\n[0] z\n"


def test_a_terminal_is_drawn_seldom_and_not_if_it_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    now, screen = [10.0], Terminal(Kept())
    monkeypatch.setattr(screens, "monotonic", lambda: now[0])
    for k in range(10):
        screen.put(A, b"%d" % k, b"\r")
        screen.look()
        now[0] += 0.04
    assert data(screen).count(b"\x1b[K") == 3  # of the four times 0.1 s, the first found nothing
    screen.sink.waiting = 1 << 20
    screen.put(A, b"x", b"\r")
    now[0] += 1.0
    screen.look()
    assert b"x" not in data(screen)
    screen.sink.waiting = 0
    screen.look()
    screen.look()
    assert data(screen).count(b"x") == 1
    screen.forget()
    screen.put(A, b"y", b"\n")
    assert data(screen).endswith(b"[0] x[0] y\n")  # nothing is erased that may be of others


def test_what_a_terminal_cannot_encode_is_escaped() -> None:
    screen = Terminal(Kept(), "ascii")
    screen.live = "4 ranks · é"
    assert draw(screen) == ["4 ranks \\xb7 \\xe9"]


def test_one_screen_if_both_outputs_are_one_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "a").open("w") as one, (tmp_path / "b").open("w") as two, (tmp_path / "a").open("a") as three:
        for out, err, is_same in ((one, two, False), (one, three, True), (one, one, True)):
            monkeypatch.setattr(sys, "stdout", out)
            monkeypatch.setattr(sys, "stderr", err)
            first, second = open_screens()
            assert (first is second) == is_same
            assert isinstance(first, File)
            assert (first.sink.descriptor, first.sink.name) == (out.fileno(), "standard output")
            first.sink.close()
            second.sink.close()
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", StringIO())
    first, second = open_screens()
    assert (first.sink.descriptor, second.sink.descriptor, second.sink.name) == (None, 2, "standard error")
    second.sink.close()


@pytest.mark.parametrize(("name", "kind"), [("xterm", Terminal), ("dumb", File), (None, File)])
def test_a_terminal_that_can_do_little_is_a_file(monkeypatch: pytest.MonkeyPatch, name: str | None, kind: type) -> None:
    monkeypatch.delenv("TERM", raising=False)
    if name is not None:
        monkeypatch.setenv("TERM", name)
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        monkeypatch.setattr(sys, "stderr", file)
        first, second = open_screens()
        assert first is second
        assert type(first) is kind
        first.live = "x" * 100
        first.look()
        assert first.sink.finish(60.0)
        first.sink.close()
    os.close(leader)
