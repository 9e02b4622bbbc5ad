"""Which tests run one after the other in one worker of pytest-xdist: those that need processes of their own.

Several workers would each start such processes, and together they would have too little of the machine: who is late is
found out by the clock. pytest-xdist has marks for this, which pytest 9.2 makes it overlook without a word.
"""

from typing import Any

from xdist.scheduler import LoadScopeScheduling

GROUPS = {
    "tests/commands/test_calibrate.py": "processes",
    "tests/engine/test_calibration.py": "processes",
    "tests/engines/": "processes",
    "tests/every/test_processes.py": "processes",
    "tests/faults/": "processes",
    "tests/soak/": "processes",
    "tests/benchmarks/test_areas.py": "benchmarks",
}


def group_of(test: str) -> str:
    """The group of a test by its name, which begins with its path; the test alone, if it has none."""
    return next((group for start, group in GROUPS.items() if test.startswith(start)), test)


class GroupScheduling(LoadScopeScheduling):
    """Gives each test to the next worker that is free, and all of a group to one."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def make_scheduler(config: Any, log: Any) -> GroupScheduling:
    return GroupScheduling(config, log)
