"""Tests that need processes run in one worker; that they do is checked by the fixture `only_worker`, in every run."""

import re
from pathlib import Path

import pytest

from tests.conftest import claim
from tests.scheduling import GROUPS, group_of

ROOT = Path(__file__).parent.parent
# What gives a test processes: pools, and whatever makes ranks or launchers.
NEEDS = re.compile(
    r"^from tests\.(engines\.pool import .*\bPool\b|faults\.job import .*\b(Job|Zygote)\b"
    r"|(faults\.started|soak\.zygote) import)",
    re.M,
)


def test_all_that_need_processes_are_in_their_group() -> None:
    paths = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py")}
    some = {path for path, text in paths.items() if NEEDS.search(text)}
    assert len(some) > 15
    assert {path for path in some if group_of(f"{path}::test_it[1]") != "processes"} == set()
    assert all(any(path.startswith(start) for path in paths) for start in GROUPS)


def test_others_are_given_to_whoever_is_free() -> None:
    for test in ("tests/plan/test_plan.py::test_it", "src/shardwise/caches.py::shardwise.caches.cache"):
        assert group_of(test) == test


def test_a_second_worker_that_would_start_processes_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "worker"
    for _ in range(2):
        claim(place, "gw0")
    with pytest.raises(AssertionError, match="tests that need processes run in gw0 and in gw1"):
        claim(place, "gw1")
