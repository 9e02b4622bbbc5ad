"""What `shardwise run` shows on terminals and in files: progress as it comes, colours, long lines, the live line."""

import fcntl
import os
import re
import signal
import termios
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import monotonic
from typing import LiteralString

import pytest

from tests.engine.launch.kept import shown
from tests.faults.rows import note
from tests.faults.started import BUSY, COLUMNS, Started, Terminal

BARS = """
import os, pathlib, sys, time
rank, folder = os.environ["RANK"], pathlib.Path(os.environ["MARK"])
for k in range(3):
    sys.stderr.write(f"\\r{k}%")
    sys.stderr.flush()
    while not (folder / f"seen {rank} {k}").exists(): time.sleep(0.01)
sys.stderr.write("\\n")
print(f"\\x1b[31mred {rank}\\x1b[0m")
"""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_bars_are_shown_as_they_come(
    started: Callable[..., Started], terminal: Callable[..., Terminal], tmp_path: Path, is_terminal: bool
) -> None:
    """A rank goes on when its progress was seen: it is shown before the line has an end."""
    opened, path = terminal(), tmp_path / "out"
    start = monotonic()
    with path.open("wb") as file:
        to = opened.follower if is_terminal else file
        job = started(BARS, "-n", "2", "", options={"stdout": to, "stderr": to}, TERM="xterm")

        def seen() -> str:
            return opened.text if is_terminal else path.read_text()

        for k in range(3):
            for rank in range(2):
                assert job.wait_for(lambda k=k, rank=rank: f"[{rank}] {k}%" in seen(), 30), seen()
                (tmp_path / f"seen {rank} {k}").touch()
        assert job.process.wait(60) == 0
    note("progress", monotonic() - start)
    colours = [f"[{rank}] \x1b[31mred {rank}\x1b[0m" for rank in range(2)]
    assert job.wait_for(lambda: all(colour in seen() for colour in colours), 10)
    if is_terminal:
        rows = shown(re.sub(rb"\x1b\[\d+m", b"", opened.data), COLUMNS)
        assert sorted(rows) == ["", *(f"[{rank}] {text}" for rank in range(2) for text in ("2%", f"red {rank}"))]


@pytest.mark.long
def test_a_terminal_that_draws_lines_of_many_ranks_loses_none(
    started: Callable[..., Started], terminal: Callable[..., Terminal]
) -> None:
    script = (
        "import random, sys, time\n"
        "for k in range(40):\n"
        "    sys.stderr.write(f'\\r{k} of 40'); print('line', k, end=random.choice(['\\n', ' and\\n']))\n"
        "    time.sleep(random.choice([0, 0.03]))\n"
    )
    opened = terminal()
    options = {"stdout": opened.follower, "stderr": opened.follower}
    job = started(script, "-n", "4", "", options=options, TERM="xterm")
    assert job.process.wait(60) == 0
    rows = shown(opened.data, COLUMNS)
    for rank in range(4):
        numbers = [row.split()[2] for row in rows if row.startswith(f"[{rank}] line ")]
        assert numbers == [str(k) for k in range(40)]
        assert rows.count(f"[{rank}] 39 of 40") == 1


def test_a_long_line_arrives_whole(started: Callable[..., Started]) -> None:
    """That it costs its length is counted in tests/engine/launch/test_output.py."""
    size, start = 8 << 20, monotonic()
    script = (
        "import os, random, sys\n"
        f"sys.stdout.buffer.write(random.Random(int(os.environ['RANK'])).randbytes({size}).translate(None, b'\\r\\n'))"
    )
    job = started(script, "-n", "1", "", options={"text": False})
    out, err = job.process.communicate(timeout=60)
    note("long line", monotonic() - start)
    assert (job.process.returncode, err) == (0, b"")
    assert out == b"[0] " + Random(0).randbytes(size).translate(None, b"\r\n") + b"\n"


# -- the live line, of a job that communicates ------------------------------------------------------------

STRAGGLES = """
import os, pathlib, sys, time
import numpy as np
import shardwise as sw
folder, rank = pathlib.Path(os.environ["MARK"]), int(os.environ["RANK"])

def load_data():
    while not (folder / "seen").exists(): time.sleep(0.01)

engine = sw.init()
x = sw.shard(np.arange(8.0), sw.DeviceMesh((2,), ("x",)), sw.P("x"))
for i in range(1200, 1206):
    with sw.step(i):
        if i == 1205 and rank == 1:
            load_data()
        x.gather()
print("done")
"""
LATE = re.compile(
    r"rank 1 is late: all_gather at script.py:(\d+) waits \d+\.\d s for it; busy elsewhere, at script.py:(\d+)"
)


def line_of(text: LiteralString) -> str:
    return str(list(STRAGGLES.splitlines()).index(text) + 1)


def test_a_straggler_is_named_in_the_log_and_in_the_live_line(
    started: Callable[..., Started], terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    """Long before the timeout, which is a minute; the line is gone at the end, and stacks can be asked for."""
    opened = terminal()
    options = {"stdout": opened.follower, "stderr": opened.follower}
    env = {"TERM": "xterm", "SHARDWISE_TIMEOUT": "60", "SHARDWISE_RECORD": str(tmp_path / "records")}
    job = started(STRAGGLES, "-n", "2", "", options=options, **env)
    assert job.wait_for(lambda: "2 ranks · iteration 1204-1205 · sequence 5-6" in opened.text, 60), opened.text
    start = monotonic()
    assert job.wait_for(lambda: LATE.search(opened.text) is not None, 30), opened.text
    note("live", monotonic() - start)
    (calls, busy), gather, wait = (
        LATE.findall(opened.text)[0],
        line_of("        x.gather()"),
        line_of('    while not (folder / "seen").exists(): time.sleep(0.01)'),
    )
    assert (calls, busy) == (gather, wait)
    script = tmp_path / "script.py"
    logged = rf"\[0\] rank 1 is late: all_gather \(sequence 6, at {script}:{gather}\) has waited \d+\.\d s for it, "
    logged += rf"which usually comes \d+\.\d s after the one before; busy elsewhere, at {script}:{wait}"
    assert re.search(logged, opened.text)
    job.process.send_signal(signal.SIGUSR2)
    assert job.wait_for(lambda: "shardwise run: the stacks of ranks 0, 1 are in" in opened.text, 10), opened.text
    stacks = tmp_path / "records" / "rank-1.stacks"
    assert job.wait_for(lambda: f"line {wait} in load_data" in stacks.read_text(), 10)
    (tmp_path / "seen").touch()
    assert job.process.wait(60) == 0
    rows = shown(opened.data, COLUMNS)
    assert not any(row.startswith(("2 ranks", "rank 1 is late")) for row in rows)
    assert sorted(row for row in rows if "done" in row) == ["[0] done", "[1] done"]


@pytest.mark.long
@pytest.mark.parametrize("where", ["--no-live", "a pipe beside it", "no terminal", "no records"])
def test_there_is_no_live_line_where_it_does_not_belong(
    started: Callable[..., Started], terminal: Callable[..., Terminal], tmp_path: Path, where: str
) -> None:
    opened = terminal()
    (tmp_path / "seen").touch()
    script = STRAGGLES.replace("x.gather()", "x.gather(); time.sleep(0.4)")
    options: dict[str, object] = {"stdout": opened.follower, "stderr": opened.follower}
    if where == "a pipe beside it":
        del options["stdout"]
    more = {"SHARDWISE_RECORD": "off"} if where == "no records" else {}
    term = "dumb" if where == "no terminal" else "xterm"
    args = ["--no-live"] if where == "--no-live" else []
    job = started(script, "-n", "2", *args, "", options=options, TERM=term, **more)
    out, _ = job.process.communicate(timeout=90)
    assert job.process.returncode == 0
    assert "ranks ·" not in opened.text + (out or "")
    assert "\x1b" not in opened.text


def take_terminal() -> None:
    """Become the program that a terminal sends Ctrl-C to."""
    fcntl.ioctl(1, termios.TIOCSCTTY, 0)


@pytest.mark.long
def test_ctrl_c_on_a_terminal_ends_all_and_its_lines_are_whole(
    started: Callable[..., Started], terminal: Callable[..., Terminal]
) -> None:
    script = (
        "import sys, time\n"
        "try:\n    print('ready'); sys.stderr.write('\\r45%'); sys.stderr.flush(); time.sleep(600)\n"
        "except KeyboardInterrupt: print('saved')"
    )
    opened = terminal()
    options = {"stdout": opened.follower, "stderr": opened.follower, "preexec_fn": take_terminal}
    job = started(script, "-n", "2", "", options=options, TERM="xterm")
    assert job.wait_for(lambda: all(f"[{rank}] 45%" in opened.text for rank in range(2)), 60), opened.text
    start = monotonic()
    os.write(opened.leader, b"\x03")
    assert job.process.wait(30 + BUSY) == 130
    assert monotonic() - start < 5 + BUSY
    rows = shown(opened.data.replace(b"^C", b""), COLUMNS)
    lines = [f"[{rank}] {text}" for rank in range(2) for text in ("ready", "45%", "saved")]
    assert sorted(rows) == ["", *sorted(lines), "shardwise run: interrupted; stopping all"]
