"""The few things asked of NumPy and torch arrays, for every dtype."""

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shardwise import CPU, Accelerator, DeviceMesh, Layout, P, ReduceOp, from_shards, plan_reshard, shard
from shardwise.engine import arrays as arrays_module
from shardwise.engine.arrays import (
    accumulator,
    cast,
    copy_into,
    dtype_of,
    empty_like,
    identity,
    in_memory,
    is_low,
    is_torch,
    join_into,
    on_device,
    pieces,
    placed_along,
    readonly,
    reduce_into,
    room_for,
    runs_of,
    to_numpy,
    torch_view,
)
from shardwise.engine.arrays import torch_of as torch_of_array
from shardwise.errors import ArgumentError, BindingError, EngineError
from shardwise.layout.placement import kind_of, reductions_of
from tests.engine.cases import UFUNC, random_values

DTYPES = [
    *("float16", "float32", "float64", "bool", "complex64", "complex128"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    ml_dtypes.bfloat16,
]
TORCH = ["float16", "bfloat16", "float32", "float64", "bool", "int8", "int32", "int64", "uint8", "complex64"]


def torch_of(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions_are_those_of_numpy_one_after_the_other(dtype: str) -> None:
    for op in reductions_of(np.dtype(dtype)):
        for count in (1, 2, 3, 8):
            terms = [random_values((3, 4), dtype, seed) for seed in range(count)]
            out = np.empty((3, 4), dtype)
            reduce_into(out, terms, op)
            want: Any = terms[0]
            for term in terms[1:]:
                want = UFUNC.get(op, np.add)(want, term)
            if op is ReduceOp.AVG:  # of complex numbers each part, rounded once
                want = (want.view(want.real.dtype) / want.real.dtype.type(count)).view(want.dtype)
            assert out.tobytes() == want.astype(dtype).tobytes(), (op, count)


@pytest.mark.parametrize("name", TORCH)
def test_torch_reduces_as_numpy_does(name: str) -> None:
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    for op in reductions_of(dtype):
        terms = [random_values((3, 4), dtype, seed) for seed in range(4)]
        want, out = np.empty((3, 4), dtype), torch.empty(3, 4, dtype=getattr(torch, name))
        reduce_into(want, terms, op)
        reduce_into(out, [torch_of(term) for term in terms], op)
        assert dtype_of(out) == dtype
        assert np.array_equal(to_numpy(out), want), op


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_identity_changes_nothing(dtype: str) -> None:
    values = random_values((50,), dtype)
    for op in reductions_of(np.dtype(dtype)):
        if op is ReduceOp.AVG:
            continue
        neutral = np.full(50, identity(op, np.dtype(dtype)), dtype)
        for terms in ([values, neutral], [neutral, values]):
            out = np.empty(50, dtype)
            reduce_into(out, terms, op)
            assert out.tobytes() == values.tobytes(), op


SMALL = [getattr(ml_dtypes, n) for n in dir(ml_dtypes) if n.startswith(("bfloat", "float", "int", "uint"))]
EVERY = ["float16", "float32", "float64", "complex64", "complex128", "bool", "int8", "uint16", "int64", *SMALL]


def extremes(dtype: np.dtype) -> np.ndarray:
    """Both zeros, both infinities, NaN, the largest and the smallest, as far as a dtype has them."""
    numbers = [0.0, -0.0, 1.0] if dtype.kind in "fcV" else [0, 1]
    if dtype.kind in "fc":
        numbers += [np.inf, -np.inf, np.nan]
    out = [*numbers, *([complex(0.0, -0.0), complex(-0.0, 0.0), complex(-0.0, -0.0)] if dtype.kind == "c" else [])]
    values = np.array(out).astype(dtype)
    if kind_of(dtype) == "f":
        limits = ml_dtypes.finfo(dtype)
        return np.concatenate([values, np.array([limits.min, limits.max]).astype(dtype)])
    if dtype.kind not in "bc":
        limits = ml_dtypes.iinfo(dtype)
        return np.concatenate([values, np.array([int(limits.min), int(limits.max)]).astype(dtype)])
    return values


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: np.dtype(kind).name)
def test_the_identity_changes_no_bit_of_the_extremes(kind: Any) -> None:
    dtype = np.dtype(kind)
    values = extremes(dtype)
    for op in reductions_of(dtype):
        if op is ReduceOp.AVG or (op is ReduceOp.PROD and dtype.kind == "c"):  # (1 + 0j) * inf has a NaN in it
            continue
        neutral = np.full(values.shape, identity(op, dtype), dtype)
        for terms in ([values, neutral], [neutral, values], [neutral, values, neutral]):
            out = np.empty(values.shape, dtype)
            reduce_into(out, terms, op)
            known = out.astype("complex128") == out.astype("complex128")
            assert out[known].tobytes() == values[known].tobytes(), (op, out, values)


def test_a_sum_needs_a_zero() -> None:
    kind = np.dtype(ml_dtypes.float8_e8m0fnu)
    assert reductions_of(kind) == (ReduceOp.AVG, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PROD)
    text = (
        "reduction 'sum' is not defined for float8_e8m0fnu, which has no zero for a device that adds nothing.\n"
        "  reductions of float8_e8m0fnu: avg, min, max, prod"
    )
    mesh = DeviceMesh((2,), ("x",))
    for bound in (
        lambda: shard(np.ones(4, kind), mesh, P(unreduced=["x"])),
        lambda: Layout(mesh, [None], ["x"]).check_dtype(kind),
        lambda: from_shards([np.ones(4, kind)] * 2, mesh, P(unreduced=["x"]), (4,)),
        lambda: plan_reshard(P("x"), P(unreduced=["x"]), (4,), kind, mesh=mesh),
    ):
        with pytest.raises(BindingError) as caught:
            bound()
        assert str(caught.value) == text


def test_an_average_has_no_identity() -> None:
    with pytest.raises(ArgumentError, match="an average has no identity element"):
        identity(ReduceOp.AVG, np.dtype("float32"))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 2), st.booleans())
def test_joining_is_concatenating(lengths: list[int], dim: int, by_torch: bool) -> None:
    parts = [random_values((*(3,) * dim, n, *(3,) * (2 - dim)), "int32", n) for n in lengths]
    want = np.concatenate(parts, axis=dim)
    out = np.empty_like(want)
    if by_torch:
        join_into(torch.from_numpy(out), [torch.from_numpy(part) for part in parts], dim)
    else:
        join_into(out, parts, dim)
    assert np.array_equal(out, want)
    assert [view.shape for view in placed_along(out, parts, dim)] == [part.shape for part in parts]


@given(
    st.lists(st.integers(1, 9), min_size=0, max_size=3).map(tuple),
    st.integers(1, 300),
    st.sampled_from(["C", "F", "strided"]),
)
def test_pieces_cover_everything_once_and_are_small(shape: tuple[int, ...], most: int, order: str) -> None:
    whole = np.zeros(shape, "int32", order="F" if order == "F" else "C")
    other = np.zeros((*shape[:-1], 2 * shape[-1]), "int32")[..., ::2] if order == "strided" and shape else whole
    for piece, same in pieces([whole, other], most):
        assert piece.shape == same.shape
        assert piece.nbytes <= max(most, 4)
        piece += 1
        if other is not whole:
            same += 1
    assert (whole == 1).all()
    assert (other == 1).all()


def test_runs_are_views_and_only_of_rows_that_are_contiguous() -> None:
    array = np.arange(24, dtype="float32").reshape(2, 12)
    found = runs_of([array, array[:, 4:8]], 4)
    assert found is not None
    assert [(run.shape, run.itemsize) for run in found] == [((2, 3), 16), ((2, 1), 16)]
    assert np.shares_memory(found[0], array)
    assert runs_of([array, np.asfortranarray(array)], 4) is None
    for shape, runs in [((12,), (3,)), ((2, 12), (2, 3)), ((5, 2, 12), (5, 2, 3))]:
        some = np.zeros(shape, "int8")
        (seen,) = runs_of([some], 4) or [some]
        assert (seen.shape, seen.itemsize) == (runs, 4)
        assert runs_of([np.zeros((*shape[:-1], 24), "int8")[..., ::2]], 4) is None  # only the last dim must be dense
        assert runs_of([some[..., :0]], 4) is not None
    deep = np.zeros((3, 4, 8), "int8")[:, ::2]
    assert runs_of([deep], 4) is not None
    assert runs_of([deep.transpose(0, 2, 1)], 2) is None
    assert runs_of([torch.zeros(2, 12)], 4) is None


def test_read_only_views_cannot_be_written_and_torch_gets_a_copy() -> None:
    array = np.zeros(4)
    view = readonly(array)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    assert readonly(view) is view
    assert array.flags.writeable
    tensor = torch.zeros(4)
    readonly(tensor)[0] = 1
    assert not tensor.any()


def test_libraries_and_dtypes_are_told_apart() -> None:
    assert is_torch(torch.zeros(1))
    assert is_torch(torch.nn.Parameter(torch.zeros(1)))
    assert not is_torch(np.zeros(1))
    assert not is_torch([1.0])
    assert dtype_of(torch.zeros(1, dtype=torch.bfloat16)) == ml_dtypes.bfloat16
    assert dtype_of(np.zeros(1, "uint16")) == np.uint16


def test_torch_arrays_become_numpy_arrays_of_the_same_memory() -> None:
    tensor = torch.arange(4, dtype=torch.bfloat16)
    array = to_numpy(tensor)
    assert array.dtype == ml_dtypes.bfloat16
    assert array.tolist() == [0, 1, 2, 3]
    tensor[0] = 5
    assert array[0] == 5
    assert to_numpy(torch.ones(2, requires_grad=True)).tolist() == [1, 1]


LOW_FLOATS = [name for name in dir(ml_dtypes) if name.startswith(("bfloat", "float"))] + ["float16"]


@pytest.mark.parametrize("name", LOW_FLOATS)
def test_small_floats_are_added_up_in_float32(name: str) -> None:
    assert accumulator(np.dtype(name)) == np.float32
    assert is_low(np.dtype(name))


def test_other_numbers_are_added_up_in_their_own_dtype() -> None:
    for name in ("float32", "float64", "complex64", "int8", "uint16", "bool", "int4", "V3", "i4,i4"):
        assert accumulator(np.dtype(name)) == np.dtype(name)
        assert not is_low(np.dtype(name))


@pytest.mark.parametrize(("count", "shape"), [(1, (7,)), (2, (7,)), (3, ()), (2, ()), (300, (7,))])
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("op", [ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PROD])
def test_contributions_of_small_floats_are_rounded_once(
    op: ReduceOp, name: str, count: int, shape: tuple[int, ...]
) -> None:
    dtype, rng = np.dtype(name), np.random.default_rng(count)
    terms = [rng.uniform(0.9, 1.1, shape).astype(dtype) for _ in range(count)]
    wide = np.stack(terms).astype("float64")
    want = {ReduceOp.SUM: wide.sum(0), ReduceOp.AVG: wide.mean(0), ReduceOp.PROD: wide.prod(0)}[op]
    for make in (np.array, torch_view):
        out = make(np.zeros(shape, dtype))
        reduce_into(out, [make(term) for term in terms], op)
        got = to_numpy(out)
        assert got.dtype == dtype
        # Half a unit in the last place, and what float32 itself rounds.
        unit = np.exp2(np.floor(np.log2(want))) * float(ml_dtypes.finfo(dtype).eps)
        assert (np.abs(got.astype("float64") - want) <= unit * 0.501).all()
        sums = make(np.zeros(shape, "float32"))  # not rounded yet, where there is more to add
        reduce_into(sums, [make(term) for term in terms], op)
        assert np.allclose(to_numpy(sums), want, rtol=1e-5)
        reduce_into(out, [sums, sums], ReduceOp.AVG)
        assert (to_numpy(out).astype("float64") == got.astype("float64")).all()


def test_an_average_of_large_numbers_is_as_large() -> None:
    for make in (np.array, torch_view):
        terms = [make(np.full(3, 60000, "float16")) for _ in range(4)]
        out = make(np.zeros(3, "float16"))
        reduce_into(out, terms, ReduceOp.AVG)
        assert to_numpy(out).tolist() == [60000.0] * 3


ODD_COMPLEX = [
    complex(-0.0, np.inf),
    complex(np.inf, 1.0),
    complex(-np.inf, -np.inf),
    2 + 3j,
    complex(-0.0, -0.0),
    1 + 0j,
]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_ones_leave_every_complex_number_as_it_is(dtype: str, library: str) -> None:
    value = np.array(ODD_COMPLEX, dtype)
    for at in range(3):
        terms: list[Any] = [np.ones_like(value)] * 3
        terms[at] = value
        out: Any = np.zeros_like(value)
        if library == "torch":
            terms, out = [torch.tensor(term) for term in terms], torch.tensor(out)
        reduce_into(out, terms, ReduceOp.PROD)
        assert str(np.asarray(out).tolist()) == str(value.tolist())
    plain = np.array([2 - 1j, 3j, -0.5], dtype)
    out = np.zeros_like(plain)
    reduce_into(out, [plain, plain, plain], ReduceOp.PROD)
    assert np.allclose(out, plain**3)


def test_pieces_are_as_large_as_they_may_be() -> None:
    for most, sizes in [(16, [16]), (15, [15, 1]), (4, [4] * 4), (1, [1] * 16)]:
        assert [piece.nbytes for (piece,) in pieces([np.zeros((2, 8), "int8")], most)] == sizes
    one = np.zeros(1, "int64")
    assert [piece is one for (piece,) in pieces([one], 1)] == [True]  # an element is never cut
    turned = np.zeros((8, 2), "int8").T
    assert [piece.shape for (piece,) in pieces([turned], 8)] == [(1, 8), (1, 8)]
    assert [piece.shape for (piece,) in pieces([turned], 4)] == [(1, 4)] * 4


def test_many_small_floats_are_added_up_in_float64() -> None:
    half = np.dtype("float16")
    assert [room_for(half, count) for count in (1 << 12, (1 << 12) + 1)] == [np.float32, np.float64]
    assert [room_for(half, count, 3) for count in (3, 4)] == [np.float32, np.float64]


def test_casts_pass_through_what_has_the_dtype() -> None:
    array, tensor = np.ones(2, "float32"), torch.ones(2)
    assert cast(array, np.dtype("float32")) is array
    assert cast(tensor, np.dtype("float32")) is tensor
    assert cast(tensor, np.dtype("float16")).dtype == torch.float16


def test_copies_are_of_either_library() -> None:
    for out, source in [(np.zeros(2), np.ones(2)), (torch.zeros(2), torch.ones(2))]:
        copy_into(out, source)
        assert out.tolist() == [1.0, 1.0]


def test_empty_tensors_are_like_others() -> None:
    like = torch.zeros(1, dtype=torch.float16)
    for dtype in ("float16", "int32"):
        made = empty_like(like, [2, 3], np.dtype(dtype))
        assert (tuple(made.shape), made.dtype) == ((2, 3), getattr(torch, dtype))


@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2], ids=str)
def test_torch_shares_memory_only_of_what_may_be_written(dtype: Any) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    for make in (torch_of_array, torch_view):
        tensor = make(array)
        assert dtype_of(tensor) == array.dtype
        assert tensor.data_ptr() == array.__array_interface__["data"][0]
        fixed = make(readonly(array))
        assert fixed.data_ptr() != array.__array_interface__["data"][0]
        assert to_numpy(fixed).tobytes() == array.tobytes()
    turned = torch_of_array(array.T)
    assert turned.is_contiguous()
    assert to_numpy(turned).tolist() == array.T.tolist()
    same = torch_of_array(array)
    assert torch_view(same) is same


def test_an_accelerator_must_be_one_of_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(arrays_module, "accelerator_count", lambda: 2)
    monkeypatch.setattr(arrays_module, "on_device", lambda array, device: asked.append(device) or array)
    array = np.ones(2)
    assert in_memory(array, Accelerator(1)) is array
    assert in_memory(array, CPU(7)) is array
    assert asked == [Accelerator(1), CPU(7)]
    with pytest.raises(EngineError, match=r"Accelerator\(2\) is not there: 2 accelerators were found"):
        in_memory(array, Accelerator(2))


def test_who_is_on_the_host_stays_what_it_is() -> None:
    array, tensor = np.ones(2), torch.ones(2)
    assert on_device(array, CPU(0)) is array
    assert on_device(tensor, CPU(0)).data_ptr() == tensor.data_ptr()


def test_identities_are_of_their_dtype() -> None:
    found = [
        (identity(op, np.dtype(dtype)), type(identity(op, np.dtype(dtype))))
        for op, dtype in [
            (ReduceOp.BAND, "bool"),
            (ReduceOp.BAND, "int8"),
            (ReduceOp.BAND, "uint8"),
            (ReduceOp.MIN, "bool"),
            (ReduceOp.MAX, "bool"),
            (ReduceOp.MAX, "int8"),
            (ReduceOp.MIN, "uint16"),
            (ReduceOp.PROD, "float32"),
            (ReduceOp.BXOR, "int8"),
            (ReduceOp.SUM, "int8"),
        ]
    ]
    expected = [True, -1, 255, True, False, -128, 65535, 1, 0, 0]
    assert found == [(value, type(value)) for value in expected]
    assert str(identity(ReduceOp.SUM, np.dtype("float16"))) == "-0.0"


@pytest.mark.parametrize("shape", [(), (7,)])
def test_averages_of_complex_numbers_are_rounded_once_in_each_part(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    for count in (2, 3, 5, 7):
        parts = rng.integers(-9, 10, (2, count, *shape)).astype("float32")
        terms = [np.asarray(a + 1j * b, "complex64") for a, b in zip(*parts, strict=True)]
        out: Any = np.zeros(shape, "complex64")
        other, sent = torch.tensor(out), out.copy()
        reduce_into(out, terms, ReduceOp.AVG)
        # What came from another process has a dtype that is equal, and an object of its own.
        reduce_into(sent, [term.view(pickle.loads(pickle.dumps(term.dtype))) for term in terms], ReduceOp.AVG)
        reduce_into(other, [torch.tensor(term) for term in terms], ReduceOp.AVG)
        results: list[Any] = [out, sent, np.asarray(other)]
        for got in results:
            assert np.array_equal(got.real, parts[0].sum(0) / np.float32(count))
            assert np.array_equal(got.imag, parts[1].sum(0) / np.float32(count))


def test_what_goes_to_an_accelerator_goes_as_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    host = torch.device("cpu")
    monkeypatch.setattr(torch, "device", lambda kind, index: asked.append((kind, index)) or host)
    array, tensor = np.arange(3), torch.ones(2)
    there = on_device(array, Accelerator(3))
    assert isinstance(there, torch.Tensor)
    assert there.tolist() == [0, 1, 2]
    assert on_device(tensor, Accelerator(0)) is tensor
    assert asked == [("cuda", 3), ("cuda", 0)]
