"""Ways: how the loops of an op are spread, and that the cheapest is the cheapest of all."""

from itertools import product

import numpy as np
import pytest

from shardwise.ir.passes.candidates import MOST, End, find_cheapest, iterate_candidates
from shardwise.ir.passes.rules import OpRule
from shardwise.layout.cut import Cut
from shardwise.layout.layout import Layout
from shardwise.layout.placement import ReduceOp
from shardwise.plan.plan import plan_reshard
from tests.ir.passes.devices import mesh_named

MESH = mesh_named(2, 3)
X, Y = "axis0", "axis1"
F32, BOOL = np.dtype("float32"), np.dtype("bool")
ADD = OpRule((("a", "b"), ("a", "b")), (("a", "b"),))
MATMUL = OpRule((("m", "k"), ("k", "n"), ("m", "n")), (("m", "n"),), reduced=("k",), combine=(ReduceOp.SUM,), inits=2)


def end(*dims, hard: bool = False, shape=(6, 6), dtype: np.dtype = F32) -> End:
    return End(shape, dtype, Layout(MESH, list(dims)) if dims else None, hard)


def cost(candidate, operands, results) -> float:
    total = 0.0
    for given, layout in zip(operands, candidate.operands, strict=True):
        if given is not None and given.layout is not None and layout is not None:
            total += plan_reshard(given.layout, layout, given.shape, given.dtype).received.total
    for wanted, layout in zip(results, candidate.results, strict=True):
        to = wanted.layout or layout.resolved()
        total += plan_reshard(layout, to, wanted.shape, wanted.dtype).received.total
    return total


CHOICES = [[None, None], [X, None], [None, X], [Y, X], [(X, Y), None], None]


def ends(choice) -> End:
    return end() if choice is None else end(*choice)


@pytest.mark.parametrize("rule", [ADD, MATMUL], ids=["sum", "product"])
def test_no_other_way_sends_less(rule: OpRule) -> None:
    for a, b, out in list(product(CHOICES, repeat=3))[::11]:
        operands = (ends(a), ends(b), *([end()] if rule is MATMUL else []))
        results = (ends(out),)
        every = list(iterate_candidates(rule, operands, results, MESH))
        best = find_cheapest(rule, operands, results, MESH)
        assert best in every
        assert cost(best, operands, results) == min(cost(candidate, operands, results) for candidate in every)


def test_each_factor_is_cut_as_somebody_has_it_or_whole() -> None:
    found = list(iterate_candidates(ADD, [end(X, None), end(None, Y)], [end()], MESH))
    assert [str(candidate.results[0]) for candidate in found] == [f"[{a}|{b}]" for a, b in product((X, "-"), (Y, "-"))]
    for candidate in found:
        assert set(candidate.operands) == {candidate.results[0]}


def test_a_loop_that_is_reduced_leaves_something_pending() -> None:
    found = list(iterate_candidates(MATMUL, [end(None, Y), end(Y, None), end()], [end()], MESH))
    assert [str(candidate.results[0]) for candidate in found] == [f"[-|-] sum({Y})", "[-|-]"]
    assert [str(layout) for layout in found[0].operands] == [f"[-|{Y}]", f"[{Y}|-]", "[-|-]"]


def test_a_reduction_that_a_dtype_does_not_have_is_no_way() -> None:
    given = [end(None, Y, dtype=BOOL), end(Y, None, dtype=BOOL), end(dtype=BOOL)]
    found = list(iterate_candidates(MATMUL, given, [end(dtype=BOOL)], MESH))
    assert [str(candidate.results[0]) for candidate in found] == ["[-|-]"]


def test_no_axis_is_used_twice() -> None:
    found = list(iterate_candidates(ADD, [end(X, None), end(None, X)], [end()], MESH))
    assert [str(candidate.results[0]) for candidate in found] == [f"[{X}|-]", f"[-|{X}]", "[-|-]"]


def test_what_is_said_firmly_is_moved_last() -> None:
    firm = find_cheapest(ADD, (end(X, None, hard=True), end(Y, None)), (end(),), MESH)
    assert str(firm.results[0]) == f"[{X}|-]"
    other = find_cheapest(ADD, (end(X, None), end(Y, None, hard=True)), (end(),), MESH)
    assert str(other.results[0]) == f"[{Y}|-]"


def test_whole_factors_and_even_ones() -> None:
    whole = OpRule(ADD.operands, ADD.results, whole=frozenset({"a"}))
    assert [str(w.results[0]) for w in iterate_candidates(whole, [end(X, Y), end()], [end()], MESH)] == [
        f"[-|{Y}]",
        "[-|-]",
    ]
    even = OpRule((("a",),), (("a",),), even=frozenset({"a"}))
    for size, want in ((6, [f"[{Y}]", "[-]"]), (7, ["[-]"])):
        given = end(Y, shape=(size,))
        assert [str(w.results[0]) for w in iterate_candidates(even, [given], [end(shape=(size,))], MESH)] == want
    offsets = End((6,), F32, Layout(MESH, [Cut(Y, offsets=(0, 1, 2, 6))]))
    assert [str(w.results[0]) for w in iterate_candidates(even, [offsets], [end(shape=(6,))], MESH)] == ["[-]"]


def test_reduced_loops_have_no_halos() -> None:
    wide = End((6, 6), F32, Layout(MESH, [None, Cut(Y, halo=(1, 1), edge="pad")]))
    first = next(iterate_candidates(MATMUL, [wide, end(), end()], [end()], MESH))
    assert first.operands[0] is Layout(MESH, [None, Y])
    free = End((6, 6), F32, Layout(MESH, [Cut(Y, halo=(1, 1), edge="pad"), None]))
    kept = next(iterate_candidates(MATMUL, [free, end(), end()], [end()], MESH))
    assert kept.results[0].has_halo


def test_not_more_ways_than_most_are_looked_at() -> None:
    names = tuple(f"f{k}" for k in range(6))
    mesh = mesh_named(*[2] * 6)
    rule = OpRule((names,) * 3, (names,))
    layouts = [Layout(mesh, [f"axis{(k + j) % 6}" for k in range(6)]) for j in range(3)]
    given = [End((2,) * 6, F32, layout) for layout in layouts]
    found = list(iterate_candidates(rule, given, [End((2,) * 6, F32)], mesh))
    assert len(found) <= MOST
    assert not found[-1].results[0].sharded_axes  # nothing spread is always among them


def test_who_is_no_tensor_or_on_another_mesh_has_no_say() -> None:
    rule = OpRule((None, ("a",)), (("a",),))
    other = Layout(mesh_named(3), [X])
    found = list(iterate_candidates(rule, [None, End((6,), F32, other)], [end(shape=(6,))], MESH))
    assert [(candidate.operands[0], str(candidate.operands[1])) for candidate in found] == [(None, "[-]")]
