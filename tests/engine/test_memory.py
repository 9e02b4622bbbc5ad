"""Limits of memory are read where machines, containers and shells keep them, and the least counts."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from shardwise import ArgumentError
from shardwise.engine import memory
from shardwise.engine.memory import Share, memory_shares, parse_size

GIB = 1 << 30
HUGE = 9223372036854771712  # what version 1 of control groups says where there is no limit


def tree(root: Path, files: Mapping[str, object]) -> Path:
    """Write files below a root."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


@pytest.fixture(autouse=True)
def _no_limit_of_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_of_addresses", lambda root: ())


MEMINFO = {
    "proc/meminfo": "MemTotal:       8388608 kB\nMemFree: 10 kB\nMemAvailable:    4194304 kB\nHugePages_Total: 0"
}
MACHINE = Share(8 * GIB, 4 * GIB)

GROUPS: dict[str, tuple[dict[str, object], list[Share]]] = {
    "no group": ({}, []),
    "version 2, no limit": (
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max", "sys/fs/cgroup/memory.current": GIB},
        [],
    ),
    "version 2, in a container": (
        {
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/memory.max": 2 * GIB,
            "sys/fs/cgroup/memory.current": GIB,
            "sys/fs/cgroup/memory.stat": f"anon 5\ninactive_file {GIB // 2}",
        },
        [Share(2 * GIB, 3 * GIB // 2)],
    ),
    "version 2, a slice in a slice": (
        {
            "proc/self/cgroup": "0::/user.slice/job.scope",
            "sys/fs/cgroup/user.slice/memory.max": 3 * GIB,
            "sys/fs/cgroup/user.slice/memory.current": 2 * GIB,
            "sys/fs/cgroup/user.slice/job.scope/memory.max": 2 * GIB,
            "sys/fs/cgroup/user.slice/job.scope/memory.current": 3 * GIB,  # it is about to be reclaimed
        },
        [Share(2 * GIB, 0), Share(3 * GIB, GIB)],
    ),
    "version 1, in a container that sees the path of its host": (
        {
            "proc/self/cgroup": "11:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab\n1:name=systemd:/docker/ab",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": GIB,
            "sys/fs/cgroup/memory/memory.usage_in_bytes": GIB // 2,
            "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 7",
        },
        [Share(GIB, GIB // 2 + 7)],
    ),
    "both versions": (
        {
            "proc/self/cgroup": "4:memory:/job\n0::/job",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": GIB,
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": 0,
            "sys/fs/cgroup/memory/memory.limit_in_bytes": HUGE,
            "sys/fs/cgroup/memory/memory.usage_in_bytes": GIB,
        },
        [Share(GIB, GIB), Share(HUGE, HUGE - GIB)],
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_limits_of_control_groups_and_of_those_around_them(name: str, tmp_path: Path) -> None:
    files, want = GROUPS[name]
    assert memory_shares(tree(tmp_path, MEMINFO | files)) == [MACHINE, *want]


def test_a_system_that_tells_nothing_has_its_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (share,) = memory_shares(tmp_path)
    assert share.limit == share.left == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr(os, "sysconf", unknown)
    assert memory_shares(tmp_path) == []


def test_files_that_are_not_text_say_nothing(tmp_path: Path) -> None:
    tree(tmp_path, MEMINFO)
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/self/cgroup").write_bytes(b"\xff")
    assert memory_shares(tmp_path) == [MACHINE]


def test_this_machine_has_memory_and_some_of_it_is_left() -> None:
    share = memory_shares()[0]
    assert 1 << 24 < share.left <= share.limit < 1 << 50


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of addresses is one of Linux")
def test_a_limit_of_addresses_counts() -> None:
    code = "from shardwise.engine.memory import memory_shares; print(*memory_shares()[-1])"
    run = ["bash", "-c", f"ulimit -v {GIB // 256} && exec {sys.executable} -c '{code}'"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    limit, left = map(int, done.stdout.split())
    assert limit == 4 * GIB
    assert GIB < left < limit - (1 << 24)  # the interpreter takes some


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *[("0", 0), (" 12 ", 12), ("12B", 12), ("1KB", 1000), ("2 KiB", 2048), ("1.5MiB", 3 << 19), ("1e9", 10**9)],
        *[("3GB", 3 * 10**9), ("1GiB", GIB), ("2TB", 2 * 10**12), ("1TiB", 1 << 40)],
    ],
)
def test_sizes_are_written_with_units(text: str, size: int) -> None:
    assert parse_size(text, "limit") == size


@pytest.mark.parametrize("text", ["", "MiB", "1 mb", "-1", "1iB", "1KiBB", "nan", "inf", "1,5GB", "all"])
def test_other_texts_are_no_sizes(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"^size is a number of bytes such as 256MiB, 1GB or 0, got "):
        parse_size(text, "size")
