"""Starts that cannot work: who is absent, there twice, or does not agree is named, and all are told."""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

import pytest
from torch._C._distributed_c10d import TCPStore

from shardwise.engine.meeting.credentials import CONTROL, SECRET, TLS, TRANSPORT, Credentials
from shardwise.engine.meeting.handshake import StrangerError, call
from tests.engine.meeting.certificates import Authority
from tests.engines.pool import port_of, reserve_port
from tests.faults.job import TIMEOUT, WAITING, Job, Rank, environment
from tests.faults.rows import note

SOON = 15.0  # rank 0 waits up to 5 s for others to read why it refuses
SHARED = {SECRET: "a secret of twenty bytes"}


def slowest(ranks: list[Rank]) -> float:
    """The seconds after which the last of some ranks knew."""
    return max(rank.said["seconds"] for rank in ranks)


def check_ends(ranks: list[Rank]) -> None:
    """Each was refused, could print what it was told, and ended cleanly."""
    for rank in ranks:
        assert rank.said["error"] == "EngineError", rank.said
        assert rank.code == 0, rank.err


@pytest.mark.long
def test_all_are_there(job: Job) -> None:
    for rank in job.run("starts"):
        assert rank.said["error"] is None, rank.said
        assert rank.code == 0


def test_absent_ranks_are_named(job: Job) -> None:
    few = {"SHARDWISE_START_TIMEOUT": "3"}
    for rank in job.run("starts", size=5, only=[few, few, few | {"RANK": "3"}]):
        assert rank.said["error"] == "EngineError"
        assert "ranks 2, 4 of 5 did not come within 3 s." in rank.said["text"]
        assert "here: rank 0 (" in rank.said["text"]
        assert 2 < rank.said["seconds"] < 3 + SOON
    check_ends(job.ranks)
    note("absent", slowest(job.ranks) - 3)


@pytest.mark.long
def test_rank_0_is_absent(job: Job) -> None:
    (rank,) = job.run("starts", size=2, only=[{"SHARDWISE_START_TIMEOUT": "3", "RANK": "1"}])
    assert rank.said["error"] == "EngineError"
    assert f"rank 1 cannot reach rank 0 at 127.0.0.1:{job.port}" in rank.said["text"]
    assert rank.said["seconds"] < 3 + SOON
    check_ends(job.ranks)


@pytest.mark.long
def test_a_rank_that_is_there_twice(job: Job) -> None:
    ranks = job.run("starts", size=3, only=[{}, {"RANK": "1"}, {"RANK": "1"}])
    for rank in ranks:
        assert rank.said["error"] == "EngineError", rank.said
        assert "rank 1 is there twice: " in rank.said["text"]
        assert "every process has its own RANK" in rank.said["text"]
        assert rank.said["seconds"] < SOON
    check_ends(ranks)
    note("twice", slowest(ranks))


@pytest.mark.parametrize(
    ("only", "text"),
    [
        pytest.param([{}, {"WORLD_SIZE": "2"}, {}], "WORLD_SIZE: 3 in rank 0, 2 in rank 1", marks=pytest.mark.long),
        pytest.param([{"WORLD_SIZE": "4"}, {}, {}], "WORLD_SIZE: 4 in rank 0, 3 in rank ", marks=pytest.mark.long),
    ],
)
def test_different_world_sizes(job: Job, only: list[dict[str, str]], text: str) -> None:
    for rank in job.run("starts", size=3, only=only):
        assert rank.said["error"] == "EngineError"
        assert "do not agree about WORLD_SIZE" in rank.said["text"]
        assert text.partition(":")[0] in rank.said["text"]
        assert rank.said["seconds"] < SOON
    assert any(text in rank.said["text"] for rank in job.ranks)
    check_ends(job.ranks)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param("version", "do not agree about shardwise.\n  shardwise: 0.1.0 in rank", marks=pytest.mark.long),
        ("mesh", "do not agree about mesh.\n  mesh: DeviceMesh("),
        pytest.param("guard", "do not agree about guard.", marks=pytest.mark.long),
    ],
)
def test_different_versions_and_meshes(job: Job, change: str, text: str) -> None:
    size = 4 if change == "mesh" else 3
    for rank in job.run("starts", change, size - 1, size=size):
        assert rank.said["error"] == "EngineError"
        assert text in rank.said["text"]
        assert rank.said["seconds"] < SOON
    check_ends(job.ranks)
    note("other worlds", slowest(job.ranks))


@pytest.mark.long
@pytest.mark.parametrize("victim", [0, 1])
def test_one_that_is_killed_while_all_start(job: Job, victim: int) -> None:
    ranks = job.run("starts_in_vain", victim, size=3, only=[WAITING] * 3)
    assert ranks.pop(victim).code == -signal.SIGKILL
    for rank in ranks:
        said = rank.said
        assert said["error"] == "RankLost", said
        assert said["ranks"] == [victim]
        assert f"rank {victim} was lost" in said["text"]
        assert "came to init (sequence 0) at " in said["text"]
        assert said["seconds"] < TIMEOUT + SOON
        assert rank.code == 0


@pytest.mark.parametrize(
    ("victim", "moment"),
    [
        (1, "waits"),
        pytest.param(1, "connects", marks=pytest.mark.long),
        pytest.param(0, "connects", marks=pytest.mark.long),
        pytest.param(0, "waits", marks=pytest.mark.long),
    ],
)
def test_one_that_is_killed_while_all_meet(job: Job, victim: int, moment: str) -> None:
    few = {"SHARDWISE_START_TIMEOUT": "8"}
    ranks = job.run("dies_while_all_meet", victim, moment, size=3, only=[few] * 3)
    assert ranks.pop(victim).code == -signal.SIGKILL
    if (victim, moment) == (0, "waits"):
        late = ranks.pop()  # nobody can tell it that rank 0 was there, and will not come any more
        assert f"rank 2 cannot reach rank 0 at 127.0.0.1:{job.port}" in late.said["text"]
    for rank in ranks:
        assert rank.said["error"] == "EngineError", rank.said
        who = r"0" if victim == 0 else rf"{victim} \({re.escape(socket.gethostname())}:\d+\)"
        when = "others were starting" if moment == "waits" else "all were connecting"
        assert re.match(rf"rank {who} ended while {when}\.\n  look at its output first\.$", rank.said["text"]), (
            rank.said
        )
        assert rank.said["seconds"] < SOON
    check_ends(ranks)
    note("dies in the meeting", slowest(ranks))


@pytest.mark.long
def test_a_port_that_is_taken(job: Job) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        job.port = other.getsockname()[1]
        few = {"SHARDWISE_START_TIMEOUT": "3"}
        first, second = job.run("starts", size=2, only=[few, few])
    assert first.said["error"] == "EngineError"
    assert f"port {job.port} is taken" in first.said["text"]
    assert "set MASTER_PORT to a free port" in first.said["text"]
    assert first.said["seconds"] < SOON
    assert second.said["error"] == "EngineError"
    assert "rank 0 is absent, or something else listens there" in second.said["text"]
    assert second.said["seconds"] < 3 + SOON
    check_ends([first, second])
    note("port", first.said["seconds"])


# -- strangers, secrets and certificates -------------------------------------------------------------------------

WORDS = [b"", b"GET / HTTP/1.1\r\n\r\n", b"\0\0", struct.pack("!I", 0xFFFFFFFF), b"\xff" * 5000]


@contextmanager
def strangers(port: int) -> Iterator[list[socket.socket]]:
    """A hundred who call a port as soon as somebody listens, and stay; and one with another secret, who insists."""
    ends, done = list[socket.socket](), threading.Event()
    other = Credentials(b"another secret of others")

    def crowd() -> None:
        while len(ends) < 100 and not done.is_set():
            try:
                ends.append(socket.create_connection(("127.0.0.1", port)))
                ends[-1].sendall(WORDS[len(ends) % len(WORDS)])
            except OSError:
                sleep(0.002)

    def insist() -> None:
        card = {"rank": 1, "size": 3}
        while not done.is_set():
            with suppress(StrangerError, OSError):
                end = socket.create_connection(("127.0.0.1", port))
                call(end, {"card": card}, other, monotonic() + 5)[0].close()
            sleep(0.002)

    threads = [threading.Thread(target=crowd), threading.Thread(target=insist)]
    for thread in threads:
        thread.start()
    try:
        yield ends
    finally:
        done.set()
        for thread in threads:
            thread.join()
        for end in ends:
            end.close()


def test_strangers_do_not_stop_a_start(job: Job) -> None:
    with strangers(job.port) as ends:
        # One is late by a second: strangers have all the time they want.
        job.run("gathers", 1.0, size=3, only=[SHARED] * 3)
    assert len(ends) > 50
    for rank in job.ranks:
        assert rank.said["error"] is None, rank.said
        assert rank.said["value"] == sum(range(64))
        assert rank.code == 0
    note("strangers", job.ranks[-1].said["seconds"])


@pytest.mark.long
def test_a_process_with_another_secret_does_not_come(job: Job) -> None:
    few = {"SHARDWISE_START_TIMEOUT": "2"}
    first, second, third = job.run(
        "starts", only=[SHARED | few, SHARED | few, few | {SECRET: "another secret of others"}]
    )
    for rank in (first, second):
        assert "rank 2 of 3 did not come within 2 s." in rank.said["text"]
        assert "turned away: 127.0.0.1: it does not know the secret of this job" in rank.said["text"]
    assert "it does not know us: SHARDWISE_SECRET is another there, or this is another job" in third.said["text"]
    assert slowest(job.ranks) < 2 + SOON
    check_ends(job.ranks)
    note("other secret", slowest(job.ranks) - 2)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    folder = tmp_path_factory.mktemp("certificates")
    return {name: Authority(folder, name).issue("rank") for name in ("job", "other")}


def test_a_job_whose_control_is_encrypted_says_that_its_data_are_not(
    job: Job, certificates: dict[str, dict[str, str]]
) -> None:
    env = certificates["job"] | SHARED | {TLS: CONTROL}
    for rank in job.run("gathers", size=2, only=[env, env]):
        assert rank.said["error"] is None, rank.said
        assert rank.said["value"] == sum(range(64))
        assert "connections of gloo, over which the data of tensors travel, are not encrypted" in rank.err
        assert rank.code == 0


@pytest.mark.long
def test_a_process_with_a_certificate_of_another_authority_does_not_come(
    job: Job, certificates: dict[str, dict[str, str]]
) -> None:
    few = SHARED | {TLS: CONTROL, "SHARDWISE_START_TIMEOUT": "2"}
    first, second = job.run("starts", size=2, only=[certificates[name] | few for name in ("job", "other")])
    assert "rank 1 of 2 did not come within 2 s." in first.said["text"]
    assert "turned away: 127.0.0.1: " in first.said["text"]
    assert "unknown ca" in first.said["text"]
    assert "certificate verify failed" in second.said["text"]
    check_ends(job.ranks)


def test_what_would_not_be_encrypted_is_refused_at_once(job: Job, certificates: dict[str, dict[str, str]]) -> None:
    """Where gloo has no encryption, a job that asks for it does not start without."""
    env = certificates["job"] | {TRANSPORT: "TCP_TLS"}
    for rank in job.run("starts", size=2, only=[env, env]):
        assert rank.said["error"] == "EngineError"
        assert "GLOO_DEVICE_TRANSPORT=TCP_TLS asks gloo to encrypt the data of tensors" in rank.said["text"]
        assert "was built without encryption" in rank.said["text"]
        assert rank.said["seconds"] < SOON
    check_ends(job.ranks)


# -- where processes listen, and what others can read ------------------------------------------------------------


def marked(mark: str) -> list[int]:
    """The processes that have a mark in their environment."""
    out = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            if f"MARK={mark}".encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                out.append(int(name))
    return out


def listening() -> dict[str, str]:
    """By the number of its file, the address of every socket of this host that listens, as the system writes it."""
    out = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                out[words[9]] = words[1].partition(":")[0]
    return out


def files_of(process: int) -> set[str]:
    out = set()
    with suppress(OSError):
        for number in os.listdir(f"/proc/{process}/fd"):
            with suppress(OSError):
                out |= set(re.findall(r"^socket:\[(\d+)\]$", os.readlink(f"/proc/{process}/fd/{number}")))
    return out


PROGRAM = """
import os, time
import numpy as np, shardwise as sw
engine = sw.init()
x = sw.shard(np.arange(8.0), sw.DeviceMesh((2,), ("x",)), sw.P("x"))
print(f"{engine} {x.gather().numpy().sum()}\\n", end="", flush=True)
open(f"{os.environ['MARK']}/ready-{engine.wire.rank}", "w").close()
end = time.monotonic() + 60
while not os.path.exists(os.environ["MARK"] + "/end") and time.monotonic() < end:
    time.sleep(0.02)
"""


@contextmanager
def launched(folder: Path, *command: str, **env: str) -> Iterator["subprocess.Popen[str]"]:
    script = folder / "script.py"
    script.write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, *command, str(script)],
        env=environment(MARK=str(folder), **env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
        (folder / "end").touch()
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert out.count(" 28.0") == 2
    finally:
        process.kill()
        process.communicate()


def look_until_ready(folder: Path) -> Iterator[tuple[dict[str, str], int]]:
    """Every process of a job, and where sockets listen then, again and again until all have started, and once more."""
    end, is_ready = monotonic() + 60, False
    while not is_ready and monotonic() < end:
        is_ready = all((folder / f"ready-{rank}").exists() for rank in range(2))
        addresses = listening()
        for pid in marked(str(folder)):
            yield addresses, pid
        sleep(0.02)
    assert is_ready


LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


def test_under_run_all_listen_on_loopback_and_the_secret_is_in_no_argument(tmp_path: Path) -> None:
    """Looked at again and again from the start of the launcher to the end of the start."""
    seen, secrets, lines = dict[str, set[int]](), set[bytes](), set[bytes]()
    last = dict[int, set[str]]()
    with launched(tmp_path, "-c", "from shardwise.cli import main; main()", "run", "-n", "2"):
        for addresses, pid in look_until_ready(tmp_path):
            last[pid] = files_of(pid) & addresses.keys()
            for number in last[pid]:
                seen.setdefault(addresses[number], set()).add(pid)
            with suppress(OSError):
                lines.add(Path(f"/proc/{pid}/cmdline").read_bytes())
                secrets |= set(re.findall(rb"SHARDWISE_SECRET=(\w+)", Path(f"/proc/{pid}/environ").read_bytes()))
    assert len(set().union(*seen.values())) == 2, seen  # the ranks
    assert sorted(map(len, last.values()))[-2:] == [1, 1], last  # when all have met, gloo alone
    assert set(seen) <= LOOPBACK, seen
    (secret,) = secrets
    assert len(secret) == 64
    assert len(lines) >= 3  # the launcher, its sentinel, and the ranks
    assert not any(secret in line for line in lines)


@pytest.mark.long
@pytest.mark.parametrize("own", ["", "a secret of twenty bytes"])
def test_torchrun_publishes_a_secret_to_all_who_reach_its_store(tmp_path: Path, own: str) -> None:
    """Unless the environment has one; processes listen where they are told all the same."""
    reserved = reserve_port()
    port = port_of(reserved)
    command = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"]
    with reserved, launched(tmp_path, *command, SHARDWISE_SECRET=own) as process:
        assert process.stdout is not None
        # A stranger reads the store, which nobody asks for anything.
        end, word = monotonic() + 60, b""
        while not word and monotonic() < end:
            with suppress(RuntimeError):
                store = TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
                word = store.get("shardwise/start/0/place")
        host, _, secret = json.loads(word)
        assert host == "127.0.0.1"
        assert len(secret) == (0 if own else 64)
        where = dict[int, set[str]]()
        for addresses, pid in look_until_ready(tmp_path):
            where.setdefault(pid, set()).update(addresses[number] for number in files_of(pid) & addresses.keys())
    agent, ranks = where.pop(process.pid), [some for some in where.values() if some]
    assert len(ranks) == 2
    assert set().union(*ranks) <= LOOPBACK
    assert agent - LOOPBACK  # the store
