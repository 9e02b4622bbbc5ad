"""What all tests of this folder have in common: they share pools of processes."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # All in one worker of pytest-xdist, so that the processes are started once.
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("processes"))
