"""Solvers: what may be resharded for an op, and what is said about it."""

import numpy as np
import pytest

from shardwise import (
    ArgumentError,
    DeviceMesh,
    GreedyReshard,
    LayoutError,
    Link,
    Links,
    NoReshard,
    P,
    PartialsOnly,
    ReshardWarning,
    current_engine,
    einsum,
    matmul,
    mode,
    shard,
)
from shardwise.prim.solvers import current_solver

MESH = DeviceMesh((2, 4), ("dp", "tp"))


def tensors():
    return shard(np.ones((8, 16)), MESH, P("dp", "tp")), shard(np.ones((16, 8)), MESH, P("dp", "tp"))


def test_the_cheapest_way_is_taken_and_the_cost_of_resolving_counts():
    a, b = shard(np.ones((8, 16)), MESH, P("dp", "tp")), shard(np.ones((16, 8)), MESH, P("tp"))
    counters = current_engine().counters
    counters.reset()
    assert str(matmul(a, b).layout) == "[dp|-] sum(tp)"
    assert counters.total == 0


def test_no_reshard_refuses_and_names_the_fix():
    a, b = tensors()
    with mode(NoReshard()), pytest.raises(LayoutError) as error:
        matmul(a, b)
    text = str(error.value)
    assert text.startswith("NoReshard does not allow what this sends.")
    assert "matmul at" in text
    assert "test_solvers.py" in text
    assert "bytes in all" in text
    assert "fix: x" in text
    assert "= shard(x" in text
    with mode(NoReshard()):
        assert matmul(shard(np.ones((8, 4)), MESH, P("dp")), shard(np.ones((4, 8)), MESH, P(None, "tp"))).shape == (
            8,
            8,
        )


def test_partials_only_resolves_but_does_not_move():
    x = shard(np.arange(8.0), MESH, P("dp", unreduced=["tp"]))
    with mode(PartialsOnly()):
        assert np.array_equal((x * x).numpy(), np.arange(8.0) ** 2)
        with pytest.raises(LayoutError, match="PartialsOnly does not allow"):
            matmul(*tensors())


def test_on_reshard_warns_or_raises():
    a, b = tensors()
    for _ in range(2):  # also when the decision is known
        with mode(GreedyReshard(on_reshard="warn")), pytest.warns(ReshardWarning, match="operand"):
            matmul(a, b)
    with mode(GreedyReshard(on_reshard="raise")), pytest.raises(LayoutError, match="reshards its operands"):
        matmul(a, b)


def test_mode_is_a_decorator_and_is_undone():
    solver = NoReshard()

    @mode(solver)
    def inside():
        return current_solver()

    assert inside() is solver
    assert isinstance(current_solver(), GreedyReshard)
    assert current_solver() is not solver


def test_what_is_no_solver_says_so():
    with pytest.raises(ArgumentError, match="needs a solver"):
        mode("greedy")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="'silent', 'warn' or 'raise'"):
        GreedyReshard(on_reshard="loud")  # type: ignore[arg-type]


def test_a_pending_result_is_charged_for_the_half_of_its_reduction_that_is_sure_to_come():
    # Heads over tp: to gather the heads and the weight would take 3 (6144 + 128) bytes, an all-reduce takes 6 x 6144.
    heads, weight = shard(np.ones((192, 4, 1)), MESH, P(None, "tp")), shard(np.ones((4, 1, 4)), MESH, P("tp"))
    counters = current_engine().counters
    counters.reset()
    assert str(einsum("thk,hkd->td", heads, weight).layout) == "[-|-] sum(tp)"
    assert counters.total == 0


def test_data_parallelism_is_not_given_up_to_send_less():
    # The batch has fewer bytes than the gradient of the weight, but to gather it would do all the work twice.
    x, slope = (shard(np.ones((64, 128), "float32"), MESH, P("dp")) for _ in range(2))
    counters = current_engine().counters
    counters.reset()
    assert str(einsum("bi,bj->ij", x, slope).layout) == "[-|-] sum(dp)"
    assert counters.total == 0
    # Where there is next to no work, bytes decide.
    x, slope = (shard(np.ones((2, 128), "float32"), MESH, P("dp")) for _ in range(2))
    assert str(einsum("bi,bj->ij", x, slope).layout) == "[-|-]"
    assert counters.total == 2 * 8 * 128 * 4


@pytest.mark.parametrize("number", [2.0, 3])
def test_a_pending_sum_passes_through_divisions_but_not_as_the_divisor(number):
    x = shard(np.array([6.0, 12.0]), MESH, P(), partial_axes=["tp"])
    assert str((x / number).layout) == "[-] sum(tp)"
    assert np.allclose((x / number).numpy(), np.array([6.0, 12.0]) / number)
    y = shard(np.array([2.0, 4.0]), MESH, P())
    assert str((x / y).layout) == "[-] sum(tp)"
    assert np.allclose((x / y).numpy(), [3.0, 3.0])
    assert np.allclose((number / x).numpy(), number / np.array([6.0, 12.0]))
    assert np.allclose((y / x).numpy(), [1 / 3, 1 / 3])
    assert not (number / x).layout.partial
    assert not (y / x).layout.partial


def test_how_much_work_a_byte_is_worth_follows_from_the_machine():
    # To gather the batch sends 2 x 8 x 128 x 4 bytes; to keep it sharded, twice as much, but half the work is done.
    x, slope = (shard(np.ones((8, 128), "float32"), MESH, P("dp")) for _ in range(2))
    call = lambda: str(einsum("bi,bj->ij", x, slope).layout)  # noqa: E731
    with mode(GreedyReshard(links=Links(default=Link(0, 1e9), compute=1e15))):
        assert call() == "[-|-]"
    with mode(GreedyReshard(links=Links(default=Link(0, 1e9), compute=1e8))):
        assert call() == "[-|-] sum(dp)"
    assert Links().work_per_byte == 32


def test_links_of_axes_that_a_mesh_does_not_have_do_not_concern_it():
    with mode(GreedyReshard(links=Links({"elsewhere": Link()}))):
        assert (shard(np.ones(8), MESH, P("dp")) + shard(np.ones(8), MESH, P("tp"))).shape == (8,)
    with pytest.raises(ArgumentError, match="links are a Link"):
        GreedyReshard(links=3)  # type: ignore[arg-type]
