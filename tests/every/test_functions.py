"""One function, every way: in the global and in the local view, on the local, the strict and the abstract engine, as
NumPy has it on the global values, with the bytes that were foretold."""

import pytest

from tests.every.cases import Case
from tests.every.hunt import assert_alike
from tests.every.rows import NAMES

SMALL = 8  # devices of a mesh in the short tests


@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_the_same_every_way(name: str) -> None:
    for seed in range(3):
        assert_alike(Case(name, seed, most=SMALL))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_the_same_in_many_more_cases(name: str) -> None:
    for seed in range(1000, 1120):
        assert_alike(Case(name, seed))
