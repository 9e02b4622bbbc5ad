"""Records: what is read is what was written, whatever ended the writer; what is no record harms nobody who reads it."""

import math
import os
import random
import socket
import struct
import subprocess
import sys
import unicodedata
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.engine.recording import record as records
from shardwise.engine.recording import slots as at
from shardwise.engine.recording.record import is_alive, process_of, read_all, read_record, read_records
from shardwise.engine.recording.recorder import Recorder, ranks_text
from shardwise.errors import ArgumentError

RECORD = "rank-0.record"
WALL, CLOCK = 56, 64  # where the head has them
WORDS = st.text(max_size=300)
RANKS = st.lists(st.integers(0, 70), max_size=40).map(lambda ranks: tuple(sorted(set(ranks))))
CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "sequence": st.integers(0, 1 << 63),
            "number": st.integers(0, 1 << 40),
            "what": WORDS,
            "line": WORDS,
            "iteration": st.none() | st.integers(1 - (1 << 63), (1 << 63) - 1),
            "ranks": RANKS,
            "waits": st.none() | st.lists(st.integers(0, (1 << 32) - 1), max_size=20),
            "agrees": st.booleans(),
            "ends": st.none() | st.tuples(st.integers(0, 1 << 63), st.integers(0, 1 << 63)),
            "fails": st.none() | st.tuples(WORDS, st.lists(st.integers(0, 99), max_size=15)),
        }
    ),
    max_size=14,
)


class Clock:
    """Two clocks that differ, and go on."""

    def __init__(self) -> None:
        self.now = 0.0

    def tick(self) -> float:
        self.now += 1.0
        return self.now


@given(CALLS, st.lists(WORDS, max_size=4), st.integers(1, 9), st.floats(-1e6, 1e6))
def test_what_is_written_is_read_and_the_ring_keeps_the_last(tmp_path_factory, calls, notes, slots, offset):
    folder, clock = tmp_path_factory.mktemp("record"), Clock()
    recorder = Recorder(folder, 0, 2, slots, job="it", clock=clock.tick, wall=lambda: 5e8)
    recorder.set_offset(offset)
    shift = 5e8 - 1.0 + offset  # the head asks the clock once
    expected, notes_at = [], []
    for call in calls:
        slot = recorder.begin(*(call[name] for name in ("sequence", "number", "what", "line", "iteration", "ranks")))
        times = {"began": clock.now, "agreed": None, "ended": None, "failed": None}
        waits = []
        if call["waits"] is not None:
            recorder.wait_for(slot, waits := call["waits"])
        if call["agrees"]:
            recorder.agree(slot)
            times["agreed"], waits = clock.now, []
        if call["ends"]:
            recorder.end(slot, *call["ends"])
            times["ended"] = clock.now
        if call["fails"]:
            recorder.fail(slot, call["fails"][0], call["fails"][1])
            times["failed"], waits = clock.now, call["fails"][1] or waits
            times["ended"] = times["ended"] or clock.now
        elif call["ends"]:
            waits = []
        expected.append((call, times, waits))
    for text in notes:
        recorder.note(text)
        notes_at.append((clock.now + shift, text))
    record = read_record(folder / RECORD)
    assert (record.rank, record.size, record.job, record.end) == (0, 2, "it", "running")
    assert record.started == pytest.approx(5e8 + offset)
    assert len(record.entries) == min(slots, len(calls))
    for entry, (call, times, waits) in zip(record.entries, expected[-slots:], strict=True):
        for name, when in times.items():
            assert getattr(entry, name) == (None if when is None else pytest.approx(when + shift, abs=1e-3)), name
        assert (entry.sequence, entry.number, entry.iteration) == (call["sequence"], call["number"], call["iteration"])
        assert (entry.received, entry.sent) == (call["ends"] or (0, 0))
        assert (entry.waits, entry.waits_count) == (tuple(waits[: at.MOST_WAITED]), len(waits))
        assert (entry.failure is None) == (call["fails"] is None)
        if call["fails"]:
            check_text(entry.failure, call["fails"][0], at.TEXT_SIZE, keep="\n")
        check_text(entry.what, call["what"], at.WHAT_SIZE)
        if len(call["line"].encode(errors="replace")) <= at.LINE_SIZE:
            check_text(entry.line, call["line"], at.LINE_SIZE)
        if len(ranks_text(call["ranks"])) <= at.GROUP_SIZE:
            assert entry.group == ranks_text(call["ranks"])
        assert entry.is_open == (call["ends"] is None and call["fails"] is None)
        assert entry.is_done == (call["ends"] is not None)
    assert [event.when for event in record.events] == pytest.approx([when for when, _ in notes_at])
    for event, (_, text) in zip(record.events, notes_at, strict=True):
        check_text(event.text, text, at.TEXT_SIZE, keep="\n")
    recorder.close(clean=False)


def check_text(read: str | None, written: str, size: int, keep: str = "") -> None:
    # As much as there is room for, escaped.
    assert read is not None
    assert all(is_harmless(c) or c in keep for c in read)
    data = written.encode(errors="replace")
    whole = data[:size].decode(errors="ignore").rstrip("\0")
    assert read == "".join(c if is_harmless(c) or c in keep else c.encode("unicode_escape").decode() for c in whole)


def is_harmless(c: str) -> bool:
    # No control, end of line or half of a pair, and nothing that turns the direction of what follows.
    turns = unicodedata.bidirectional(c) in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
    return unicodedata.category(c) not in ("Cc", "Cs", "Zl", "Zp") and not turns and c not in "\u061c\u200e\u200f"


def test_calls_of_one_kind_and_group_are_known_as_such_in_all_ranks(tmp_path):
    kinds = [
        (f"all_gather of float32[{n}]" + long, ranks) for n, long, ranks in product((1, 2), ("", "x" * 200), GROUPS)
    ]
    for rank in range(2):
        recorder = Recorder(tmp_path, rank, 2)
        for what, ranks in kinds:
            recorder.begin(1, 7, what, f"line {rank}", None, ranks)
    first, second = (read_record(tmp_path / f"rank-{rank}.record").entries for rank in range(2))
    assert [(e.key, e.digest) for e in first] == [(e.key, e.digest) for e in second]
    assert len({(e.key, e.digest) for e in first}) == len(kinds)
    assert len({e.key for e in first}) == len(GROUPS)


GROUPS = [
    (0, 1),
    (0, 2),
    (0, 1, 2),
    tuple(range(100)),
    (*range(0, 400, 7), 500),
    (*range(0, 400, 7), 501),
]


def test_a_group_with_more_ranks_than_there_is_room_for_is_cut_between_ranks(tmp_path):
    recorder = Recorder(tmp_path, 0, 1000)
    ranks = tuple(sorted(random.Random(1).sample(range(1000), 100)))
    recorder.begin(1, 1, "permute", "", None, ranks)
    group = read_record(tmp_path / RECORD).entries[0].group
    assert len(group) <= at.GROUP_SIZE
    head, dots = group[:-4], group[-4:]
    assert dots == ",..."
    assert ranks_text(ranks).startswith(head + ",")


# -- files that are cut off, torn, or hostile --------------------------------------------------------------


def sample(folder: Path, calls: int = 6, rank: int = 0) -> Path:
    """A record with calls, events, a place and a cause."""
    recorder = Recorder(folder, rank, 2, 4, job="it")
    for n in range(1, calls + 1):
        slot = recorder.begin(n, n, "all_gather of float32[8]", "train.py:3", n, (0, 1))
        recorder.wait_for(slot, [1])
        recorder.agree(slot)
        recorder.end(slot, 8, 8)
        recorder.note(f"event {n}")
    recorder.beat("train.py:4")
    recorder.dump("a reason")
    recorder._detach()
    return folder / f"rank-{rank}.record"


def check_harmless(path: Path) -> None:
    """Reading gives a record that can be shown, or an error that says why not."""
    problems: list[str] = []
    found = read_all(path.parent, problems)
    assert len(found) + len(problems) == 1
    for text in problems:
        assert text.isprintable(), text
    for record in found:
        for text in (record.host, record.job, record.command, record.place, *(e.what + e.line for e in record.entries)):
            assert text.isprintable()
        for text in (record.cause, *(event.text for event in record.events)):
            assert all(c.isprintable() or c == "\n" for c in text)
        assert process_of(record) in ("running", "stopped", "gone", "elsewhere")


def test_a_torn_slot_is_left_out(tmp_path):
    path = sample(tmp_path)
    whole, shape = read_record(path), at.Shape(4)
    assert [entry.sequence for entry in whole.entries] == [3, 4, 5, 6]
    data = path.read_bytes()
    for n, place in product(range(3, 7), (0, at.CALL.size - 8)):
        torn = bytearray(data)
        torn[shape.call(n) + place : shape.call(n) + place + 8] = struct.pack("=Q", n + 4)
        path.write_bytes(torn)
        assert [entry for entry in whole.entries if entry.sequence != n] == list(read_record(path).entries)
    torn = bytearray(data)
    torn[shape.event(2) : shape.event(2) + 8] = struct.pack("=Q", 66)
    path.write_bytes(torn)
    assert [event.text for event in read_record(path).events] == [f"event {n}" for n in (1, 3, 4, 5, 6)]
    # A slot that is where none of its number belongs.
    torn = bytearray(data)
    torn[shape.call(5) : shape.call(5) + at.CALL.size] = data[shape.call(6) : shape.call(6) + at.CALL.size]
    path.write_bytes(torn)
    assert [entry.sequence for entry in read_record(path).entries] == [3, 4, 6]


def test_a_file_that_is_cut_off_tells_what_is_left_of_it(tmp_path):
    path = sample(tmp_path)
    data = path.read_bytes()
    for size in [*range(0, len(data), 509), at.HEAD_SIZE - 1, at.HEAD_SIZE, len(data) - 1]:
        path.write_bytes(data[:size])
        if size < at.HEAD_SIZE:
            with pytest.raises(ArgumentError, match=f"{RECORD} is not a record of shardwise, or was cut off"):
                read_record(path)
            continue
        whole = (size - at.HEAD_SIZE) // at.CALL.size
        assert len(read_record(path).entries) == min(4, whole)
        check_harmless(path)


@given(st.data())
def test_bytes_that_are_changed_at_random_harm_nobody(tmp_path_factory, data):
    path = sample(tmp_path_factory.mktemp("hostile"))
    content = bytearray(path.read_bytes())
    ends = [0, at.HEAD.size, at.OFFSET, at.STATE + 8, at.PLACE, at.CAUSE, at.HEAD_SIZE, len(content)]
    for _ in range(data.draw(st.integers(1, 6))):
        area = data.draw(st.integers(0, len(ends) - 2))
        place = data.draw(st.integers(ends[area] + 8 * (area == 0), ends[area + 1] - 1))
        new = data.draw(st.binary(min_size=1, max_size=40) | st.sampled_from(NASTY))
        content[place : place + len(new)] = new
    path.write_bytes(content)
    check_harmless(path)


NASTY = [
    *(struct.pack("=d", x) for x in (float("nan"), float("inf"), -float("inf"), 1e300, -1e300, -9e10, 9e10, 1e11)),
    *(struct.pack("=Q", x) for x in (0, 1, (1 << 64) - 1, 1 << 63, 1 << 32)),
    *(struct.pack("=I", x) for x in (0, 1, (1 << 32) - 1, 1 << 31, 1 << 20)),
    "\x1b[2J\x1b]0;title\x07\r\n\u202e\u2028\x9b31m".encode(),
]


@given(st.binary(max_size=200), st.integers(0, 3))
def test_random_files_are_no_records(tmp_path_factory, body, kind):
    path = tmp_path_factory.mktemp("random") / RECORD
    head = (b"", at.MAGIC, at.MAGIC + struct.pack("=10I", at.VERSION, at.HEAD_SIZE, 512, 4, 512, 64, 0, 2, 1, 0))[
        kind % 3
    ]
    path.write_bytes((head + body).ljust(at.HEAD_SIZE * (kind > 1), b"\xff"))
    check_harmless(path)


FIELDS = {"version": 0, "size of the head": 1, "of a call": 2, "calls": 3, "of an event": 4, "events": 5, "rank": 6}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [0, 2, 77, (1 << 32) - 1])
def test_numbers_that_are_not_ours_are_refused_or_harmless(tmp_path, field: str, value: int):
    path = sample(tmp_path)
    content = bytearray(path.read_bytes())
    struct.pack_into("=I", content, 8 + 4 * FIELDS[field], value)
    path.write_bytes(content)
    check_harmless(path)
    if field in ("version", "size of the head", "of a call", "of an event"):
        with pytest.raises(ArgumentError, match="was written by another version of shardwise, or on another kind of"):
            read_record(path)
    if (value != 0) == (field == "rank"):
        with pytest.raises(ArgumentError, match=f"{RECORD} "):
            read_record(path)


@pytest.mark.parametrize("place", [WALL, CLOCK, at.OFFSET, at.ENDED, at.BEAT])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e12, -1e12])
def test_times_of_which_no_date_can_be_made_are_refused(tmp_path, place: int, value: float):
    path = sample(tmp_path)
    content = bytearray(path.read_bytes())
    struct.pack_into("=d", content, place, value)
    path.write_bytes(content)
    if place == at.OFFSET and not math.isfinite(value):
        assert len(read_record(path).entries) == 4  # as if nothing were known of the other clock
        return
    with pytest.raises(ArgumentError, match=f"{RECORD} has times that are none"):
        read_record(path)


def test_a_huge_file_is_not_read(tmp_path, monkeypatch):
    path = sample(tmp_path)
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # it takes no room
    monkeypatch.setattr(records, "MOST_BYTES", 1 << 20)
    with pytest.raises(ArgumentError, match=r"rank-0\.record is not a record of shardwise: it is too long"):
        read_record(path)


def test_only_plain_files_of_the_right_name_are_read(tmp_path, monkeypatch):
    real = sample(tmp_path)
    (tmp_path / "rank-1.record").symlink_to(real)
    os.mkfifo(tmp_path / "rank-2.record")
    (tmp_path / "rank-3.record").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)
        server.bind("rank-4.record")
    (tmp_path / "rank-5.record").symlink_to("/dev/zero")
    (tmp_path / "rank-6.record").write_bytes(real.read_bytes())
    (tmp_path / "rank-\x1b[2J.record").write_bytes(real.read_bytes())
    (tmp_path / "rank-00.record").write_bytes(real.read_bytes())
    (tmp_path / "rank-٠.record").write_bytes(real.read_bytes())
    problems: list[str] = []
    assert list(read_records(tmp_path, problems)) == [0]
    assert [text.partition(".record")[0] for text in problems] == [f"rank-{n}" for n in range(1, 7)]
    assert "rank-6.record does not say what a record of that name says." in problems
    assert "rank-2.record: not a plain file" in problems


def test_a_folder_that_cannot_be_read_is_a_problem(tmp_path):
    problems: list[str] = []
    assert read_records(tmp_path / "gone\x1b", problems) == {}
    assert problems == [f"{tmp_path}/gone\\x1b: No such file or directory"]


def test_of_two_jobs_in_a_folder_the_newest_is_read(tmp_path):
    for job, size, when in (("old", 4, 100.0), ("new", 2, 200.0)):
        for rank in range(size):
            Recorder(tmp_path, rank, size, 4, job=job, wall=lambda when=when: when, clock=lambda: 1.0)._detach()
    problems: list[str] = []
    found = read_records(tmp_path, problems)
    assert [(rank, record.job) for rank, record in found.items()] == [(0, "new"), (1, "new")]
    assert problems == [f"rank-{rank}.record is of another job, and is left out." for rank in (2, 3)]


# -- processes ---------------------------------------------------------------------------------------------

WAITS = """
import sys, time
from pathlib import Path
from shardwise.engine.recording.recorder import Recorder
recorder = Recorder(Path(sys.argv[1]), 0, 1)
print("ready", flush=True)
time.sleep(60)
"""


def test_it_is_known_whether_the_process_of_a_record_lives(tmp_path, monkeypatch):
    process = subprocess.Popen([sys.executable, "-c", WAITS, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process, process.stdout:
        process.stdout.readline()
        record = read_record(tmp_path / RECORD)
        assert (process_of(record), is_alive(record)) == ("running", True)
        process.send_signal(19)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert (process_of(record), is_alive(record)) == ("stopped", True)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert (process_of(record), is_alive(record)) == ("gone", False)  # nobody has waited for it yet
    assert process_of(record) == "gone"
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    assert (process_of(record), is_alive(record)) == ("elsewhere", False)


def test_another_process_of_the_same_number_is_not_taken_for_it(tmp_path, monkeypatch):
    sample(tmp_path)
    record = read_record(tmp_path / RECORD)
    assert process_of(record) == "running"
    monkeypatch.setattr(records, "ticks_of", lambda pid: 7)
    assert process_of(record) == "gone"
