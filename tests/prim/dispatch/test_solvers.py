"""Solvers: what may be resharded for an op, and what is said about it."""

import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from shardwise import (
    ArgumentError,
    Cut,
    DeviceMesh,
    GreedyReshard,
    Layout,
    LayoutError,
    Link,
    Links,
    NoReshard,
    P,
    PartialsOnly,
    ReshardWarning,
    Tensor,
    conv,
    cross_entropy,
    current_engine,
    einsum,
    from_shards,
    matmul,
    mode,
    multiply,
    plan_reshard,
    roll,
    shard,
    take_along_axis,
    vjp,
)
from shardwise.prim.arithmetic import elementwise as rows
from shardwise.prim.dispatch.candidates import Candidate
from shardwise.prim.dispatch.solvers import Question, as_spec, current_solver, is_quiet, permit
from tests.ops.cases import agrees, with_torch
from tests.prim.cases import same

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
def test_a_pending_sum_passes_through_division_by_a_number_but_not_as_the_divisor(number):
    x = shard(np.array([6.0, 12.0]), MESH, P(), partial_axes=["tp"])
    assert str((x / number).layout) == "[-] sum(tp)"
    assert np.allclose((x / number).numpy(), np.array([6.0, 12.0]) / number)
    y = shard(np.array([2.0, 4.0]), MESH, P())
    assert str((x / y).layout) == "[-]"  # the divisor may hold a zero
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


# -- factors and divisors --------------------------------------------------------------------------------------


def pending(*terms: Any, op: str = "sum") -> Tensor:
    mesh = DeviceMesh((len(terms),), ("x",))
    return from_shards(terms, mesh, Layout(mesh, [None], ["x"], op), (len(terms[0]),))


def terms_of(rng: np.random.Generator, dtype: Any = "float64") -> np.ndarray:
    return rng.choice([0.0, 1.0, -0.5, 3.0], (rng.integers(2, 4), 4)).astype(dtype)


DIVISORS = [[0.0, -0.0, np.inf, 2.0], [np.nan, -np.inf, -3.0, 0.0], [0, 1, -2, 3], [False, True, False, True]]


@pytest.mark.parametrize("divisor", DIVISORS, ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_a_pending_sum_is_resolved_before_a_tensor_divides_it(dtype, divisor):
    given, rng = np.array(divisor), np.random.default_rng(0)
    floats = given.dtype.kind == "f" and dtype != "int64"
    # Integers divided by 0 have no quotient that is whole.
    ops = [operator.truediv, operator.floordiv, operator.mod, operator.pow] if floats else [operator.truediv]
    for call, how in product(ops, ["sum", "avg"] if dtype != "int64" else ["sum"]):
        x = pending(*terms_of(rng, dtype), op=how)
        y = shard(given, x.mesh, [P(), P("x")][rng.integers(2)])
        with np.errstate(all="ignore"):
            got = agrees(call, call, x, y, torch=floats and dtype == given.dtype, exact=False)
        assert not got.layout.partial


PRODUCTS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (multiply, np.multiply),
    (lambda x, y: y * x, np.multiply),
    (lambda x, y: einsum("i,i->i", x, y), np.multiply),
    (lambda x, y: einsum("i,ji->ij", x, y[None])[:, 0], np.multiply),
    (lambda x, y: x[None] @ y, lambda x, y: (x * y).sum()[None]),
    (lambda x, y: conv(x[None, None], y[:1][None, None])[0, 0], lambda x, y: x * y[0]),
]


@pytest.mark.parametrize("which", range(len(PRODUCTS)))
@pytest.mark.parametrize("torch", [False, True])
def test_a_pending_product_is_right_or_nan_for_an_infinity(which, torch):
    ours, theirs = PRODUCTS[which]
    rng = np.random.default_rng(which)
    for _ in range(20):
        terms, factor = terms_of(rng), rng.permutation([np.inf, -np.inf, 2.0, 0.0])
        x, again = pending(*terms), pending(*terms)
        y = shard(factor, x.mesh, P())
        if torch:
            x, again, y = with_torch(x), with_torch(again), with_torch(y)
        with np.errstate(all="ignore"):
            want = theirs(np.sum(terms, axis=0), factor)
            got = ours(x, y)
            with mode(GreedyReshard(resolve_products=True)):
                resolved = ours(again, y)
            values = got.numpy()
        differs = ~((values == want) | (np.isnan(values) & np.isnan(want)))
        assert np.isnan(values[differs]).all()
        assert np.isinf(want[differs]).all()
        assert str(got.layout) == "[-] sum(x)"
        assert np.array_equal(resolved.numpy(), want, equal_nan=True)
        assert not resolved.layout.partial


NUMBERS = [2.0, -0.5, 0.0, np.inf, -np.inf, np.nan, 1e300, 1e-300, 3, 0, True, 2j, complex(np.inf, 0)]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "complex64"])
@pytest.mark.parametrize("number", NUMBERS, ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_that_are_finite_and_not_zero_keep_a_sum_pending(number, dtype):
    terms = np.array([[3.0, 0.0], [-1.0, 0.0]], dtype)
    total, x = terms.sum(axis=0), pending(*terms)
    with np.errstate(all="ignore"):
        cast = np.array(number).astype(np.result_type(total, number) if isinstance(number, complex) else dtype)
        times, over, want = (x * number, number * x), x / number, (number * total, total / number)
    assert all(bool(y.layout.partial) is bool(np.isfinite(cast)) for y in times)
    assert bool(over.layout.partial) is bool(np.isfinite(cast) and cast != 0)
    for got, expected in ((times[0], want[0]), (times[1], want[0]), (over, want[1])):
        assert got.dtype == expected.dtype
        assert np.allclose(got.numpy(), expected, equal_nan=True, rtol=1e-2 if dtype == "float16" else 1e-6)
    assert not (number / x).layout.partial


def test_sums_of_integers_that_wrap_around_do_so_before_they_are_made_wider():
    terms = np.array([[100, 7], [100, 8]], "int8")
    with np.errstate(over="ignore"):
        total = terms.sum(axis=0, dtype="int8")
    for call in (
        lambda x: x / 2,
        lambda x: x * 0.5,
        lambda x: x * np.array([2, 3], "int32"),
        lambda x: x / np.array([2, 3], "int8"),
        lambda x: x.sum(axis=0),
        lambda x: x.sum(axis=()),
        lambda x: x + 1.5,
        lambda x: x * 3,
        lambda x: -x,
        lambda x: x * np.array([2, 3], "int8"),
    ):
        assert same(np.asarray(call(pending(*terms)).numpy()), np.asarray(call(total))), call(pending(*terms))
    wide = pending(*np.array([[1, 2], [3, 4]], "int32"))
    narrow = from_shards(list(terms), wide.mesh, wide.layout, (2,))
    assert same((narrow + wide).numpy(), total + np.array([4, 6], "int32"))
    assert str((pending(*terms) * 3).layout) == "[-] sum(x)"
    assert str((wide * np.array([5, 6], "int32")).layout) == "[-] sum(x)"


def test_no_value_is_looked_at():
    class Unread(np.ndarray):
        def read(self, *given: Any, **how: Any) -> Any:
            raise AssertionError("a value was read")

    for name in ("__array_function__", "any", "all", "item", "__bool__"):
        setattr(Unread, name, Unread.read)

    x = pending([3.0, 0.0], [1.0, 2.0])
    for value in (np.inf, 0.0, 1.0):
        y = shard(np.array([value, 1.0]), x.mesh, P())
        there = Tensor([y.arrays[0].view(Unread)], y.layout, y.shape, y.dtype, y.engine)
        with np.errstate(all="ignore"):
            assert str(multiply(x, there).layout) == "[-] sum(x)"
            assert str((x / there).layout) == "[-]"


def test_resolve_products_is_yes_or_no():
    with pytest.raises(ArgumentError, match="resolve_products is True or False, got 1"):
        GreedyReshard(resolve_products=1)  # type: ignore[arg-type]


def test_what_does_not_count_may_be_infinite():
    logits = np.array([[-np.inf, 1.0, 2.0], [0.0, 1.0, 2.0]])
    x = shard(logits, MESH2, P(None, "x"))
    got = cross_entropy(x, np.array([-1, 2]), ignore_index=-1)
    assert np.isclose(got.item(), np.log(np.exp([0.0, 1.0, 2.0]).sum()) - 2.0)


def test_the_gradient_of_a_pick_is_infinite_only_where_it_was_picked():
    x = shard(np.arange(4.0), MESH2, P("x"))
    _, back = vjp(lambda x: take_along_axis(x, np.array([3, 0])), x)
    assert back(np.array([np.inf, 1.0]))[0].numpy().tolist() == [1.0, 0.0, 0.0, np.inf]


# -- what messages say -----------------------------------------------------------------------------------------


def words(call: Callable[[], Any]) -> str:
    """The first line of what a solver that raises says."""
    with mode(GreedyReshard(on_reshard="raise")), pytest.raises(LayoutError) as found:
        call()
    return str(found.value).splitlines()[0].partition(" at ")[0]


ROWS = np.arange(1, 5)
SIGNED = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


@pytest.mark.parametrize("sign", SIGNED)
def test_operators_are_called_by_their_signs(sign):
    mesh = DeviceMesh((2, 2), ("x", "y"))
    x, y = shard(np.tile(ROWS, (4, 1)), mesh, P("x")), shard(np.tile(ROWS, (4, 1)), mesh, P(None, "x"))
    if sign == "@":
        x, y = y, shard(np.tile(ROWS, (4, 1)), mesh, P("y", "x"))
    assert words(lambda: SIGNED[sign](x, y)) == f"x {sign} y"


def test_functions_methods_and_slices_are_called_what_they_are():
    x, y = shard(np.ones((4, 4)), MESH2, P("x")), shard(np.ones((4, 4)), MESH2, P(None, "x"))
    assert words(lambda: multiply(x, y)) == "multiply"
    assert words(lambda: x[2:]) == "x[...]"
    assert words(lambda: x.at[1:3].set(shard(np.ones((2, 4)), MESH2, P(None, "x")))) == "x.at[...].set"
    assert words(lambda: np.ones((4, 4)) + x * y) == "x * y"
    assert words(lambda: rows.add(x, y)) == "add"


@pytest.mark.parametrize(
    ("layout", "whole", "text"),
    [
        (Layout(MESH, ["dp", None]), (), "P('dp', None)"),
        (Layout(MESH, [("dp", "tp"), None]), (), "P(('dp', 'tp'), None)"),
        (Layout(MESH, ["dp", "tp"]), (0,), "P(None, 'tp')"),
        (Layout(MESH, ["dp", "tp"]), (0, 1), "P(None, None)"),
        (Layout(MESH, [Cut("dp", halo=1), "tp"]), (), "P(None, 'tp')"),
        (Layout(MESH, [Cut("dp", offsets=(0, 1, 4))]), (), "P(None)"),
        (Layout(MESH, ["dp"], ["tp"]), (), "P('dp', unreduced=['tp'])"),
        (Layout(MESH, [], ["dp", "tp"]), (), "P(unreduced=['dp', 'tp'])"),
        (Layout(MESH, ["dp"], ["tp"], "max"), (), "P('dp')"),
    ],
    ids=str,
)
def test_layouts_are_written_as_the_fix_that_is_offered(layout, whole, text):
    assert as_spec(layout, whole) == text


def test_a_message_says_which_operands_go_where_and_along_which_dims():
    x = shard(np.ones((4, 4)), MESH2, P("x"))
    with mode(NoReshard()), pytest.raises(LayoutError) as found:
        roll(x, (1, 1), axis=(0, 1))
    lines = str(found.value).splitlines()
    assert lines[0] == "NoReshard does not allow what this sends."
    assert " sends elements of its own (" in lines[1]
    assert lines[2:] == ["  operand 0: [x|-], along dims 0, 1", "    fix: x0 = shard(x0, mesh, P(None, None))"]
    with mode(NoReshard()), pytest.raises(LayoutError, match=r"\[x\|-\], along dim 0\n    fix: x0 = shard"):
        roll(x, 1, axis=0)


# -- what a way costs ------------------------------------------------------------------------------------------


def test_a_way_costs_its_bytes_half_of_what_is_owed_and_its_work():
    split, whole = Layout(MESH2, ["x"]), Layout(MESH2, [None])
    question = Question("an op", (split,), ((8,),), (np.dtype("float32"),), (8,))
    stay, bring = Candidate((split,), split), Candidate((whole,), whole)
    assert question.moves(stay) == []
    assert question.moves(bring) == [(0, split, whole)]
    assert (question.bytes(stay), question.bytes(bring)) == (0, 2 * 4 * 4)
    assert question.cost(stay) == (0, 0, 4.0)
    sent, _, touched = question.cost(bring)
    assert (sent, touched) == (2 * 4 * 4, 8.0)
    pending = Layout(MESH2, [None], ["x"])
    assert question.cost(Candidate((split,), pending))[0] == plan_reshard(pending, whole, (8,), "float32").estimate / 2
    assert question.cost(Candidate((split,), split, 64))[0] == 64 * 2 / 32
    flags = Question("an op", (split,), ((8,),), (np.dtype(bool),), (8,))
    owed = plan_reshard(pending, whole, (8,), "int64").estimate / 2
    assert flags.cost(Candidate((split,), pending))[0] == owed  # sums of bools are ints


def test_with_links_a_way_costs_time():
    split, whole = Layout(MESH2, ["x"]), Layout(MESH2, [None])
    links = Links(default=Link(1e-3, 1e6), compute=1e6)
    question = Question("an op", (split,), ((8,),), (np.dtype("float32"),), (8,), links=links)
    plan = plan_reshard(split, whole, (8,), "float32", links=links)
    time, sent, touched = question.cost(Candidate((whole,), whole, 500))
    assert np.isclose(time, plan.time + 500 / 1e6, rtol=0, atol=1e-12)
    assert (sent, touched) == (32, 8.0)
    pending = Layout(MESH2, [None], ["x"])
    owed = plan_reshard(pending, whole, (8,), "float32", links=links)
    assert np.isclose(question.cost(Candidate((split,), pending))[0], owed.time / 2, rtol=0, atol=1e-12)


def test_a_solver_is_silent_and_lets_sums_stay_pending_by_default():
    solver = GreedyReshard()
    assert (solver.on_reshard, solver.links, solver.resolve_products) == ("silent", None, False)
    assert GreedyReshard(links=Link()).links == Links.of(Link())  # type: ignore[arg-type]
    assert [is_quiet()] == [True]
    for other in (NoReshard(), GreedyReshard(on_reshard="warn"), GreedyReshard(on_reshard="raise")):
        with mode(other) as inside:
            assert inside is other
            assert is_quiet() is False
    with mode(GreedyReshard(resolve_products=True)):
        assert is_quiet() is True
    links = Links(default=Link(1e-3, 1e6))
    with mode(NoReshard(links=links, on_reshard="raise")):
        assert type(permit()) is GreedyReshard
        assert (permit().links, permit().on_reshard, permit().resolve_products) == (links, "silent", False)


def test_the_way_of_least_cost_is_taken_of_those_that_are_allowed():
    split, whole = Layout(MESH2, ["x"]), Layout(MESH2, [None])
    question = Question("an op", (split,), ((8,),), (np.dtype("float32"),), (8,))
    ways = [Candidate((whole,), whole), Candidate((split,), split)]
    for order in (ways, ways[::-1]):
        assert GreedyReshard().choose(question, iter(order)) is ways[1]

    class Whole(GreedyReshard):
        def allows(self, question, way):
            return way.out is whole

    assert Whole().choose(question, ways) is ways[0]
    with pytest.raises(LayoutError, match=r"^Whole does not allow what this sends\.\n  an op at .* \(0 bytes in all\)"):
        Whole().choose(question, ways[1:])
