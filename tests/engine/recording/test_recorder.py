"""The recorder: what is written survives the process, never harms it, and is not written by others."""

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest

from shardwise.engine.recording import recorder as recording
from shardwise.engine.recording import slots as at
from shardwise.engine.recording.record import RankRecord, process_of, read_record
from shardwise.engine.recording.recorder import Recorder, read_plain, ticks_of
from tests.function_calls import calls_of

RECORD = "rank-0.record"


def one_call(recorder: Recorder, number: int = 1) -> int:
    slot = recorder.begin(number, number, "all_gather of float32[8]", "train.py:3", 5, (0, 1))
    recorder.agree(slot)
    recorder.end(slot, 8, 8)
    return slot


def test_a_record_is_there_while_the_process_runs_and_goes_when_all_have_ended_well(tmp_path):
    first, second = (Recorder(tmp_path, rank, 2) for rank in range(2))
    one_call(first)
    assert b"all_gather of float32[8]" in (tmp_path / RECORD).read_bytes()
    first.close(clean=True)
    assert len(list(tmp_path.iterdir())) == 2
    second.close(clean=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_nobody_keeps_goes_with_the_last_record_if_it_is_empty(tmp_path):
    for name, is_kept in (("rank-2.record", False), ("notes.txt", True)):
        (folder := tmp_path / name).mkdir()
        recorders = [Recorder(folder, rank, 3, keeps_folder=False) for rank in range(3)]
        (folder / name).touch()
        for recorder in recorders[:2]:
            recorder.close(clean=True)
            assert folder.exists()
        recorders[2].close(clean=True)
        assert folder.exists() == is_kept


def test_records_stay_if_one_did_not_end_well(tmp_path):
    first, second = (Recorder(tmp_path, rank, 2) for rank in range(2))
    second.dump("a reason")
    first.close(clean=False, reason="it left with ValueError: bad luck")
    second.close(clean=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [RECORD, "rank-1.record", "rank-1.stacks"]
    record = read_record(tmp_path / RECORD)
    assert (record.end, record.cause) == ("failed", "it left with ValueError: bad luck")


def test_a_clean_end_after_a_call_that_failed_is_a_rescue_and_its_record_stays(tmp_path):
    recorder = Recorder(tmp_path, 0, 1)
    recorder.fail(one_call(recorder), "RankLost: rank 1 was lost", (1,))
    recorder.close(clean=True)
    assert read_record(tmp_path / RECORD).end == "rescued"


def test_what_another_job_left_neither_goes_nor_stays_in_the_way(tmp_path):
    for rank in range(3):
        Recorder(tmp_path, rank, 3, job="before")._detach()
    os.mkfifo(tmp_path / "rank-7.record")
    (tmp_path / "rank-8.record").write_bytes(b"cut off")
    now = [Recorder(tmp_path, rank, 2, job="now") for rank in range(2)]
    for recorder in now:
        recorder.close(clean=True)
    (tmp_path / "rank-7.record").unlink()
    again = [Recorder(tmp_path, rank, 2, job="again") for rank in range(2)]
    for recorder in again:
        recorder.close(clean=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-2.record", "rank-8.record"]


# -- processes that are killed, or fork --------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from random import Random
from time import sleep
from shardwise.engine.recording.recorder import Recorder

def write(folder):
    recorder = Recorder(folder, 0, 2, 16, job="it")
    recorder.beat("train.py:1")
    for n in range(1, 10**9):
        slot = recorder.begin(n, n, f"all_gather of float32[{n}]" + "x" * (n % 100), f"train.py:{n}", n, (0, 1))
        recorder.wait_for(slot, [n % 7] * (n % 5))
        recorder.agree(slot)
        recorder.end(slot, n, 2 * n)
        recorder.note(f"event {n}")
        if n == 100:
            (folder / "ready").touch()

random = Random(1)
for folder in map(Path, sys.argv[1:]):
    folder.mkdir()
    pid = os.fork()
    if pid == 0:
        write(folder)
    while not (folder / "ready").exists():
        sleep(0.001)
    sleep(random.random() / 100)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("count", [12, pytest.param(400, marks=pytest.mark.long)])
def test_who_is_killed_while_it_writes_leaves_what_it_did_last(tmp_path, count: int):
    folders = [tmp_path / str(n) for n in range(count)]
    subprocess.run([sys.executable, "-c", KILLED, *map(str, folders)], check=True, timeout=300)
    for folder in folders:
        record = read_record(folder / RECORD)
        assert (record.end, record.job, record.place) == ("running", "it", "train.py:1")
        assert process_of(record) == "gone"
        check_calls(record)
        assert 63 <= len(record.events) <= 64
        numbers = [int(event.text.removeprefix("event ")) for event in record.events]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def check_calls(record: RankRecord) -> None:
    # All but at most one, which was being written, say what the program does.
    assert 15 <= len(record.entries) <= 16
    assert record.entries[-1].sequence >= 100
    for before, entry in zip(record.entries, record.entries[1:], strict=False):
        assert entry.sequence == before.sequence + 1
    for entry in record.entries:
        n = entry.sequence
        assert entry.what == f"all_gather of float32[{n}]" + "x" * (n % 100)
        assert (entry.number, entry.line, entry.iteration, entry.group) == (n, f"train.py:{n}", n, "0,1")
    for entry in record.entries[:-1]:
        assert (entry.received, entry.sent) == (entry.sequence, 2 * entry.sequence)
        assert entry.agreed is not None
        assert entry.ended is not None
        assert entry.began <= entry.agreed <= entry.ended


def test_a_fork_writes_nothing_into_the_record_of_its_parent(tmp_path):
    recorder = Recorder(tmp_path, 0, 2, job="it")
    slot = one_call(recorder)
    before = (tmp_path / RECORD).read_bytes()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            recorder.begin(2, 2, "permute of it", "child.py:1")
            recorder.fail(slot, "child")
            recorder.beat("child.py:2")
            recorder.dump("child")
            recorder.close(clean=True)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (tmp_path / RECORD).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [RECORD]
    one_call(recorder, 2)
    assert len(read_record(tmp_path / RECORD).entries) == 2
    recorder.close(clean=False)


def test_a_thread_that_beats_while_the_record_ends_is_not_disturbed(tmp_path):
    troubles: list[BaseException] = []
    for _ in range(20):
        recorder = Recorder(tmp_path, 0, 1)
        stop = threading.Event()

        def beat(recorder: Recorder = recorder, stop: threading.Event = stop) -> None:
            try:
                while not stop.is_set():
                    recorder.beat("train.py:5")
                    recorder.note("event")
            except BaseException as error:
                troubles.append(error)

        thread = threading.Thread(target=beat)
        thread.start()
        sleep(0.001)
        recorder.close(clean=True)
        stop.set()
        thread.join()
    assert troubles == []
    assert list(tmp_path.iterdir()) == []


# -- folders that cannot be used ---------------------------------------------------------------------------


def fill_disk(*given: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def use(recorder: Recorder) -> None:
    recorder.wait_for(one_call(recorder), [1])
    recorder.fail(recorder.begin(2, 2, "permute", "train.py:4"), "RankLost: bad luck", (1,))
    recorder.beat("train.py:5")
    assert not recorder.dump_on()
    recorder.dump("bad luck")
    recorder.close(clean=False, reason="bad luck")


def test_a_full_disk_loses_the_record_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", fill_disk)
    recorder = Recorder(tmp_path, 0, 2)
    assert recorder.path is None
    assert "No space left" in recorder.trouble
    use(recorder)
    assert list(tmp_path.iterdir()) == []


def test_where_room_cannot_be_taken_in_advance_the_file_is_written(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    recorder = Recorder(tmp_path, 0, 2)
    one_call(recorder)
    assert len(read_record(tmp_path / RECORD).entries) == 1
    recorder._detach()
    monkeypatch.setattr(os, "write", lambda file, data: len(data) - 1)
    assert "No space left" in Recorder(tmp_path, 0, 2).trouble
    assert list(tmp_path.iterdir()) == []


def make_file(folder: Path) -> None:
    folder.write_text("not a folder")


def make_gone(folder: Path) -> None:
    assert not folder.exists()


def make_taken(folder: Path) -> None:
    (folder / RECORD).mkdir(parents=True)


def make_system(folder: Path) -> None:
    folder.symlink_to("/proc/self")  # nobody can write there, whoever they are


@pytest.mark.parametrize("make", [make_file, make_gone, make_taken, make_system])
def test_a_folder_that_cannot_be_written_loses_the_record_and_nothing_else(tmp_path, make: Callable[[Path], None]):
    make(tmp_path / "records")
    recorder = Recorder(tmp_path / "records", 0, 2)
    assert recorder.path is None
    assert RECORD in recorder.trouble
    use(recorder)


def test_what_was_there_is_replaced_and_never_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("dear")
    for name in (RECORD, "rank-0.stacks"):
        (tmp_path / name).symlink_to(precious)
    recorder = Recorder(tmp_path, 0, 1)
    recorder.dump("bad luck")
    assert precious.read_text() == "dear"
    assert not (tmp_path / RECORD).is_symlink()
    for name in (RECORD, "rank-0.stacks"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    recorder.close(clean=False)


def test_what_could_be_waited_for_without_end_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("fifo", "link", "."):
        with pytest.raises(OSError, match=r"not a plain file|symbolic"):
            read_plain(tmp_path / name, 10)
    (tmp_path / "file").write_bytes(b"123")
    assert read_plain(tmp_path / "file", 2) == b"12"


# -- stacks ------------------------------------------------------------------------------------------------


def test_stacks_are_written_with_the_reason_and_not_without_end(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path, 0, 1)
    recorder.dump("rank 1 was lost")
    text = (tmp_path / "rank-0.stacks").read_text()
    assert text.startswith("\n== rank 0: rank 1 was lost\n")
    assert "test_stacks_are_written_with_the_reason_and_not_without_end" in text
    assert read_record(tmp_path / RECORD).cause == "rank 1 was lost"
    monkeypatch.setattr(recording, "MOST_STACKS", len(text))
    recorder.dump("again")
    assert (tmp_path / "rank-0.stacks").read_text() == text
    recorder.close(clean=False)


BLOCKED = """
import ctypes, signal, sys
from pathlib import Path
from shardwise.engine.recording.recorder import Recorder
recorder = Recorder(Path(sys.argv[1]), 0, 1)
assert recorder.dump_on()
assert not recorder.dump_on()
def wait_in_a_library():
    print("ready", flush=True)
    ctypes.PyDLL(None).sleep(60)
wait_in_a_library()
"""


def test_a_signal_writes_the_stacks_of_a_process_that_holds_the_interpreter(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", BLOCKED, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process, process.stdout:
        process.stdout.readline()
        process.send_signal(signal.SIGUSR2)
        stacks, end = tmp_path / "rank-0.stacks", monotonic() + 20
        while "wait_in_a_library" not in stacks.read_text() and monotonic() < end:
            sleep(0.01)
        assert process.poll() is None
        process.kill()
    assert "wait_in_a_library" in stacks.read_text()


def test_a_signal_that_the_user_handles_stays_theirs(tmp_path):
    recorder, mine = Recorder(tmp_path, 0, 1), list[int]()
    before = signal.signal(signal.SIGUSR2, lambda number, frame: mine.append(number))
    try:
        assert not recorder.dump_on()
        os.kill(os.getpid(), signal.SIGUSR2)
        assert mine == [signal.SIGUSR2]
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert not (tmp_path / "rank-0.stacks").exists()
    recorder.close(clean=True)


# -- what it costs -----------------------------------------------------------------------------------------


def test_a_call_enters_few_functions_and_writes_no_file(tmp_path):
    recorder = Recorder(tmp_path, 0, 2)
    slot = one_call(recorder)

    def begin() -> None:
        recorder.begin(2, 2, "all_gather of float32[8]", "train.py:3", 5, (0, 1))

    counted = [begin, lambda: recorder.agree(slot), lambda: recorder.end(slot, 8, 8)]
    acts = [*counted, lambda: recorder.wait_for(slot, (1,))]
    counts = [calls_of(act, "call", "c_call") - 1 for act in acts]  # without the act itself
    assert counts[0] <= 8, counts
    assert max(counts[1:]) <= 6, counts
    assert sum(counts) <= 22, counts
    recorder.close(clean=False)


def test_memory_does_not_grow_with_calls(tmp_path):
    recorder = Recorder(tmp_path, 0, 2, 8)
    size = (tmp_path / RECORD).stat().st_size
    for n in range(1, 100):
        one_call(recorder, n)
        recorder.note("event")
    assert (tmp_path / RECORD).stat().st_size == size == at.Shape(8).size
    recorder.close(clean=False)


def test_calls_that_are_no_longer_in_the_ring_are_not_written_over_others(tmp_path):
    recorder = Recorder(tmp_path, 0, 2, 4)
    slots = [recorder.begin(n, n, "permute of it", f"train.py:{n}", None, (0, 1)) for n in range(1, 6)]
    before = read_record(tmp_path / RECORD)
    recorder.wait_for(slots[0], [1])
    recorder.agree(slots[0])
    recorder.end(slots[0], 9, 9)
    assert read_record(tmp_path / RECORD).entries == before.entries
    recorder.fail(slots[0], "RankLost: it was", (1,))
    assert read_record(tmp_path / RECORD).entries == before.entries
    recorder.close(clean=False)


def test_a_process_is_known_by_when_it_started():
    assert ticks_of(os.getpid()) > 0
    sleep(0.05)  # the system counts hundredths of a second
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert ticks_of(process.pid) > ticks_of(os.getpid())
    assert ticks_of(1 << 30) == 0
