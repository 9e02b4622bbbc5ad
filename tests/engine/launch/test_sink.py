"""Output that is written by a thread: in order, whoever reads it, and without anybody waiting."""

import errno
import os
import random
import select
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from shardwise.engine.launch import sink as sinks
from shardwise.engine.launch.sink import PIECE, Sink

SOON = 60.0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


def read(end: int, size: int) -> bytes:
    out = b""
    while len(out) < size and (data := os.read(end, size - len(out))):
        out += data
    return out


def test_all_is_written_in_order_by_a_thread_that_ends(tmp_path: Path) -> None:
    generator, path = random.Random(1), tmp_path / "out"
    chunks = [generator.randbytes(generator.choice([1, 10, 1000, PIECE, 3 * PIECE + 7])) for _ in range(200)]
    with path.open("wb") as file:
        sink = Sink(file.fileno(), "standard output")
        for chunk in chunks:
            sink.put(chunk)
        assert sink.finish(SOON)
        assert (sink.waiting, sink.dropped, sink.trouble) == (0, 0, None)
        sink.put(b"last")
        sink.close()
        sink._thread.join(SOON)
        assert not sink._thread.is_alive()
    assert path.read_bytes() == b"".join(chunks) + b"last"


def test_nobody_waits_for_a_reader(pipe: tuple[int, int]) -> None:
    sink = Sink(pipe[1], "standard output", room=1 << 20)
    line = b"x" * 1023 + b"\n"
    while select.select([], [pipe[1]], [], 0)[1]:  # until the pipe is full
        sink.put(line)
        sink.finish(0.001)
    while not sink.is_full:
        sink.put(line)
    sink.put(line)
    assert sink.dropped == 0  # who asks whether it is full loses nothing
    assert not sink.finish(0.01)
    total = sink.waiting
    sink.drops = True
    for _ in range(3):
        sink.put(line)
    assert sink.dropped == 3 * 1024
    assert sink.waiting <= total
    sink.put(b"must\n", must=True)
    reader: list[bytes] = []
    got = Event()

    def read_all() -> None:
        while not reader or not reader[-1].endswith(b"must\n"):
            reader.append(os.read(pipe[0], 1 << 16))
        got.set()

    Thread(target=read_all, daemon=True).start()
    assert sink.finish(SOON)
    assert got.wait(SOON)
    assert set(b"".join(reader).splitlines()) == {line[:-1], b"must"}
    sink.close()


def test_a_reader_that_is_gone_is_noted_and_nothing_is_kept_for_it(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    sink = Sink(pipe[1], "standard output")
    sink.put(b"one\n")
    assert sink.finish(SOON)
    sink.put(b"two\n", must=True)
    assert (sink.dropped, sink.waiting, sink.trouble) == (8, 0, os.strerror(errno.EPIPE))
    sink.close()


def test_what_waits_for_a_reader_that_goes_is_dropped_too(pipe: tuple[int, int]) -> None:
    sink = Sink(pipe[1], "standard output")
    for _ in range(10):
        sink.put(b"x" * PIECE)
    while not select.select([pipe[0]], [], [], 0.1)[0]:
        pass
    os.close(pipe[0])
    assert sink.finish(SOON)
    assert 9 * PIECE <= sink.dropped <= 10 * PIECE
    assert sink.waiting == 0
    sink.close()


def test_a_disk_that_is_full_is_noted_once_and_tried_again() -> None:
    file = os.open("/dev/full", os.O_WRONLY)
    sink = Sink(file, "standard output")
    for k in range(3):
        sink.put(b"line\n")
        assert sink.finish(SOON)
        assert sink.dropped == 5 * (k + 1)
    assert sink.trouble == os.strerror(errno.ENOSPC)
    sink.close()
    os.close(file)


def test_when_there_is_space_again_a_line_begins_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    space, write = [7], os.write

    def write_some(descriptor: int, data: memoryview) -> int:
        if not space[0]:
            raise OSError(errno.ENOSPC, "full")
        count = write(descriptor, data[: space[0]])
        space[0] -= count
        return count

    monkeypatch.setattr(sinks.os, "write", write_some)
    path = tmp_path / "out"
    with path.open("wb") as file:
        sink = Sink(file.fileno(), "standard output")
        for data, room in ((b"one\ntwo and more\n", 0), (b"lost\n", 99), (b"three\n", 99), (b"four\n", 99)):
            sink.put(data)
            assert sink.finish(SOON)
            space[0] = room
        sink.close()
        sink._thread.join(SOON)
    assert path.read_bytes() == b"one\ntwo\nthree\nfour\n"
    assert (sink.dropped, sink.waiting) == (len(b" and more\n") + len(b"\nlost\n"), 0)


def test_a_pipe_that_others_made_non_blocking_is_waited_for(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    sink, data = Sink(pipe[1], "standard output"), random.Random(2).randbytes(1 << 20)
    sink.put(data)
    assert not sink.finish(0.01)
    assert read(pipe[0], len(data)) == data
    assert sink.finish(SOON)
    assert sink.trouble is None
    sink.close()


def test_an_output_that_was_closed_takes_everything() -> None:
    sink = Sink(None, "standard output")
    sink.put(b"lost")
    assert sink.finish(0.0)
    assert (sink.waiting, sink.dropped) == (0, 0)
    assert not sink._thread.is_alive()
