"""Solvers: what may be resharded for an op, and what is said about it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise import (
    ArgumentError,
    DeviceMesh,
    GreedyReshard,
    Layout,
    LayoutError,
    Link,
    Links,
    LocalEngine,
    NoReshard,
    P,
    PartialsOnly,
    ReshardWarning,
    Tensor,
    cross_entropy,
    current_engine,
    einsum,
    engine_context,
    from_shards,
    matmul,
    mode,
    multiply,
    shard,
    take_along_axis,
    vjp,
)
from shardwise.prim.solvers import current_solver
from tests.ops.cases import with_torch

MESH = DeviceMesh((2, 4), ("dp", "tp"))
MESH2 = DeviceMesh((2,), ("x",))


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


def test_the_bytes_that_a_refusal_names_are_those_that_are_sent():
    x, w = shard(np.ones((1024, 512)), MESH, P("dp", "tp")), shard(np.ones((512, 256)), MESH, P("dp", "tp"))
    with mode(NoReshard()), pytest.raises(LayoutError) as error:
        matmul(x, w)
    counters = current_engine().counters
    counters.reset()
    matmul(x, w)
    assert f"({counters.total} bytes in all)" in str(error.value)


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


# -- infinite factors --------------------------------------------------------------------------------------


def pending(*terms: Any) -> Tensor:
    mesh = DeviceMesh((len(terms),), ("x",))
    return from_shards(terms, mesh, Layout(mesh, [None], ["x"]), (len(terms[0]),))


FACTORS = [
    (lambda x, y: x * y, [np.inf, -np.inf, 2.0, np.nan]),
    (lambda x, y: y * x, [np.inf, 1.0, 0.0, -np.inf]),
    (lambda x, y: x / y, [0.0, -0.0, np.inf, 2.0]),
    (lambda x, y: einsum("i,i->i", x, y), [np.inf, -np.inf, 1.0, 0.0]),
    (lambda x, y: einsum("i,ji->ij", x, y[None]), [np.inf, -np.inf, 1.0, 0.0]),
]


@pytest.mark.parametrize("which", range(len(FACTORS)))
@pytest.mark.parametrize("torch", [False, True])
@given(st.data())
def test_a_pending_sum_times_infinity_is_the_sum_times_infinity(which, torch, data):
    call, factor = FACTORS[which]
    numbers = st.lists(st.sampled_from([0.0, 1.0, -0.5, 3.0]), min_size=4, max_size=4)
    terms = [np.array(data.draw(numbers)) for _ in range(data.draw(st.integers(2, 3)))]
    x = pending(*terms)
    y = shard(np.array(factor), x.mesh, P())
    with np.errstate(all="ignore"):
        want = call(np.sum(terms, axis=0), np.array(factor)) if which < 3 else None
        total = np.sum(terms, axis=0) * np.array(factor) if want is None else want
        got = call(with_torch(x), with_torch(y)) if torch else call(x, y)
    assert np.array_equal(got.numpy().reshape(-1), total, equal_nan=True), (got, total)
    assert not got.layout.partial


@pytest.mark.parametrize("number", [np.inf, -np.inf])
def test_a_pending_sum_times_an_infinite_number_is_resolved_first(number):
    x = pending([3.0, 0.0], [-1.0, 2.0])
    assert (x * float(number)).numpy().tolist() == [number, number]
    assert (float(number) * x).layout.partial == ()
    with np.errstate(all="ignore"):
        assert (x / 0).numpy().tolist() == [np.inf, np.inf]
    assert str((x * 2.0).layout) == "[-] sum(x)"
    assert str((x / 2.0).layout) == "[-] sum(x)"
    assert str((x * 2.0).layout) == str((x * np.array([1e307, 1.0])).layout) == "[-] sum(x)"


def test_integers_are_never_infinite_and_are_not_looked_at():
    x = from_shards([[1, 2], [3, 4]], MESH2, Layout(MESH2, [None], ["x"]), (2,))
    assert str((x * np.array([5, 6])).layout) == "[-] sum(x)"


def test_between_processes_an_infinite_factor_of_a_pending_sum_is_refused():
    class Elsewhere(LocalEngine):
        name = "elsewhere"

    with engine_context(Elsewhere()):
        x = pending([3.0, 0.0], [-1.0, 2.0])
        y = shard(np.array([np.inf, 1.0]), x.mesh, P())
        with pytest.raises(LayoutError) as error:
            multiply(x, y)
    assert "multiply: operand 0, float64[2] sum(x), is a sum that is pending" in str(error.value)
    assert "x0 = shard(x0, mesh, P(None))" in str(error.value)


def test_accelerators_are_not_waited_for():
    class OnAccelerator(np.ndarray):
        is_cuda = True

    x = pending([3.0, 0.0], [1.0, 2.0])
    y = shard(np.array([np.inf, 1.0]), x.mesh, P())
    there = Tensor([y.arrays[0].view(OnAccelerator)], y.layout, y.shape, y.dtype, y.engine)
    assert str(multiply(x, there).layout) == "[-] sum(x)"
    assert str(multiply(x, y).layout) == "[-]"


def test_what_does_not_count_may_be_infinite():
    logits = np.array([[-np.inf, 1.0, 2.0], [0.0, 1.0, 2.0]])
    x = shard(logits, MESH2, P(None, "x"))
    got = cross_entropy(x, np.array([-1, 2]), ignore_index=-1)
    assert np.isclose(got.item(), np.log(np.exp([0.0, 1.0, 2.0]).sum()) - 2.0)


def test_the_gradient_of_a_pick_is_infinite_only_where_it_was_picked():
    x = shard(np.arange(4.0), MESH2, P("x"))
    _, back = vjp(lambda x: take_along_axis(x, np.array([3, 0])), x)
    assert back(np.array([np.inf, 1.0]))[0].numpy().tolist() == [1.0, 0.0, 0.0, np.inf]
