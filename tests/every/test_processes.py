"""One function, every way: between processes, beside the local engine."""

import pytest

from tests.engines.pool import Pool
from tests.every.cases import Case
from tests.every.hunt import assert_alike
from tests.every.rows import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_the_same_between_processes(four: Pool, name: str) -> None:
    assert_alike(Case(name, 0, most=6, processes=4), four)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_the_same_between_processes_in_many_more_cases(pool: Pool, name: str) -> None:
    # All these tests run in one worker, one after the other: the other numbers of processes get a share of the cases.
    for seed in range(2000, 2008) if pool.size == 4 else range(3000 + pool.size, 3002 + pool.size):
        assert_alike(Case(name, seed, most=12, processes=pool.size), pool)
