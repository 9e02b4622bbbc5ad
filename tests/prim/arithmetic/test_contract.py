"""Contractions: every einsum of a few letters against NumPy, as a matrix product where it is one."""

from itertools import combinations, permutations, product
from operator import matmul

import ml_dtypes
import numpy as np
import pytest

from shardwise import Layout, ReduceOp, asarray, einsum, grad, shard
from shardwise.prim.arithmetic.contract import as_matmul, contract, contraction_rule
from tests.plan.cases import all_layouts, mesh_of
from tests.prim.cases import spread, values

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5}
MESH = mesh_of(2, 2)


def shape(term: str) -> tuple[int, ...]:
    return tuple(SIZES[c] for c in term)


def words(letters: str, most: int) -> list[str]:
    return ["".join(w) for n in range(most + 1) for some in combinations(letters, n) for w in permutations(some)]


@pytest.mark.parametrize("a", words("abc", 3), ids=str)
def test_two_operands_are_a_matrix_product_exactly_where_something_is_summed_over_both(a: str) -> None:
    for b in words("abcd", 2):
        known = dict.fromkeys(a + b)
        x, y = values(shape(a), "float64", 1), values(shape(b), "float64", 2)
        for out in ("".join(w) for n in range(len(known) + 1) for w in permutations(known, n)):
            fast = as_matmul((a, b), out)
            summed = [c for c in a if c in b and c not in out]
            alone = [c for c in known if c not in out and not (c in a and c in b)]
            assert (fast is not None) == bool(summed and not alone), (a, b, out)
            if fast is not None:
                got = fast(x, y)
                assert got.shape == shape(out)
                assert np.array_equal(got, np.einsum(f"{a},{b}->{out}", x, y)), (a, b, out)


def test_a_plain_product_of_matrices_is_what_the_library_has() -> None:
    assert as_matmul(("ab", "bc"), "ac") is matmul
    assert as_matmul(("dab", "dbc"), "dac") is matmul
    assert as_matmul(("ab", "cb"), "ac") is not matmul
    assert as_matmul(("ab", "bc"), "ca") is not matmul
    assert as_matmul(("aab", "bc"), "ac") is None
    assert as_matmul(("ab", "bcc"), "ac") is None


def test_a_product_comes_in_the_order_of_its_letters() -> None:
    x, y = values((40, 30), "float64"), values((30, 50), "float64")
    turned = as_matmul(("ab", "bc"), "ca")(x, y)
    assert np.array_equal(turned, (x @ y).T)
    assert turned.flags.c_contiguous  # made the other way round, not transposed


def test_the_rule_sums_what_the_result_lacks_once() -> None:
    rule = contraction_rule(("abc", "cbd"), "ad")
    assert rule.operands == (("a", "b", "c"), ("c", "b", "d"))
    assert rule.out == ("a", "d")
    assert rule.reduced == (("b", ReduceOp.SUM), ("c", ReduceOp.SUM))
    assert rule.linear == "each"
    assert rule.dense
    assert contraction_rule(("a", "b"), "ab").reduced == ()


FORMS = [
    (("ab", "bc"), "ac"),
    (("ab", "bc", "cd"), "da"),
    (("ab",), "b"),
    (("ab",), ""),
    (("ab", "ab"), ""),
    (("ab", "c"), "cb"),
    (("abc", "c"), "ba"),
    (("a", "b"), "ba"),
]


@pytest.mark.parametrize(("terms", "out"), FORMS, ids=str)
def test_over_every_layout_it_is_what_numpy_says(terms: tuple[str, ...], out: str) -> None:
    text = ",".join(terms) + "->" + out
    choices = [all_layouts(MESH, len(term), True) for term in terms]
    ways = list(product(*choices))
    for layouts in ways[:: max(1, len(ways) // 8)]:
        made = [
            spread(layout, shape(term), seed=i) for i, (layout, term) in enumerate(zip(layouts, terms, strict=True))
        ]
        got = contract(*(x for x, _ in made), terms=terms, out=out)
        assert np.array_equal(got.numpy(), np.einsum(text, *(value for _, value in made)))


@pytest.mark.parametrize(("terms", "out"), FORMS, ids=str)
def test_derivatives_are_those_of_the_sum_of_products(terms: tuple[str, ...], out: str) -> None:
    arrays = [values(shape(term), "float64", i) for i, term in enumerate(terms)]
    weight = values(shape(out), "float64", 9)
    text = ",".join(terms) + "->" + out
    tensors = [shard(a, MESH, Layout(MESH, ["x", "y", None][: a.ndim])) for a in arrays]
    for i, term in enumerate(terms):

        def loss(x, i=i):
            given = [*tensors[:i], x, *tensors[i + 1 :]]
            return (einsum(text, *given) * asarray(weight)).sum()

        got = grad(loss)(tensors[i]).numpy()
        # The derivative by an element is the form with a one there.
        want = np.zeros(shape(term))
        for at in np.ndindex(*shape(term)):
            one = np.zeros(shape(term))
            one[at] = 1
            want[at] = (np.einsum(text, *arrays[:i], one, *arrays[i + 1 :]) * weight).sum()
        np.testing.assert_allclose(got, want, atol=1e-12)


@pytest.mark.parametrize("others", [("float32",), (ml_dtypes.bfloat16,), (ml_dtypes.bfloat16, "float32")])
@pytest.mark.parametrize("first", ["float32", ml_dtypes.bfloat16])
def test_dtypes_that_numpy_has_no_products_of(first, others) -> None:
    dtypes = [first, *others]
    terms = ("ab", "bc", "cd")[: len(dtypes)]
    arrays = [values(shape(t), d, i) for i, (t, d) in enumerate(zip(terms, dtypes, strict=True))]
    out = terms[0][0] + terms[-1][-1]
    wide = [a.astype("float64") for a in arrays]
    got = contract(*map(asarray, arrays), terms=terms, out=out)
    assert got.dtype == np.result_type(*arrays)
    assert np.array_equal(got.numpy().astype("float64"), np.einsum(",".join(terms) + "->" + out, *wide))


def test_messages_know_it_by_its_letters() -> None:
    from shardwise import LayoutError, NoReshard, P, mode

    x, y = shard(np.ones((4, 4)), MESH, P("x")), shard(np.ones((4, 4)), MESH, P("x"))
    with mode(NoReshard()), pytest.raises(LayoutError, match=r"einsum\('ab,bc->ac'\)"):
        contract(x, y, terms=("ab", "bc"), out="ac")


def test_dims_of_no_elements_sum_to_zero() -> None:
    got = contract(asarray(np.ones((2, 0))), asarray(np.ones((0, 3))), terms=("ab", "bc"), out="ac")
    assert np.array_equal(got.numpy(), np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("terms", "out", "shapes", "count"),
    [
        (("ij", "jk"), "ik", ((2, 3), (3, 5)), 3),
        (("bij", "bij"), "b", ((2, 3, 5), (2, 3, 5)), 15),
        (("i",), "", ((7,),), 7),
    ],
)
def test_room_is_made_for_as_many_products_as_are_summed(terms, out, shapes, count, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "shardwise.prim.arithmetic.contract.in_room",
        lambda arrays, n: seen.append(n) or (list(arrays), arrays[0].dtype),
    )
    contract(*(asarray(np.ones(shape, "float16")) for shape in shapes), terms=terms, out=out)
    assert set(seen) - {1} == {count}  # kernels are also asked with single elements
