"""Every communication function, op and derivative in processes, beside the local engine."""

import pytest

from tests.engines.cases import check
from tests.engines.pool import Pool
from tests.engines.programs import EXACT, NEAR, run_exact, run_near, run_repeated


@pytest.mark.parametrize("name", EXACT)
def test_what_moves_values_gives_the_same_bits(pool: Pool, name: str) -> None:
    check(pool, run_exact, name, pool.size)


@pytest.mark.parametrize("name", NEAR)
def test_what_computes_gives_the_same_values(pool: Pool, name: str) -> None:
    check(pool, run_near, name, pool.size, exact=False)


@pytest.mark.parametrize("name", [*EXACT, *NEAR])
def test_a_device_in_several_slots_gives_the_same_or_the_same_refusal(four: Pool, name: str) -> None:
    flips = name in ("indexing", "joining")  # in processes, a dim that is flipped is gathered on such meshes
    check(four, run_repeated, name, 4, exact=name in EXACT, sent=not flips)
