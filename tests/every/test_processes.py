"""One function, every way: between processes, beside the local engine."""

import pytest

from tests.engines.pool import Pool
from tests.every.cases import Case
from tests.every.hunt import assert_alike
from tests.every.rows import NAMES

pytestmark = pytest.mark.xdist_group("processes")


@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_the_same_between_processes(four: Pool, name: str) -> None:
    assert_alike(Case(name, 0, most=6, processes=4), four)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_the_same_between_processes_in_many_more_cases(pool: Pool, name: str) -> None:
    for seed in range(2000, 2012):
        assert_alike(Case(name, seed, most=12, processes=pool.size), pool)
