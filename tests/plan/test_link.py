"""A link: three numbers, of which the last is nothing unless it is given."""

import pytest

from shardwise import ArgumentError, Link, PlanError


def test_the_overhead_is_nothing_unless_given() -> None:
    assert Link(1e-6, 1e9) == Link(1e-6, 1e9, 0.0)
    assert repr(Link(1e-6, 1e9)) == "Link(latency=1e-06, bandwidth=1000000000.0)"
    assert eval(repr(Link(1e-6, 1e9, 2e-6))) == Link(1e-6, 1e9, overhead=2e-6)


@pytest.mark.parametrize("overhead", [True, "1", None])
def test_an_overhead_is_a_number(overhead: object) -> None:
    with pytest.raises(ArgumentError) as caught:
        Link(overhead=overhead)  # type: ignore[arg-type]
    assert str(caught.value) == f"the overhead of a Link is a number of seconds per message, got {overhead!r}."


@pytest.mark.parametrize("overhead", [-1, float("nan")])
def test_an_overhead_is_not_below_0(overhead: float) -> None:
    with pytest.raises(PlanError) as caught:
        Link(overhead=overhead)
    assert str(caught.value) == f"a Link needs an overhead of 0 or more, got {overhead}."
