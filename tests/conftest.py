"""What all tests share: how many cases hypothesis generates, pools of processes, and tools to compare with."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.engines.pool import Pool
from tests.system_tools import find_tool

settings.register_profile("default", max_examples=60, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("long", max_examples=500, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("SHARDWISE_TEST_PROFILE", "default"))

# Whatever runs the tests in the background may have these ignored, and what they start would ignore them too.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist all tests run here
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    from tests.scheduling import make_scheduler

    return make_scheduler(config, log)


def claim(place: Path, worker: str) -> None:
    """Write down who has processes, if nobody else does."""
    try:
        with place.open("x") as file:
            file.write(worker)
    except FileExistsError:
        other = place.read_text()
        assert other == worker, f"tests that need processes run in {other} and in {worker}: see tests/scheduling.py"


@pytest.fixture(scope="session")
def only_worker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of all workers of pytest-xdist only one may start processes."""
    worker = getattr(request.config, "workerinput", None)  # and not what the environment says, which others inherit
    if worker is not None:  # the folders of all workers are in one of this run
        claim(tmp_path_factory.getbasetemp().parent / "the worker with processes", worker["workerid"])


@pytest.fixture(scope="session")
def mlir_opt() -> str:
    """The path of `mlir-opt-19`; without it the test is skipped, or fails where CI=true."""
    return find_tool("mlir-opt-19", "mlir-19-tools")


@pytest.fixture(scope="session")
def pools(only_worker: None) -> Iterator[Callable[[int], Pool]]:
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
