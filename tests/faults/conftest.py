"""The process that makes ranks, started once; every test gets a job, which may leave nothing behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.job import Job, Zygote

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # All in one worker of pytest-xdist: one process that makes ranks, and one job at a time.
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("faults"))


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
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
