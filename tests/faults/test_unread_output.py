"""`shardwise run` whose output nobody reads, or cannot be written: the job goes on, and ends when it is told to."""

import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from select import select
from time import monotonic
from typing import Any, cast

import pytest

from tests.faults.rows import note
from tests.faults.started import BUSY, Started, Terminal

PRINTS = "import os, pathlib; pathlib.Path(os.environ['MARK'], 'begun').touch()\nwhile True: print('x' * 99)"
ENDS = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Unread:
    """A place for output, which takes some and then no more."""

    def __init__(self, kind: str, terminal: Callable[..., Terminal]) -> None:
        self.kind, self.pager = kind, None
        if kind == "a terminal that is stopped":
            opened = terminal(is_read=False)
            opened.stop()
            self.ends = opened.leader, opened.follower
        else:
            self.ends = os.pipe()
        if kind == "a pager that is paused":
            self.pager = subprocess.Popen(["cat"], stdin=self.ends[0], stdout=subprocess.DEVNULL)
            self.pager.send_signal(signal.SIGSTOP)

    def is_full(self) -> bool:
        return not select([], [self.ends[1]], [], 0)[1]

    def close(self) -> None:
        if self.pager is not None:
            self.pager.kill()
            self.pager.wait()
        if self.kind != "a terminal that is stopped":
            for end in self.ends:
                os.close(end)


@pytest.fixture
def unread(terminal: Callable[..., Terminal]) -> Iterator[Callable[[str], Unread]]:
    made: list[Unread] = []
    yield lambda kind: made.append(Unread(kind, terminal)) or made[-1]
    for each in made:
        each.close()


def cases(*short: tuple[str, signal.Signals]) -> list[Any]:
    kinds = ["a pipe", "a terminal that is stopped", "a pager that is paused"]
    every = [(kind, number) for kind in kinds for number in ENDS]
    return [pytest.param(*case, marks=[] if case in short else pytest.mark.long) for case in every]


SHORT = [
    ("a pipe", signal.SIGTERM),
    ("a terminal that is stopped", signal.SIGINT),
    ("a pager that is paused", signal.SIGTERM),
]


@pytest.mark.parametrize(("kind", "number"), cases(*SHORT))
def test_a_launcher_whose_output_is_not_read_is_ended_in_seconds(
    started: Callable[..., Started], unread: Callable[[str], Unread], tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    """Its ranks print without end, and more than anybody keeps for them."""
    to = unread(kind)
    job = started(PRINTS, "-n", "2", "", options={"stdout": to.ends[1]})
    assert job.wait_for(lambda: (tmp_path / "begun").exists() and to.is_full(), 60)
    start = monotonic()
    job.process.send_signal(number)
    code, _, err = job.end(30 + BUSY)
    seconds = monotonic() - start
    assert code == ENDS[number]
    assert seconds < 5 + BUSY
    note("unread", seconds)
    first, *_, last = (line for line in err.splitlines() if line.startswith("shardwise run: "))
    assert first == "shardwise run: interrupted; stopping all"
    assert last.endswith(" bytes of the standard output were not written: nobody reads it")


@pytest.mark.parametrize(("kind", "number"), cases())
def test_so_is_one_of_which_neither_output_is_read(
    started: Callable[..., Started], unread: Callable[[str], Unread], tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    to = unread(kind)
    job = started(PRINTS, "-n", "3", "", options={"stdout": to.ends[1], "stderr": to.ends[1]})
    assert job.wait_for(lambda: (tmp_path / "begun").exists() and to.is_full(), 60)
    start = monotonic()
    job.process.send_signal(number)
    assert job.process.wait(30 + BUSY) == ENDS[number]
    assert monotonic() - start < 5 + BUSY


@pytest.mark.long
@pytest.mark.parametrize("code", [0, 3])
def test_a_job_that_is_over_waits_for_its_reader_until_it_is_told_not_to(
    started: Callable[..., Started], unread: Callable[[str], Unread], code: int
) -> None:
    to = unread("a pipe")
    script = (
        f"import pathlib, os; print('x' * (1 << 20)); pathlib.Path(os.environ['MARK'], 'done').touch(); exit({code})"
    )
    job = started(script, "-n", "1", "", options={"stdout": to.ends[1]})
    assert job.wait_for((Path(job.mark) / "done").exists, 60)
    with pytest.raises(subprocess.TimeoutExpired):
        job.process.wait(3.0)
    start = monotonic()
    job.process.terminate()
    found, _, err = job.end(30 + BUSY)
    assert (found, monotonic() - start < 5 + BUSY) == (143, True)
    assert "bytes of the standard output were not written: nobody reads it" in err


@pytest.mark.long
def test_when_a_rank_fails_the_others_are_ended_though_nobody_reads(
    started: Callable[..., Started], unread: Callable[[str], Unread]
) -> None:
    to = unread("a pager that is paused")
    script = (
        "import os, pathlib, time\n"
        "if os.environ['RANK'] == '1':\n"
        "    while not pathlib.Path(os.environ['MARK'], 'fails').exists(): time.sleep(0.01)\n"
        "    exit(7)\n"
        "while True: print('x' * 99)"
    )
    job = started(script, "-n", "2", "", options={"stdout": to.ends[1]})
    assert job.wait_for(to.is_full, 60)
    (Path(job.mark) / "fails").touch()
    assert job.process.stderr is not None
    start = monotonic()
    lines = [job.process.stderr.readline() for _ in range(2)]
    assert monotonic() - start < 10 + BUSY
    assert lines[0] == "shardwise run: rank 1 failed first: exit code 7\n"
    assert "stopped: rank 0" in lines[1]
    assert job.wait_for(lambda: len(job.living()) == 2, 5 + BUSY)  # the launcher and its sentinel
    assert to.pager is not None
    to.pager.send_signal(signal.SIGCONT)
    assert job.end(60)[0] == 7


# -- what cannot be written --------------------------------------------------------------------------------

TALKS = """
import os, pathlib, sys, time
left = pathlib.Path(os.environ["MARK"], "the reader has left")
for k in range(500):
    print(f"line {k} of all that this rank says")
    time.sleep(0.0005)
    while "LEAVES" in os.environ and not left.exists(): time.sleep(0.01)
print("this too", file=sys.stderr)
sys.exit(int(sys.argv[1]) if os.environ["RANK"] == "1" else 0)
"""
GRACE = ["--grace", "60"]  # in which one ends that a busy machine lets end later than another that fails
SAID = "shardwise run: cannot write to the standard output: {}; the job goes on without it"


def limit_files() -> None:
    """No file of this process may become larger, as on a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))


@pytest.mark.parametrize(("kind", "code"), [("a device", 3), ("a file", 0)])
def test_a_disk_that_is_full_does_not_end_the_job(
    started: Callable[..., Started], tmp_path: Path, kind: str, code: int
) -> None:
    path = Path("/dev/full") if kind == "a device" else tmp_path / "out"
    start = monotonic()
    with path.open("wb") as file:
        options = {"stdout": file} | ({} if kind == "a device" else {"preexec_fn": limit_files})
        found, _, err = started(TALKS, "-n", "2", *GRACE, str(code), options=options).end()
    note("full", monotonic() - start)
    assert found == code
    why = "No space left on device" if kind == "a device" else "File too large"
    lines = err.splitlines()
    assert lines.count(SAID.format(why)) == 1
    assert lines.count("[0] this too") == lines.count("[1] this too") == 1
    assert lines[-1].endswith(f" bytes of the standard output were not written: {why}")
    if kind == "a file":
        *whole, last = path.read_text().split("\n")
        ranks = [[line for line in whole if line.startswith(f"[{rank}] ")] for rank in range(2)]
        assert [
            [f"[{rank}] line {k} of all that this rank says" for k in range(len(ranks[rank]))] for rank in range(2)
        ] == ranks
        assert 7900 < len(last) + sum(map(len, whole)) + len(whole) <= 8000


def test_neither_output_can_be_written_and_the_code_is_that_of_the_program(started: Callable[..., Started]) -> None:
    with Path("/dev/full").open("wb") as file:
        job = started(TALKS, "-n", "2", "5", options={"stdout": file, "stderr": file})
        assert job.process.wait(60) == 5


@pytest.mark.parametrize("code", [0, pytest.param(4, marks=pytest.mark.long)])
def test_a_reader_that_leaves_does_not_end_the_job(started: Callable[..., Started], tmp_path: Path, code: int) -> None:
    """As in `shardwise run ... | head -1`."""
    start = monotonic()
    job = started(TALKS, "-n", "2", *GRACE, str(code), LEAVES="yes")
    assert job.process.stdout is not None
    assert job.process.stdout.readline()[4:] == "line 0 of all that this rank says\n"
    job.process.stdout.close()
    job.process.stdout = None
    (tmp_path / "the reader has left").touch()
    found, _, err = job.end()
    note("reader gone", monotonic() - start)
    assert found == code
    lines = err.splitlines()
    assert lines.count(SAID.format("Broken pipe")) == 1
    assert lines.count("[0] this too") == lines.count("[1] this too") == 1


@pytest.mark.long
def test_an_output_that_is_closed_from_the_beginning_is_none(started: Callable[..., Started]) -> None:
    job = started(TALKS, "-n", "2", "6", options={"preexec_fn": lambda: [os.close(end) for end in (1, 2)]})
    assert job.end() == (6, "", "")


BYTES = """
import os, sys
for file in (sys.stdout.buffer, sys.stderr.buffer):
    file.write("é 中 \\U0001f600 \\u2028 ".encode() + b"\\xff\\x00\\xed\\xa0\\x80\\n")
    file.flush()
"""


ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize(("env", "name"), [({"PYTHONIOENCODING": "ascii"}, r"\xe9"), (ASCII, r"\udcc3\udca9")])
def test_characters_that_cannot_be_encoded_are_passed_on_or_escaped(
    started: Callable[..., Started], tmp_path: Path, env: dict[str, str], name: str
) -> None:
    """What ranks write is passed on as it is; what the launcher says names a folder that has such characters."""
    folder = tmp_path / os.fsdecode("é\x1b[2J\n".encode() + b"\xff")
    folder.mkdir()
    (folder / "rank-0.record").touch()
    options = {"text": False}
    job = started(BYTES + "sys.exit(9)", "-n", "2", *GRACE, "", options=options, SHARDWISE_RECORD=str(folder), **env)
    out, err = cast(tuple[bytes, bytes], job.process.communicate(timeout=60))
    assert job.process.returncode == 9
    data = "é 中 \U0001f600 \u2028 ".encode() + b"\xff\x00\xed\xa0\x80"
    assert sorted(out.split(b"\n")) == [b"", *(f"[{rank}] ".encode() + data for rank in range(2))]
    assert all(f"[{rank}] ".encode() + data + b"\n" in err for rank in range(2))
    said = [line.decode("ascii") for line in err.split(b"\n") if line.startswith(b"shardwise run: ")]
    told = next(line for line in said if "postmortem" in line)
    assert told.endswith(f"/{name}\\x1b[2J")
    assert said[said.index(told) + 1 :] == [r"shardwise run: \udcff"]


@pytest.mark.long
def test_an_output_that_is_not_read_for_a_while_loses_nothing(started: Callable[..., Started]) -> None:
    script = "import sys\nfor k in range(3000): sys.stdout.write(f'{k} ' + 'x' * 30000 + '\\n')"
    job = started(script, "-n", "1", "")
    with pytest.raises(subprocess.TimeoutExpired):
        job.process.wait(5.0)
    code, out, err = job.end()
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"[0] {k} " + "x" * 30000 for k in range(3000)]
