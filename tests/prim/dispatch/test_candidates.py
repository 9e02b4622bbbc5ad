"""Layout inference: every way that is offered computes the right value, and none that could is left out."""

from itertools import product

import numpy as np
import pytest

from shardwise import Cut, DeviceMesh, Layout, ReduceOp
from shardwise.layout.axis import overlap
from shardwise.prim.dispatch.candidates import MOST, Candidate, find_candidates
from shardwise.prim.rule import Linear, Rule
from tests.plan.cases import all_layouts, mesh_of
from tests.prim.cases import spread

MESH = mesh_of(2, 3)
SUM = ReduceOp.SUM
MATMUL = Rule((("m", "k"), ("k", "n")), ("m", "n"), (("k", SUM),), linear="each", dense=True)


def found(rule: Rule, *layouts: Layout, shapes=((6, 6), (6, 6))) -> list[tuple[list[str], str, int]]:
    ways = find_candidates(rule, layouts[0].mesh, layouts, shapes)
    return [([str(layout) for layout in way.operands], str(way.out), way.work) for way in ways]


def test_the_ways_of_a_product_of_matrices_in_order() -> None:
    x, y = Layout(MESH, ["x", None]), Layout(MESH, [None, "y"])
    assert found(MATMUL, x, y) == [
        (["[x|-]", "[-|y]"], "[x|y]", 3 * 6 * 2),
        (["[x|-]", "[-|-]"], "[x|-]", 3 * 6 * 6),
        (["[-|-]", "[-|y]"], "[-|y]", 6 * 6 * 2),
        (["[-|-]", "[-|-]"], "[-|-]", 6 * 6 * 6),
    ]


def test_a_factor_that_is_summed_leaves_a_pending_sum() -> None:
    x, y = Layout(MESH, [None, "y"]), Layout(MESH, ["y", None])
    assert found(MATMUL, x, y, shapes=((5, 7), (7, 5))) == [
        (["[-|y]", "[y|-]"], "[-|-] sum(y)", 5 * 3 * 5),
        (["[-|-]", "[-|-]"], "[-|-]", 5 * 7 * 5),
    ]


def test_an_axis_serves_one_factor_only() -> None:
    for names in ("x", ("x", "y"), "y:(1)3"):
        x, y = Layout(MESH, [names, None]), Layout(MESH, [None, names])
        outs = [out for _, out, _ in found(MATMUL, x, y)]
        assert len(outs) == 3
    mesh = mesh_of(4)
    left, right = Layout(mesh, ["x:(1)2", None]), Layout(mesh, [None, "x"])
    assert [out for _, out, _ in found(MATMUL, left, right)] == ["[x:(1)2|-]", "[-|x]", "[-|-]"]
    halves = Layout(mesh, [None, "x:(2)2"])
    assert found(MATMUL, left, halves)[0][1] == "[x:(1)2|x:(2)2]"


@pytest.mark.parametrize(
    ("linear", "pendings", "want"),
    [
        ("joint", ("x", "x"), [("x", "x", "x"), ("", "", "")]),
        ("joint", ("x", "y"), [("", "", "")]),
        ("joint", ("x", ""), [("", "", "")]),
        ("each", ("x", ""), [("x", "", "x"), ("", "", "")]),
        ("each", ("", "x"), [("", "x", "x"), ("", "", "")]),
        ("each", ("x", "y"), [("x", "", "x"), ("", "y", "y"), ("", "", "")]),
        ("each", ("x", "x"), [("x", "", "x"), ("", "x", "x"), ("", "", "")]),
        ("first", ("x", ""), [("x", "", "x"), ("", "", "")]),
        ("first", ("", "x"), [("", "", "")]),
        ("first", ("x", "y"), [("x", "", "x"), ("", "", "")]),
        (None, ("x", "x"), [("", "", "")]),
    ],
)
@pytest.mark.parametrize("op", ["sum", "avg", "max", "prod"])
def test_pending_sums_stay_where_the_op_is_linear(linear: Linear, pendings, want, op: str) -> None:
    rule = Rule((("a",), ("a",)), ("a",), linear=linear)
    layouts = [Layout(MESH, [None], list(names), op) for names in pendings]
    ways = list(find_candidates(rule, MESH, layouts, ((6,), (6,))))
    got = [tuple("".join(map(str, layout.partial)) for layout in (*way.operands, way.out)) for way in ways]
    assert got == (want if op in ("sum", "avg") else [("", "", "")])
    for way in ways:
        assert all(layout.reduce_op is ReduceOp.of(op) for layout in (*way.operands, way.out) if layout.partial)


def test_a_pending_max_passes_through_what_is_monotone() -> None:
    for op, count in product(("max", "min", "sum"), (1, 2)):
        rule = Rule((("a",),) * count, ("a",), monotone=True)
        layouts = [Layout(MESH, [None], ["x"], op)] * count
        ways = list(find_candidates(rule, MESH, layouts, ((6,),) * count))
        kept = [str(way.out) for way in ways]
        assert kept == ([f"[-] {op}(x)", "[-]"] if op != "sum" and count == 1 else ["[-]"])


def test_two_reductions_are_not_pending_at_once() -> None:
    total = Rule((("a", "b"),), ("b",), (("a", SUM),), linear="joint")
    pending = Layout(MESH, ["x", None], ["y"], "avg")
    assert found(total, pending, shapes=((6, 6),)) == [
        (["[x|-]"], "[-] sum(x)", 0),
        (["[-|-] avg(y)"], "[-] avg(y)", 0),
        (["[-|-]"], "[-]", 0),
    ]
    first = found(total, Layout(MESH, ["x", None], ["y"]), shapes=((6, 6),))[0]
    assert first == (["[x|-] sum(y)"], "[-] sum(x, y)", 0)
    both = Rule((("a", "b"),), (), (("a", SUM), ("b", ReduceOp.MAX)))
    outs = [out for _, out, _ in found(both, Layout(MESH, ["x", "y"]), shapes=((6, 6),))]
    assert outs == ["[] sum(x)", "[] max(y)", "[]"]


def test_operands_with_different_reductions_are_resolved() -> None:
    rule = Rule((("a",), ("a",)), ("a",), linear="each")
    layouts = [Layout(MESH, [None], ["x"], "sum"), Layout(MESH, [None], ["y"], "avg")]
    assert [str(way.out) for way in find_candidates(rule, MESH, layouts, ((6,), (6,)))] == ["[-]"]


def test_an_axis_that_is_pending_splits_no_factor() -> None:
    rule = Rule((("a",), ("a",)), ("a",), linear="each")
    layouts = [Layout(MESH, [None], ["x"]), Layout(MESH, ["x"])]
    ways = find_candidates(rule, MESH, layouts, ((6,), (6,)))
    got = [([str(layout) for layout in way.operands], str(way.out)) for way in ways]
    assert got == [
        (["[x]", "[x]"], "[x]"),
        (["[-] sum(x)", "[-]"], "[-] sum(x)"),
        (["[-]", "[-]"], "[-]"),
    ]


def test_whole_factors_stay_whole_and_offered_cuts_are_offered() -> None:
    split = Layout(MESH, ["x", "y"])
    rule = Rule((("a", "b"),), ("a", "b"), whole=frozenset({"b"}))
    assert [out for _, out, _ in found(rule, split, shapes=((6, 6),))] == ["[x|-]", "[-|-]"]
    offer = Rule((("a",),), ("a", "c"), offered=(("c", Cut(MESH.axis("y")), 6), ("c", Cut(), 6)))
    outs = [out for _, out, _ in found(offer, Layout(MESH, ["x"]), shapes=((6,),))]
    assert outs == ["[x|y]", "[x|-]", "[-|y]", "[-|-]"]


def test_a_cut_that_two_operands_have_is_offered_once_and_halos_never() -> None:
    rule = Rule((("a",), ("a",)), ("a",))
    same = [Layout(MESH, [Cut("x", halo=1)]), Layout(MESH, ["x"])]
    assert [str(way.out) for way in find_candidates(rule, MESH, same, ((6,), (6,)))] == ["[x]", "[-]"]
    other = [Layout(MESH, [Cut("x", offsets=(0, 1, 6))]), Layout(MESH, ["x"])]
    offsets = [way.out.dims[0].offsets for way in find_candidates(rule, MESH, other, ((6,), (6,)))]
    assert offsets == [(0, 1, 6), None, None]


def test_a_dim_that_broadcasts_is_whole() -> None:
    rule = Rule((("a", None), ("a", "b")), ("a", "b"))
    layouts = [Layout(MESH, ["x", "y"]), Layout(MESH, [None, "y"])]
    first = next(find_candidates(rule, MESH, layouts, ((6, 1), (6, 6))))
    assert [str(layout) for layout in first.operands] == ["[x|-]", "[x|y]"]


def test_only_what_is_dense_counts_work() -> None:
    layout = Layout(MESH, ["x"])
    assert Candidate((layout,), layout).work == 0
    assert next(find_candidates(Rule((("a",),), ("a",)), MESH, [layout], ((6,),))).work == 0


def test_not_more_ways_than_most_are_looked_at() -> None:
    mesh = DeviceMesh((2,) * 9, tuple("abcdefghi"))
    names = tuple(f"f{k}" for k in range(9))
    ways = list(find_candidates(Rule((names,), names), mesh, [Layout(mesh, list("abcdefghi"))], ((2,) * 9,)))
    assert MOST == len(ways) == 256
    few = list(find_candidates(Rule((names[:8],), names[:8]), mesh, [Layout(mesh, list("abcdefgh"))], ((2,) * 8,)))
    assert len(few) == 256
    assert str(few[-1].out) == "[-|-|-|-|-|-|-|-]"


@pytest.mark.parametrize("every", [41, pytest.param(1, marks=pytest.mark.long)])
def test_every_way_of_a_product_computes_it(every: int) -> None:
    """Each device multiplies what it holds; what is pending is summed: the product of the whole matrices."""
    layouts = all_layouts(MESH, 2, True)
    for left, right in list(product(layouts, layouts))[::every]:
        for way in find_candidates(MATMUL, MESH, [left, right], ((4, 3), (3, 5))):
            used = [axis for cut in way.out.dims for axis in cut.axes] + list(way.out.partial)
            assert not any(overlap(a, b) for i, a in enumerate(used) for b in used[:i])
            (a, va), (b, vb) = spread(way.operands[0], (4, 3)), spread(way.operands[1], (3, 5))
            want, total = va @ vb, np.zeros((4, 5))
            seen = set()
            for device in range(6):
                box = way.out.tiling((4, 5)).box(device)
                at = tuple(device // MESH.divisor(axis) % axis.size for axis in way.out.partial)
                if (box, at) in seen:
                    continue
                seen.add((box, at))
                total[tuple(slice(*span) for span in box)] += np.asarray(a.local(device)) @ np.asarray(b.local(device))
            assert np.array_equal(total, want)
