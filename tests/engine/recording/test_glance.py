"""Glances at records: the same as the whole record says, whole while it is written, and nothing of what is none."""

import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from random import Random
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise.engine.recording import slots as at
from shardwise.engine.recording.glance import NEWEST, Glance, glance
from shardwise.engine.recording.record import read_record
from shardwise.engine.recording.recorder import Recorder


def test_what_a_glance_says_is_what_the_whole_record_says(tmp_path: Path) -> None:
    now, random = [100.0], Random(1)
    recorder = Recorder(tmp_path, 3, 5, slots=4, clock=lambda: now[0], wall=lambda: 100.0)
    path = tmp_path / "rank-3.record"
    for k in range(1, 60):
        now[0] += 1.0
        slot = recorder.begin(k, 1, f"permute of float32[{k}]", f"/a/train.py:{k}", k if k % 3 else None, (0, 3))
        acts = [
            (recorder.wait_for, slot, [0]),
            (recorder.agree, slot),
            (recorder.note, f"rank 0 is late, {k}"),
            (recorder.beat, f"data.py:{k}"),
            (recorder.end, slot, 1, 1),
            (recorder.fail, slot, "RankLost: rank 0"),
        ]
        for act, *arguments in random.sample(acts, random.randint(0, 6)):
            now[0] += 0.25
            act(*arguments)
        seen, whole = glance(path), read_record(path)
        entry = whole.last
        assert seen is not None
        assert entry is not None
        assert (seen.rank, seen.size, seen.pid, seen.is_running) == (3, 5, os.getpid(), True)
        assert (seen.beat, seen.place) == (whole.beat, whole.place)
        assert (seen.sequence, seen.iteration, seen.step) == (entry.sequence, entry.iteration, entry.step)
        assert (seen.line, seen.began, seen.is_agreed) == (entry.line, entry.began, entry.agreed is not None)
        assert seen.is_open == entry.is_open
        notes = [(event.when, event.text) for event in whole.events if event.when >= entry.began]
        assert list(seen.events) == (notes if entry.is_open else [])
    recorder.close(clean=False)
    assert (seen := glance(path)) is not None
    assert not seen.is_running


def test_the_numbers_of_the_newest_slots_follow_the_state_and_touch_nothing_else() -> None:
    assert (at.LAST_CALL, at.LAST_EVENT) == (at.STATE + 8, at.STATE + 16)
    assert at.LAST_EVENT + 8 <= at.PLACE


def test_before_the_first_call_it_is_known_where_a_rank_is(tmp_path: Path) -> None:
    Recorder(tmp_path, 0, 2).beat("train.py:7")
    seen = glance(tmp_path / "rank-0.record")
    assert seen is not None
    assert (seen.place, seen.sequence, seen.step, seen.is_open, seen.events) == ("train.py:7", 0, "", False, ())


def test_of_many_events_the_newest_are_read(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0, 2)
    recorder.note("before")
    recorder.begin(1, 1, "permute", "train.py:7")
    for k in range(at.EVENTS + 3):
        recorder.note(str(k))
    seen = glance(tmp_path / "rank-0.record")
    assert seen is not None
    assert [text for _, text in seen.events] == [str(at.EVENTS + 3 - NEWEST + k) for k in range(NEWEST)]


WRITES = """
import sys
from pathlib import Path
from shardwise.engine.recording.recorder import Recorder
recorder, k = Recorder(Path(sys.argv[1]), 0, 2, slots=16), 0
while True:
    k += 1
    recorder.end(recorder.begin(k, k, f"step{k} of float32", f"train.py:{k}", k), k, k)
"""


def test_what_is_read_while_it_is_written_belongs_together(tmp_path: Path) -> None:
    """A process makes calls whose fields all tell one number: no glance may mix two of them."""
    path, end = tmp_path / "rank-0.record", monotonic() + 60
    calls: dict[int, Glance] = {}  # by their numbers
    with subprocess.Popen([sys.executable, "-c", WRITES, str(tmp_path)]) as process:
        while len(calls) < 100 and monotonic() < end:
            seen = glance(path)
            calls |= {seen.sequence: seen} if seen is not None and seen.step else {}
        process.kill()
    assert len(calls) == 100
    assert all((call.iteration, call.step, call.line) == (n, f"step{n}", f"train.py:{n}") for n, call in calls.items())


def test_a_slot_that_is_torn_is_not_believed(tmp_path: Path) -> None:
    recorder, path = Recorder(tmp_path, 0, 2), tmp_path / "rank-0.record"
    recorder.begin(1, 1, "permute", "train.py:7")
    recorder.note("fine")
    recorder.note("torn")
    data = bytearray(path.read_bytes())
    second = recorder.shape.event(2)
    data[second : second + 8] = struct.pack("=Q", 9)
    path.write_bytes(data)
    assert (seen := glance(path)) is not None
    assert [text for _, text in seen.events] == ["fine"]
    place = recorder.shape.call(1)
    data[place : place + 8] = struct.pack("=Q", 2)
    path.write_bytes(data)
    assert glance(path) is None


@pytest.mark.parametrize("kind", ["nothing", "empty", "short", "a folder", "a link", "a pipe", "closed", "foreign"])
def test_what_is_no_record_says_nothing(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "rank-0.record", tmp_path / "rank-1.record"
    Recorder(tmp_path, 1, 2).begin(1, 1, "permute", "train.py:7")
    whole = other.read_bytes()
    match kind:
        case "a folder":
            path.mkdir()
        case "a link":
            path.symlink_to(other)
        case "a pipe":
            os.mkfifo(path)
        case "nothing":
            pass
        case _:
            data = {"empty": b"", "short": whole[: at.HEAD_SIZE + 100], "foreign": b"x" * len(whole)}
            path.write_bytes(data.get(kind, whole))
    if kind == "closed":
        path.chmod(0)
        assert os.geteuid() == 0 or glance(path) is None
        return
    assert glance(path) is None
    assert glance(other) is not None


@given(st.data())
def test_whatever_a_file_has_it_is_read_or_it_is_none(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("records")
    recorder, path = Recorder(folder, 0, 2, slots=2), folder / "rank-0.record"
    recorder.begin(1, 1, "permute of float32", "train.py:7", 3)
    recorder.note("rank 1 is late")
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, 1200) | st.integers(at.HEAD_SIZE, len(content) - 1))
        change = data.draw(st.binary(min_size=1, max_size=16))
        content[place : place + len(change)] = change
    path.write_bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))])
    seen = glance(path)
    if seen is not None:
        texts = [seen.place, seen.step, seen.line, *(text for _, text in seen.events)]
        assert all(text.replace("\n", "").isprintable() for text in texts)
        assert all(map(math.isfinite, (seen.beat, seen.began)))
