"""Pools of processes, one of each size, for all tests of this folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engines.pool import Pool

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # All in one worker of pytest-xdist, so that the processes are started once.
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("processes"))


@pytest.fixture(scope="session")
def pools() -> Iterator[Callable[[int], Pool]]:
    """The pool of a size; only one has its processes running."""
    running: list[Pool] = []

    def get(size: int) -> Pool:
        if running and running[0].size != size:
            running.pop().close()
        if not running:
            running.append(Pool(size))
        return running[0]

    yield get
    for pool in running:
        pool.close()


@pytest.fixture(
    params=[pytest.param(n, marks=() if n == 4 else pytest.mark.long) for n in (4, 1, 2, 3, 8)],
    ids=lambda n: f"{n} processes",
    scope="session",
)
def pool(request: pytest.FixtureRequest, pools: Callable[[int], Pool]) -> Pool:
    """Four processes; in the long tests one, two, three and eight too."""
    return pools(request.param)


@pytest.fixture
def four(pools: Callable[[int], Pool]) -> Pool:
    """Four processes."""
    return pools(4)
