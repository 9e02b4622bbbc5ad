"""`shardwise run`: what is printed, who is stopped and how soon, and that nobody is left behind."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from tests.faults.job import environment
from tests.faults.rows import note
from tests.faults.started import BUSY, COMMAND, Started


def test_lines_have_their_rank_and_scripts_their_arguments(started: Callable[..., Started]) -> None:
    script = (
        "import os, sys\n"
        "names = 'RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR'.split()\n"
        "print(*[os.environ[n] for n in names], *sys.argv[1:]); print('error', file=sys.stderr)\n"
        "print('no end', end='')"
    )
    code, out, err = started(script, "-n", "3", "--flag -n 7").end()
    assert code == 0, err
    lines = [f"[{rank}] {rank} {rank} 3 127.0.0.1 --flag -n 7" for rank in range(3)]
    assert sorted(out.splitlines()) == sorted(lines + [f"[{rank}] no end" for rank in range(3)])
    assert sorted(err.splitlines()) == [f"[{rank}] error" for rank in range(3)]


FAILS = """
import os, pathlib, signal, time
from shardwise import RankLost
folder, rank = pathlib.Path(os.environ["MARK"]), int(os.environ["RANK"])
if rank == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("waiting")
(folder / f"{rank} is ready").touch()
wanted = 4 if rank == 2 else 5  # rank 2 fails when all are ready, the others know it then
while len(list(folder.glob("* is ready"))) < wanted:
    time.sleep(0.01)
if rank == 2:
    (folder / "failure is ready").touch()
    raise ValueError("bad luck")
if rank == 1:
    time.sleep(0.2)
    raise RankLost("rank 2 was lost")
time.sleep(600)
"""


def test_the_first_failure_comes_first_and_all_are_stopped(started: Callable[..., Started], tmp_path: Path) -> None:
    job = started(FAILS, "-n", "4", "--grace", "4", "")
    assert job.wait_for((tmp_path / "failure is ready").exists, 60)
    start = monotonic()
    code, out, err = job.end()
    assert monotonic() - start < 5 + BUSY
    assert code == 1
    assert "[0] waiting" in out
    lines = err.splitlines()
    assert lines[0] == "shardwise run: rank 2 failed first: exit code 1"
    assert lines[1] == "[2] Traceback (most recent call last):"
    first, second = lines.index("[2] ValueError: bad luck"), lines.index("shardwise run: rank 1 failed: exit code 1")
    assert first < second < lines.index("[1] shardwise.RankLost: rank 2 was lost")
    assert lines[-1] == "shardwise run: stopped: ranks 0, 3"


@pytest.mark.long
def test_a_traceback_of_a_process_that_goes_on_is_printed(started: Callable[..., Started]) -> None:
    script = "import traceback, time\ntry: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()\ntime.sleep(600)"
    job = started(script, "-n", "1", "")
    assert job.process.stderr is not None
    lines = list(iter(job.process.stderr.readline, "[0] ZeroDivisionError: division by zero\n"))
    assert lines[0] == "[0] Traceback (most recent call last):\n"
    assert job.process.poll() is None
    job.process.terminate()
    assert job.end()[0] == 143


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)]
)
def test_ctrl_c_stops_all(started: Callable[..., Started], number: int, code: int) -> None:
    script = (
        "import os, signal, time\n"
        "if os.environ['RANK'] == '0': signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "try:\n    print('ready', flush=True); time.sleep(600)\n"
        "except KeyboardInterrupt: print('saved')"
    )
    job = started(script, "-n", "3", "")
    assert job.process.stdout is not None
    ready = [job.process.stdout.readline() for _ in range(3)]
    assert sorted(ready) == [f"[{rank}] ready\n" for rank in range(3)]
    start = monotonic()
    job.process.send_signal(number)
    found, out, err = job.end()
    note("interrupted", monotonic() - start)
    assert monotonic() - start < 5 + BUSY
    assert found == code
    assert sorted(out.splitlines()) == ["[1] saved", "[2] saved"]
    assert "interrupted; stopping all" in err


def test_a_launcher_that_is_killed_leaves_nobody(started: Callable[..., Started]) -> None:
    script = "import subprocess, time\nsubprocess.Popen(['sleep', '600'])\nprint('ready', flush=True)\ntime.sleep(600)"
    job = started(script, "-n", "2", "")
    assert job.process.stdout is not None
    assert [job.process.stdout.readline()[4:] for _ in range(2)] == ["ready\n"] * 2
    # The launcher, its sentinel, and two ranks with a child each; one that becomes another program has no environment.
    assert job.wait_for(lambda: len(job.living()) == 6, 5 + BUSY), job.living()
    start = monotonic()
    job.process.kill()
    job.process.wait()
    assert job.wait_for(lambda: not job.living(), 5 + BUSY), job.living()
    note("launcher killed", monotonic() - start)


def test_what_a_rank_leaves_behind_is_ended(started: Callable[..., Started]) -> None:
    script = "import subprocess\nfor words in (['sleep', '600'], ['setsid', 'sleep', '600']): subprocess.Popen(words)"
    job = started(script, "-n", "2", "")
    code, _, err = job.end()
    assert code == 0
    assert "ending what was left behind: processes" in err
    assert job.living() == []


def test_a_rank_that_is_killed_is_named(started: Callable[..., Started]) -> None:
    script = "import os, time\nif os.environ['RANK'] == '1': os.kill(os.getpid(), 9)\ntime.sleep(600)"
    code, _, err = started(script, "-n", "2", "--grace", "0.1", "").end()
    assert code == 128 + 9
    assert err.splitlines() == [
        "shardwise run: rank 1 failed first: ended by SIGKILL",
        "shardwise run: stopped: rank 0",
    ]


def test_a_nested_launch_is_refused(started: Callable[..., Started]) -> None:
    script = f"import os\nos.execv({COMMAND[0]!r}, {[*COMMAND, '-n', '2', 'script.py']!r})"
    start = monotonic()
    code, _, err = started(script, "-n", "2", "--grace", "20", "").end()
    assert monotonic() - start < 30 + BUSY  # it imports torch three times, and waits for nobody
    assert code == 1
    for rank in range(2):
        assert f"[{rank}] Error: this is already rank {rank} of 2 of a launch" in err
    assert "start one launch with as many processes as the mesh has devices" in err


PROGRAM = """
import sys
from tests.faults import situations
getattr(situations, sys.argv[1])(*map(int, sys.argv[2:]))
"""


@pytest.mark.long
def test_one_rank_raises_and_the_others_are_told(started: Callable[..., Started], tmp_path: Path) -> None:
    job = started(PROGRAM, "-n", "2", "--grace", "20", "raises 1")
    assert job.wait_for(lambda: (tmp_path / "ready").exists(), 90)
    start = monotonic()
    code, _, err = job.end(60)
    assert monotonic() - start < 5 + BUSY
    assert code == 1
    lines = err.splitlines()
    first = lines.index("shardwise run: rank 1 failed first: exit code 1")
    second = lines.index("shardwise run: rank 0 failed: exit code 1")
    assert max(first, lines.index("[1] ValueError: bad luck")) < second  # which a slow end prints sooner
    blamed = next(i for i, line in enumerate(lines) if line.startswith("[0] ") and "RankLost: " in line)
    assert lines.index("[1] ValueError: bad luck") < blamed
    assert "it left with ValueError: bad luck; its last sequence was 1" in err


@pytest.mark.long
def test_torchrun_starts_it_too(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, shardwise as sw\n"
        "engine = sw.init()\n"
        "x = sw.shard(np.arange(8.0), sw.DeviceMesh((2,), ('x',)), sw.P('x'))\n"
        "said = f'{engine} {engine.wire.guard is not None} {x.gather().numpy().sum()}'\n"
        "print(said + '\\n', end='')"  # in one write: both write to one pipe
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d"]
    command += ["--rdzv-endpoint=localhost:0", str(script)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"DistributedEngine(rank {rank} of 2) True 28.0" for rank in range(2)]


@pytest.mark.long
def test_ctrl_c_in_a_program_that_communicates(started: Callable[..., Started]) -> None:
    job = started(PROGRAM, "-n", "4", "starts_and_waits 600")
    assert job.process.stdout is not None
    assert [job.process.stdout.readline()[4:] for _ in range(4)] == ['{"ready": true}\n'] * 4
    start = monotonic()
    job.process.send_signal(signal.SIGINT)
    assert job.end()[0] == 130
    assert monotonic() - start < 5 + BUSY
