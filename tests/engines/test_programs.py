"""Every communication function, op and derivative in processes, beside the local engine."""

import pytest

from tests.engines.cases import check
from tests.engines.pool import Pool
from tests.engines.programs import EXACT, NEAR, run_exact, run_near


@pytest.mark.parametrize("name", EXACT)
def test_what_moves_values_gives_the_same_bits(pool: Pool, name: str) -> None:
    check(pool, run_exact, name, pool.size)


@pytest.mark.parametrize("name", NEAR)
def test_what_computes_gives_the_same_values(pool: Pool, name: str) -> None:
    check(pool, run_near, name, pool.size, exact=False)
