"""The process that makes ranks, started once; every test gets a job or launches, which may leave nothing behind."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.job import Job, Zygote, leaked, segments
from tests.faults.started import Started, Terminal


@pytest.fixture(scope="session")
def zygote(only_worker: None) -> Iterator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.close()


@pytest.fixture
def job(zygote: Zygote, tmp_path: Path) -> Iterator[Job]:
    job = Job(zygote, tmp_path)
    try:
        yield job
    except BaseException:
        job.close()
        raise
    assert job.close() == []


@pytest.fixture
def started(only_worker: None, tmp_path: Path) -> Iterator[Callable[..., Started]]:
    made: list[Started] = []
    before = segments()

    def start(script: str, *args: str, options: dict[str, Any] | None = None, **env: str) -> Started:
        made.append(Started(tmp_path, script, args, env, options or {}))
        return made[-1]

    yield start
    for job in made:
        left = job.living()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        job.process.wait(10)
        for pipe in (job.process.stdout, job.process.stderr):
            if pipe is not None:
                pipe.close()
        assert left == []
    assert leaked(before, min((job.process.pid for job in made), default=0)) == []


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def open_terminal(is_read: bool = True) -> Terminal:
        made.append(Terminal(is_read))
        return made[-1]

    yield open_terminal
    for each in made:
        each.close()
